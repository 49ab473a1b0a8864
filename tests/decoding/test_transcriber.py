"""Transcription: the rules of time tokens, segments, word timings by brute force, and a model that learns tones."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lmlab
from lmlab.cli.application import app
from lmlab.data.readers.clips import make_tones
from lmlab.data.readers.media import Sound
from lmlab.data.readers.sounds import write_wav
from lmlab.decoding.speech.timestamps import TranscriptRules, split_segments
from lmlab.decoding.speech.transcriber import find_pause, repeats_itself
from lmlab.decoding.speech.word_timing import split_words, warp
from lmlab.metrics.transcription import normalise
from lmlab.tokenizers.speech_tokens import SpeechTokens

TOKENS = SpeechTokens(end=10, start=11, plain=12, first_time=13)
VOCABULARY = 13 + 101


def allowed(written: list[int], *, likely: int = 3) -> set[int]:
    logs = torch.full((1, VOCABULARY), -20.0)
    logs[0, likely] = 0.0
    rules = TranscriptRules(tokens=TOKENS, never=[1], first=[2], times=True)
    forbidden = rules(torch.tensor([written], dtype=torch.long), logs)[0]
    return set((~forbidden).nonzero()[:, 0].tolist())


def test_times_come_in_pairs_and_in_order() -> None:
    words = {0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
    assert allowed([]) == set(range(13, 13 + 51))  # a time, of the first second
    assert allowed([13]) == words
    assert allowed([13, 3]) == words | set(range(14, VOCABULARY))
    assert allowed([13, 3, 20], likely=10) == {10, 11} | set(range(20, VOCABULARY))
    assert allowed([13, 3, 20, 20]) == words
    assert allowed([13, 3], likely=15) == set(range(14, VOCABULARY))  # times are more probable than every word


def test_without_times_no_time_is_written() -> None:
    rules = TranscriptRules(tokens=TOKENS, never=[1], first=[2])
    forbidden = rules(torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, VOCABULARY))[0]
    assert set(forbidden.nonzero()[:, 0].tolist()) == {1, 2, *range(13, VOCABULARY)}


@pytest.mark.parametrize(
    ("written", "segments", "done"),
    [
        ([13, 3, 4, 63], [(0, 1, [3, 4])], 30),
        ([13, 3, 63, 63, 4, 113], [(0, 1, [3]), (1, 2, [4])], 30),
        ([13, 3, 63, 63, 4], [(0, 1, [3])], 1),
        ([13, 3, 63, 63], [(0, 1, [3])], 1),
        ([13, 3, 4], [(0, 30, [3, 4])], 30),
        ([], [], 30),
    ],
)
def test_segments(written: list[int], segments: list[tuple[float, float, list[int]]], done: float) -> None:
    found, reached = split_segments(written, TOKENS, seconds=30.0)
    assert [(each.begin, each.end, each.tokens) for each in found] == segments
    assert reached == done


def test_warping_finds_the_cheapest_path() -> None:
    cost = np.random.default_rng(0).normal(size=(3, 4))
    paths = []
    for steps in itertools.chain.from_iterable(itertools.product("rdx", repeat=count) for count in range(3, 6)):
        path = [(0, 0)]
        for step in steps:
            i, j = path[-1]
            path.append((i + (step != "r"), j + (step != "d")))
        if path[-1] == (2, 3):
            paths.append(path)
    best = min(sum(cost[cell] for cell in path) for path in paths)
    rows, columns = warp(cost)
    assert cost[rows, columns].sum() == pytest.approx(best)


def test_words_are_whole() -> None:
    texts = {1: " And", 2: " so", 3: ",", 4: " my", 5: "self"}
    assert split_words([1, 2, 3, 4, 5], lambda ids: "".join(texts[token] for token in ids)) == [[1], [2, 3], [4, 5]]


def test_loops_and_pauses_are_found() -> None:
    assert repeats_itself("5, " * 100)
    assert not repeats_itself("Ask not what your country can do for you, ask what you can do for your country.")
    samples = torch.ones(16000)
    samples[13000:15000] = 0
    assert 13000 < find_pause(samples, 16000) < 15000


@pytest.mark.parametrize(
    ("text", "plain"), [("Don't  WAIT!", "don't wait"), ("‘It’s 5:30,’ she said.", "it's 5 30 she said"), ("...", "")]
)
def test_normalised_texts(text: str, plain: str) -> None:
    assert normalise(text) == plain


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("speech") / "tones"
    settings = {"objective.masks": 0, "train.rate": 2e-3, "train.batch": 16, "train.evaluations": 2}
    lmlab.train("whisper", "builtin:tones", output=path, size="nano", budget="400steps", settings=settings)
    return path


def write_clips(folder: Path, count: int) -> Path:
    rows = ["path\ttext"]
    for clip in list(make_tones(count, seed=5)):
        write_wav(folder / f"{clip.name}.wav", *clip.read())
        rows.append(f"{clip.name}.wav\t{clip.text}")
    (folder / "clips.tsv").write_text("\n".join(rows) + "\n")
    return folder / "clips.tsv"


def test_it_learns_from_the_sound(run: Path, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["evaluate", str(run), str(write_clips(tmp_path, 12)), "--json"])
    values = json.loads(found.stdout)
    assert values["word_error_rate"] < 0.5  # digits at random are wrong nine times out of ten
    assert values["character_error_rate"] < values["word_error_rate"] + 0.2
    assert values["clips"] == 12


def test_transcripts_of_the_command(run: Path, tmp_path: Path) -> None:
    write_clips(tmp_path, 2)
    files = [str(tmp_path / f"tones-00{number}.wav") for number in range(2)]
    plain = CliRunner().invoke(app, ["transcribe", str(run), *files])
    assert len(plain.stdout.splitlines()) == 2
    record = json.loads(CliRunner().invoke(app, ["transcribe", str(run), files[1], "--json", "--words"]).stdout)
    (segment,) = record["segments"]
    assert [word["text"] for word in segment["words"]] == segment["text"].split()
    assert "00:00:00,000 --> " in CliRunner().invoke(app, ["transcribe", str(run), files[0], "--srt"]).stdout
    assert "no timestamps" in str(CliRunner().invoke(app, ["transcribe", str(run), files[0], "--timestamps"]).exception)
    assert "no choice of language" in str(
        CliRunner().invoke(app, ["transcribe", str(run), files[0], "--language", "de"]).exception
    )


def test_long_recordings_and_silence(run: Path) -> None:
    transcriber = lmlab.load(run).transcriber
    clip = next(make_tones(1)).read()
    pause = np.zeros(8000 * 40 - len(clip.samples), np.float32)
    found = transcriber.transcribe(Sound(np.concatenate([clip.samples, pause, clip.samples]), 8000))
    assert len(found.segments) == 2
    assert found.segments[1].begin > 25
    assert transcriber.transcribe(Sound(np.zeros(80000, np.float32), 8000)).segments == []


def test_a_recognizer_does_not_translate(run: Path) -> None:
    with pytest.raises(ValueError, match="reads recordings, not text"):
        _ = lmlab.load(run).translator
