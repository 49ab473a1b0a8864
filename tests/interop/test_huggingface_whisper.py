"""Whisper to and from transformers: weights, marks, settings of decoding, spectrograms and greedy transcripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import lmlab
from lmlab.interop.huggingface import export_run, import_run
from speech_runs import SOUND, write_run

transformers: Any = pytest.importorskip("transformers")


@pytest.fixture(params=[False, True], ids=["english", "multilingual"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", multilingual=request.param)


def same_run(one: Path, other: Path) -> bool:
    files = ("model.safetensors", "config.json", "frame.json", "processor.json", "tokenizer.json")
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in files)


@pytest.mark.parametrize("with_own_file", [True, False])
def test_a_run_comes_back(run: Path, tmp_path: Path, with_own_file: bool) -> None:
    export_run(run, tmp_path / "theirs")
    if not with_own_file:
        (tmp_path / "theirs" / "lmlab.json").unlink()
    import_run(tmp_path / "theirs", tmp_path / "back")
    assert same_run(run, tmp_path / "back")


def test_logits_are_theirs(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "theirs")
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    ours = lmlab.load(run).model
    sound, tokens = torch.randn(2, 8, 200), torch.randint(0, 300, (2, 9))
    with torch.no_grad():
        expected = theirs(input_features=sound, decoder_input_ids=tokens).logits
        found = ours.logits(ours(tokens, sound=sound).hidden)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_greedy_transcripts_are_theirs(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "theirs")
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(tmp_path / "theirs")
    transcriber = lmlab.load(run).transcriber
    heard = transcriber.processor.resample(SOUND.samples, SOUND.rate)
    features = extractor(heard.numpy(), sampling_rate=16000, return_tensors="pt").input_features
    torch.testing.assert_close(features[0], transcriber.processor.spectrogram(heard), atol=1e-4, rtol=1e-4)
    language = "de" if transcriber.tokens.languages else None
    options = {"language": language, "task": "transcribe"} if language else {}
    expected = theirs.generate(features, **options, max_new_tokens=12)[0].tolist()
    (segment,) = transcriber.transcribe(SOUND, language=language).segments
    length = min(len(expected), len(segment.tokens))
    assert length >= 8
    assert segment.tokens[:length] == expected[:length]


def test_the_language_is_theirs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", multilingual=True)
    export_run(run, tmp_path / "theirs")
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    transcriber = lmlab.load(run).transcriber
    heard = transcriber.processor.spectrogram(transcriber.processor.resample(SOUND.samples, SOUND.rate))
    (token,) = theirs.detect_language(heard[None]).tolist()
    assert transcriber.tokens.languages[transcriber.detect_language(SOUND)] == token


def test_their_processor_opens_it(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "theirs")
    processor = transformers.WhisperProcessor.from_pretrained(tmp_path / "theirs")
    text = "Hello, world"
    expected = lmlab.load(run).transcriber.tokenizer.encode(text)
    assert processor.tokenizer(text, add_special_tokens=False).input_ids == list(expected)
    assert processor.tokenizer.decode(expected) == text


def test_old_folders_say_it_in_their_config(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "theirs")
    (tmp_path / "theirs" / "lmlab.json").unlink()
    config, generation = (tmp_path / "theirs" / name for name in ("config.json", "generation_config.json"))
    old = {"suppress_tokens": [-1, 9], "begin_suppress_tokens": [7]}
    config.write_text(json.dumps({**json.loads(config.read_text()), **old}))
    generation.unlink()
    import_run(tmp_path / "theirs", tmp_path / "back")
    found = lmlab.load(tmp_path / "back").model.config
    assert (found.suppress, found.suppress_first, found.alignment_heads) == ([9], [7], None)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("preprocessor_config.json", {"feature_size": 40}, "spectrograms of 40 × 200, and the model reads 8 × 200"),
        ("preprocessor_config.json", {"hop_length": 0}, "hop = 0"),
        ("generation_config.json", [], "not a table of settings"),
        ("generation_config.json", {"suppress_tokens": [9999]}, "suppress"),
        ("config.json", {"decoder_attention_heads": 4}, "decoder_attention_heads"),
    ],
)
def test_wrong_files(run: Path, tmp_path: Path, file: str, content: Any, message: str) -> None:
    export_run(run, tmp_path / "theirs")
    (tmp_path / "theirs" / "lmlab.json").unlink()
    path = tmp_path / "theirs" / file
    whole = {**json.loads(path.read_text()), **content} if isinstance(content, dict) else content
    path.write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=message):
        import_run(tmp_path / "theirs", tmp_path / "back")
    assert not (tmp_path / "back").exists()
