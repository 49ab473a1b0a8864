"""Existing tokenizers: `tokenizer.json`, GPT-2's and GPT's pair of files, CLIP's list of merges, BERT's `vocab.txt`."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import models

from lmlab.files import write_text
from lmlab.parsing import load_json
from lmlab.tokenizers.engines import (
    BERT_SPECIALS,
    BOUNDARY,
    BYTE_OF,
    CLIP_START,
    byte_level_engine,
    clip_engine,
    gpt_engine,
    wordpiece_engine,
)
from lmlab.tokenizers.sentencepiece import load_sentencepiece
from lmlab.tokenizers.tokenizer import Tokenizer

ACCEPTED = (
    "a tokenizer.json, GPT-2's encoder.json with vocab.bpe (or vocab.json with merges.txt), BERT's vocab.txt, "
    "CLIP's bpe_simple_vocab_16e6.txt.gz, SentencePiece's .model"
)
CLIP_FILE = "bpe_simple_vocab_16e6.txt.gz"
CLIP_MERGES = 49152 - 256 - 2
"""The merges of CLIP's file that its vocabulary of 49,408 entries has; the file lists more."""
CLIP_BYTES = 2**24
"""The unpacked file has 3 MB; a larger one is not that file."""
_PAIRS = (
    ("encoder.json", "vocab.bpe"),
    ("vocab.json", "merges.txt"),
    ("encoder_bpe_40000.json", "vocab_40000.bpe"),
)


def load(path: str | Path) -> Tokenizer:
    """The tokenizer in a file or folder; a ValueError says what is accepted."""
    path = Path(path)
    if path.is_dir():
        return _load_folder(path)
    if not path.exists():
        raise ValueError(f"{path} does not exist; a tokenizer is {ACCEPTED}")
    if not path.is_file():
        raise ValueError(f"{path} is a pipe or a device, not a regular file; a tokenizer is {ACCEPTED}")
    for vocabulary, merges in _PAIRS:
        if path.name in (vocabulary, merges):
            return _load_pair(path.with_name(vocabulary), path.with_name(merges))
    if path.suffix == ".model":
        return Tokenizer(load_sentencepiece(path))
    if path.name.endswith(".txt.gz"):
        return _load_clip(path)
    if path.suffix == ".txt":
        return _load_wordpiece(path)
    return Tokenizer(read_engine(path), boundary=_read_settings(path).get("boundary"))


def read_engine(path: Path) -> hf.Tokenizer:
    """The content of a `tokenizer.json`, with no token added to it."""
    try:
        return hf.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except BaseException as error:  # the library raises bare Exception, and PanicException, which is none
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not a tokenizer ({reason}); accepted: {ACCEPTED}") from None


def load_imported(path: Path) -> Tokenizer:
    """The tokenizer of a run, which reads special tokens as the library does that the run was imported from.

    `load` splits them instead: it is for text that is learnt from.
    """
    if (path / "tokenizer.json").is_file():
        path = path / "tokenizer.json"
    tokenizer, settings = load(path), _read_settings(path)
    if settings.get("split_special_tokens", True):
        return tokenizer
    return Tokenizer(tokenizer.engine, boundary=tokenizer.named_boundary, split_special_tokens=False)


def save(tokenizer: Tokenizer, path: str | Path, *, shared: bool = False) -> None:
    """Write `tokenizer.json`, and `tokenizer_options.json` where its boundary is named or it reads special tokens."""
    path = Path(path)
    target = path / "tokenizer.json" if path.is_dir() else path
    write_text(target, tokenizer.engine.to_str(pretty=True), shared=shared)
    if tokenizer.options:
        content = json.dumps(tokenizer.options, indent=2, ensure_ascii=False)
        write_text(_settings_file(target), content + "\n", shared=shared)
    else:
        _settings_file(target).unlink(missing_ok=True)


def _settings_file(path: Path) -> Path:
    return path.with_name(f"{path.stem}_options.json")


def _read_settings(path: Path) -> dict[str, Any]:
    """The options that `save` wrote next to a `tokenizer.json`; empty if there is no such file."""
    file = _settings_file(path)
    if not file.is_file():
        return {}
    try:
        found = load_json(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    return check_options(found, where=str(file))


def check_options(found: Any, *, where: str) -> dict[str, Any]:
    """The options of a tokenizer that a file holds; a ValueError where they are others."""
    kinds = {"boundary": str, "split_special_tokens": bool}
    if not isinstance(found, dict) or any(type(value) is not kinds.get(key) for key, value in found.items()):
        raise ValueError(f"{where} is damaged: it may say boundary (a text) and split_special_tokens (true or false)")
    return found


def _load_folder(folder: Path) -> Tokenizer:
    for names in (("tokenizer.json",), *_PAIRS, ("vocab.txt",), (CLIP_FILE,), ("spiece.model",), ("tokenizer.model",)):
        if all((folder / name).is_file() for name in names):
            return load(folder / names[0])
    raise ValueError(f"{folder} contains no tokenizer; accepted: {ACCEPTED}")


def _load_pair(vocabulary_path: Path, merges_path: Path) -> Tokenizer:
    """GPT-2's byte-level pairs (Radford et al. 2019), or GPT's over lower-cased words that end in `</w>` (2018)."""
    try:
        vocabulary = load_json(vocabulary_path.read_text(encoding="utf-8"))
        lines = merges_path.read_text(encoding="utf-8").split("\n")
        merges = [_pair(line) for line in lines if line.strip() and not line.startswith("#version")]
        if CLIP_START in vocabulary:
            return Tokenizer(clip_engine(vocabulary, merges))
        if any(piece.endswith("</w>") for piece in vocabulary):
            model = models.BPE(vocabulary, merges, unk_token="<unk>", end_of_word_suffix="</w>")
            return Tokenizer(gpt_engine(model))
        engine = byte_level_engine(models.BPE(vocabulary, merges))
    except FileNotFoundError as error:
        raise ValueError(
            f"{error.filename} does not exist; {vocabulary_path.name} and {merges_path.name} go together"
        ) from None
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{vocabulary_path} and {merges_path.name} are not a pair of BPE files ({error})") from None
    if BOUNDARY in vocabulary:
        engine.add_special_tokens([BOUNDARY])
    return Tokenizer(engine)


def _pair(line: str) -> tuple[str, str]:
    left, right = line.rstrip("\r").split(" ")
    return left, right


def _load_clip(path: Path) -> Tokenizer:
    """The file of merges that was published with CLIP: bytes, bytes at the end of a word, merges, start and end."""
    try:
        with gzip.open(path) as file:
            lines = file.read(CLIP_BYTES + 1).decode("utf-8").split("\n")
        merges = [_pair(line) for line in lines[1 : CLIP_MERGES + 1]]
        pieces = [*BYTE_OF, *(f"{byte}</w>" for byte in BYTE_OF), *map("".join, merges), CLIP_START, BOUNDARY]
        if "#version" not in lines[0] or len(set(pieces)) < 512 + CLIP_MERGES + 2:
            raise ValueError(f"it has no line with #version, or fewer than {CLIP_MERGES:,} different merges")
        return Tokenizer(clip_engine({piece: number for number, piece in enumerate(pieces)}, merges))
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not CLIP's list of merges ({error}); accepted: {ACCEPTED}") from None


def _load_wordpiece(path: Path) -> Tokenizer:
    pieces = path.read_text(encoding="utf-8").splitlines()
    if "[UNK]" not in pieces:
        raise ValueError(f"{path} is not a WordPiece vocabulary (it has no line [UNK]); accepted: {ACCEPTED}")
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    cased = any(piece.isascii() and piece.isalpha() and piece != piece.lower() for piece in pieces)
    engine = wordpiece_engine(models.WordPiece(vocabulary, unk_token="[UNK]"), cased=cased)
    engine.add_special_tokens([name for name in BERT_SPECIALS if name in vocabulary])
    return Tokenizer(engine)


def with_words(tokenizer: Tokenizer, words: Iterable[str]) -> Tokenizer:
    """A tokenizer of `spelled` words with more words that are only read."""
    known = tokenizer.engine.get_vocab()
    new = [word for word in words if word not in known]
    if not new:
        return tokenizer
    settings = json.loads(tokenizer.engine.to_str())
    settings["model"]["vocab"] |= {word: number for number, word in enumerate(new, start=tokenizer.vocabulary)}
    return tokenizer.changed(json.dumps(settings))


def without_last(tokenizer: Tokenizer, count: int) -> Tokenizer:
    """A tokenizer without the last special tokens that were added to it, as `with_specials` adds them."""
    settings = json.loads(tokenizer.engine.to_str())
    last = sorted(settings["added_tokens"], key=lambda token: token["id"])[-count:] if count else []
    if not last or any(token["content"] in settings["model"]["vocab"] for token in last):
        return tokenizer
    settings["added_tokens"] = [token for token in settings["added_tokens"] if token not in last]
    return tokenizer.changed(json.dumps(settings))
