"""Whisper models in the format of CTranslate2: `model.bin`, `config.json` and `tokenizer.json`, read into a run.

`model.bin` is a list of named arrays (little-endian): version, name and revision of the specification, number of
arrays; for each its name, rank, sizes, type, number of bytes, and the bytes; then names that are another's copy. No
pickle is involved. All sizes are compared with the bytes that are there.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.config import build
from lmlab.interop.staging import staged
from lmlab.models.whisper import WhisperConfig
from lmlab.runs.model_files import check_fit, expected_tensors, write_config
from lmlab.runs.storage import DamagedError, read_json, write_manifest, write_tensors
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.files import read_engine
from lmlab.tokenizers.processors.sounds import SoundProcessor
from lmlab.tokenizers.speech_tokens import ENGLISH_VOCABULARY, speech_frame

MODEL = "model.bin"
VERSIONS = range(4, 7)
"""Versions of the binary format with a type for each array."""
SPECIFICATION = "WhisperSpec"
TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "bfloat16")
"""Types by their numbers."""
MOST_ARRAYS, MOST_RANK, MOST_NAME = 100_000, 8, 1_000


class Arrays(NamedTuple):
    """The content of a `model.bin`."""

    specification: str
    revision: int
    arrays: Mapping[str, NDArray[Any]]


class _Reader:
    """Numbers and names from a file; a `DamagedError` where it ends too early."""

    def __init__(self, path: Path) -> None:
        self.path, self.position = path, 0
        self.content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        if size > len(self.content) - self.position:
            raise self.damaged(f"it ends at byte {len(self.content):,}, and {size:,} more bytes were announced")
        self.position += size
        return self.content[self.position - size : self.position]

    def number(self, code: str) -> int:
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(code)).tobytes())
        return int(value)

    def name(self) -> str:
        size = self.number("H")
        if not 1 <= size <= MOST_NAME:
            raise self.damaged(f"a name of {size:,} bytes")
        text = self.take(size).tobytes()
        try:
            return text.removesuffix(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged("a name that is not text") from None

    def damaged(self, reason: str) -> DamagedError:
        return DamagedError(f"{self.path} is damaged, or no model of CTranslate2: {reason}; fetch it again")


def read_arrays(path: Path) -> Arrays:
    """All arrays of a `model.bin` by name, as they are stored."""
    reader = _Reader(path)
    if (version := reader.number("I")) not in VERSIONS:
        raise reader.damaged(f"version {version} of the format; {VERSIONS[0]} to {VERSIONS[-1]} are read")
    specification, revision, count = reader.name(), reader.number("I"), reader.number("I")
    if count > MOST_ARRAYS:
        raise reader.damaged(f"{count:,} arrays")
    arrays: dict[str, NDArray[Any]] = {}
    for _ in range(count):
        name = reader.name()
        arrays[name] = _read_array(reader, name)
    for _ in range(reader.number("I")):
        copy, original = reader.name(), reader.name()
        if original not in arrays:
            raise reader.damaged(f"{copy} is a copy of {original}, which is not there")
        arrays[copy] = arrays[original]
    return Arrays(specification, revision, arrays)


def _read_array(reader: _Reader, name: str) -> NDArray[Any]:
    rank = reader.number("B")
    if rank > MOST_RANK:
        raise reader.damaged(f"{name} has {rank} dimensions")
    shape = [reader.number("I") for _ in range(rank)]
    code, size = reader.number("B"), reader.number("I")
    if code >= len(TYPES):
        raise reader.damaged(f"{name} has the unknown type {code}")
    kind = "<u2" if TYPES[code] == "bfloat16" else TYPES[code]
    if size != math.prod(shape) * np.dtype(kind).itemsize:
        raise reader.damaged(f"{name} has {size:,} bytes, and its shape {shape} needs others")
    data = reader.take(size).view(kind).reshape(shape)
    if TYPES[code] == "bfloat16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    return data


def import_ctranslate2(folder: Path, run: Path, *, overwrite: bool = False) -> None:
    """Make a run directory of a Whisper model in a folder of CTranslate2."""
    with staged(run, overwrite=overwrite) as new:
        found = read_arrays(folder / MODEL)
        if found.specification != SPECIFICATION:
            raise ValueError(f"{folder} has a {found.specification} of CTranslate2, and only Whisper models are read")
        settings = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
        if not isinstance(settings, dict):
            raise DamagedError(f"{folder / 'config.json'} is damaged: it is not a table of settings")
        config = build(WhisperConfig, _settings(found.arrays, settings, folder), where=str(folder))
        tensors = _tensors(found.arrays, folder)
        check_fit(expected_tensors("whisper", config), tensors, source=folder / MODEL, into="a Whisper of its sizes")
        write_tensors(new / "model.safetensors", tensors)
        write_config(new, "whisper", config.model_dump())
        tokenizer = _read_tokenizer(folder, config.vocabulary)
        tokenizer.save(new / "tokenizer.json")
        speech_frame(tokenizer, multilingual=config.vocabulary > ENGLISH_VOCABULARY).save(new)
        SoundProcessor(mels=config.mels).save(new / "processor.json")
        write_manifest(new)


def _read_tokenizer(folder: Path, rows: int) -> Tokenizer:
    if not (folder / "tokenizer.json").is_file():
        raise ValueError(f"{folder} has no tokenizer.json: copy that of the same Whisper model beside {MODEL}")
    tokenizer = Tokenizer(read_engine(folder / "tokenizer.json"), boundary="<|endoftext|>", split_special_tokens=False)
    if tokenizer.vocabulary > rows:
        raise ValueError(f"the tokenizer of {folder} has {tokenizer.vocabulary} tokens, but the model only {rows}")
    return tokenizer


def _settings(arrays: Mapping[str, NDArray[Any]], settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of the model, from the shapes of its arrays and the `config.json` beside them."""

    def shape(name: str, rank: int) -> tuple[int, ...]:
        if name not in arrays or arrays[name].ndim != rank:
            raise DamagedError(f"{folder / MODEL} is damaged: it has no array {name} of {rank} dimensions")
        return arrays[name].shape

    vocabulary, width = shape("decoder/embeddings/weight", 2)
    shape("encoder/num_heads", 0)
    layers = {
        side: len({name.split("/")[1] for name in arrays if name.startswith(f"{side}/layer_") and name.count("/") > 2})
        for side in ("encoder", "decoder")
    }
    return {
        "vocabulary": vocabulary,
        "width": width,
        "heads": int(arrays["encoder/num_heads"]),
        "layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "inner": shape("encoder/layer_0/ffn/linear_0/weight", 2)[0],
        "mels": shape("encoder/conv1/weight", 3)[1],
        "frames": 2 * shape("encoder/position_encodings/encodings", 2)[0],
        "window": shape("decoder/position_encodings/encodings", 2)[0],
        "dropout": 0.0,
        "suppress": settings.get("suppress_ids") or [],
        "suppress_first": settings.get("suppress_ids_begin") or [],
        "alignment_heads": settings.get("alignment_heads"),
    }


PARTS = {
    "conv1": "first",
    "conv2": "second",
    "embeddings": "embedding",
    "self_attention/linear_0": "attention.query_key_value",
    "self_attention/linear_1": "attention.projection",
    "self_attention/layer_norm": "attention_norm",
    "attention/linear_0": "cross_attention.query",
    "attention/linear_1": "cross_attention.key_value",
    "attention/linear_2": "cross_attention.projection",
    "attention/layer_norm": "cross_attention_norm",
    "ffn/linear_0": "feed_forward.expand",
    "ffn/linear_1": "feed_forward.contract",
    "ffn/layer_norm": "feed_forward_norm",
    "layer_norm": "norm",
}
"""Parts of a stack or a block: their names, and ours."""
WHOLE = {
    "decoder/embeddings/weight": "embedding.weight",
    "encoder/position_encodings/encodings": "encoder.positions",
    "decoder/position_encodings/encodings": "decoder.positions.weight",
}
ENDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


def _tensors(arrays: Mapping[str, NDArray[Any]], folder: Path) -> dict[str, Tensor]:
    """All weights in single precision, by our names; what is no weight is left out."""
    tensors: dict[str, Tensor] = {}
    for name, array in arrays.items():
        ours = WHOLE.get(name) or _our_name(name)
        if ours is None or array.ndim == 0:
            continue
        values = torch.from_numpy(_as_floats(name, arrays))
        if ours.endswith(("query_key_value.bias", "key_value.bias")):
            values = _without_keys(values, name, folder)
        tensors[ours] = values
    return tensors


def _our_name(name: str) -> str | None:
    side, _, rest = name.partition("/")
    block = ""
    if rest.startswith("layer_") and "/" in rest and rest.split("/")[0] != "layer_norm":
        number, _, rest = rest.partition("/")
        block = f"blocks.{number.removeprefix('layer_')}."
    part, _, end = rest.rpartition("/")
    if part not in PARTS or end not in ENDS or part == "embeddings":
        return None
    return f"{side}.{block}{PARTS[part]}.{ENDS[end]}"


def _as_floats(name: str, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """An array in single precision; whole numbers are divided by the scale of their row, or of all."""
    values = np.array(arrays[name], np.float32)
    scale = arrays.get(f"{name}_scale")
    if scale is None:
        if arrays[name].dtype.kind == "i":
            raise ValueError(f"{name} is stored as whole numbers without a scale; convert the model again as float16")
        return values
    scale = np.asarray(scale, np.float32).reshape(-1, *[1] * (values.ndim - 1))
    if scale.size not in (1, len(values)) or not (scale > 0).all():
        raise ValueError(f"{name} has {scale.size} scales for {len(values)} rows; fetch the model again")
    return np.asarray(values / scale, np.float32)


def _without_keys(bias: Tensor, name: str, folder: Path) -> Tensor:
    """A bias of queries (if any), keys and values without its part for keys, which has no effect."""
    parts = 3 if "self_attention" in name else 2
    if len(bias) % parts:
        raise DamagedError(f"{folder / MODEL} is damaged: {name} has {len(bias)} numbers, not {parts} equal parts")
    *queries, _, values = bias.chunk(parts)
    return torch.cat((*queries, values))
