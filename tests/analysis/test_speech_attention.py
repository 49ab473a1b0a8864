"""Attention over the sound: the weights of one pass, the page with the spectrogram, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lmlab
from lmlab.analysis.speech_attention import SpeechAttention, listen
from lmlab.cli.application import app
from lmlab.data.readers.media import Sound
from lmlab.data.readers.sounds import write_wav
from lmlab.pages.figures.spectrogram import SoundAttention, TimedWord, colour_sound, colour_weights, ticks
from speech_runs import SOUND, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("speech") / "run", multilingual=True)


@pytest.fixture(scope="module")
def heard(run: Path) -> SpeechAttention:
    return listen(lmlab.load(run).transcriber, SOUND)


def test_weights_are_those_of_the_pass_that_writes(run: Path, heard: SpeechAttention) -> None:
    """Step by step, as the decoder writes: the row of a token is the one that predicts it."""
    import torch

    from lmlab.layers.watching import watching

    transcriber = lmlab.load(run).transcriber
    found = transcriber.transcribe(SOUND)
    prompt = transcriber.tokens.prompt(language=found.language, task=None, times=False)
    spectrogram = transcriber.processor.spectrogram(transcriber.processor.resample(SOUND.samples, SOUND.rate))
    written = [token for segment in found.segments for token in segment.tokens]
    place = "decoder.blocks.0.cross_attention.probabilities"
    with torch.inference_mode(), watching(transcriber.model, place) as seen:
        transcriber.model(torch.tensor([[*prompt, *written[:3]]]), sound=spectrogram[None])
    rows = seen[place][0][0, :, len(prompt) - 1 :].numpy()  # [H, 4, S]
    np.testing.assert_allclose(heard.weights[0, :, :4], rows, atol=1e-5)
    assert len(heard.tokens) == heard.weights.shape[2] == len(written)


def test_word_times_lie_in_the_recording(heard: SpeechAttention) -> None:
    assert heard.seconds == 2
    assert all(0 <= word.begin <= word.end <= 2 for word in heard.words)
    assert heard.sound.shape == (8, 200)
    assert heard.mean().shape == heard.weights.shape[2:]


def test_the_figure_shows_words_and_escapes_them() -> None:
    words = [TimedWord("<b>", 0.0, 0.5), TimedWord("word", 0.5, 1.0)]
    weights = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    figure = SoundAttention("Title", np.zeros((4, 10), np.float32), 1.0, words, ["<b>", "word"], weights)
    html = str(figure.html())
    assert html.count("data:image/png") == 2
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert colour_weights(weights)[0, 0].tolist() == colour_weights(weights)[1, 1].tolist()
    assert colour_sound(np.eye(3, dtype=np.float32)).shape == (3, 3, 3)
    assert ticks(1.0) == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert ticks(30.0)[-1] == 30


def test_the_command_writes_a_page(run: Path, tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", SOUND.samples, SOUND.rate)
    page = tmp_path / "page.html"
    found = CliRunner().invoke(app, ["inspect", "attention", str(run), str(tmp_path / "a.wav"), "-o", str(page)])
    assert found.exit_code == 0
    assert "img-src data:" in page.read_text()
    one = ["inspect", "attention", str(run), str(tmp_path / "a.wav"), "--head", "1", "--json"]
    values = json.loads(CliRunner().invoke(app, one).stdout)
    assert np.array(values["weights"]).shape[:2] == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a.wav", "--rollout"], "--rollout is for models of text"),
        (["a.wav", "--head", "9"], "head"),
        (["b.wav"], "b.wav cannot be read"),
        (["a.wav", "-o", "a.wav"], "end the name with"),
    ],
)
def test_errors(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_wav(tmp_path / "a.wav", SOUND.samples, SOUND.rate)
    found = CliRunner().invoke(app, ["inspect", "attention", str(run), *options])
    assert message in str(found.exception)


def test_silence_has_no_attention(run: Path) -> None:
    with pytest.raises(ValueError, match="hears no speech"):
        listen(lmlab.load(run).transcriber, Sound(np.zeros(8000, np.float32), 8000))
