"""Import and export n-gram runs as ARPA files.

An ARPA file has no tokenizer. If tokens are words between white space, the list of words is enough; otherwise the
tokenizer of the run is written next to the file, as `NAME.tokenizer.json`, and read back with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lmlab.interop.arpa import is_arpa, read_arpa, write_arpa
from lmlab.interop.staging import staged
from lmlab.models.ngram import NGram
from lmlab.runs.model_files import load_model, write_config
from lmlab.runs.storage import write_manifest, write_tensors
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.engines import UNKNOWN, numbered_word_engine

TOKENIZER_ENDING = ".tokenizer.json"
MARKS = ("Ġ", "▁", "##")
"""Prefixes of the pieces of subword tokenizers."""
MOST_MARKED = 0.2
"""Maximum fraction of a word vocabulary that may begin with such a prefix."""


def export_arpa(run: Path, path: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the n-gram model of a run as an ARPA file, with its tokenizer next to it if tokens are not words."""
    file = path.with_name(path.name + TOKENIZER_ENDING)
    _check_target(path, is_arpa(path), "ARPA file", overwrite=overwrite)
    model, tokenizer = load_model(run)
    if not isinstance(model, NGram) or tokenizer is None:
        raise ValueError(f"{run} is not an n-gram model, and only n-grams can be written as ARPA files")
    words = [tokenizer.engine.id_to_token(token) or "" for token in range(tokenizer.vocabulary)]
    if tokenizer.newline_is_boundary:
        write_arpa(model, path, words=words)
        return [path]
    _check_target(file, _is_tokenizer(file), "tokenizer", overwrite=overwrite)
    write_arpa(model, path, words=words)
    tokenizer.save(file)
    return [path, file]


def import_arpa(path: Path, run: Path, *, tokenizer: Tokenizer | None = None, overwrite: bool = False) -> None:
    """Create a run from an ARPA file, with the given tokenizer, the one next to the file, or its words."""
    file = path.with_name(path.name + TOKENIZER_ENDING)
    with staged(run, overwrite=overwrite) as new:
        model, words = read_arpa(path)
        if tokenizer is None and file.is_file():
            tokenizer = Tokenizer.load(file)
        if tokenizer is not None:
            _check_fit(tokenizer, words, boundary=model.config.boundary, path=path)
        else:
            _check_words(words, path)
            tokenizer = Tokenizer(numbered_word_engine(words, boundary=model.config.boundary))
        tokenizer.save(new / "tokenizer.json")
        write_tensors(new / "model.safetensors", model.tensors())
        write_config(new, "ngram", model.config.model_dump())
        write_manifest(new)


def _check_target(path: Path, ours: bool, what: str, *, overwrite: bool) -> None:
    if not path.exists():
        return
    if path.is_dir() or not overwrite:
        raise ValueError(f"{path} exists already; choose another name, or replace a file with --overwrite")
    if not ours:
        raise ValueError(f"{path} exists and is no {what}, so it is not replaced; choose another name")


def _is_tokenizer(path: Path) -> bool:
    try:
        Tokenizer.load(path)
    except (ValueError, OSError):
        return False
    return True


def _check_words(words: Sequence[str], path: Path) -> None:
    """Raise a ValueError if the tokens of an ARPA file cannot be words between white space."""
    give = "give the tokenizer that cut the text into them: --tokenizer TOKENIZER.json"
    marked = sum(word.startswith(MARKS) for word in words)
    if any(character.isspace() for word in words for character in word) or marked > MOST_MARKED * len(words):
        raise ValueError(f"the tokens of {path} are characters or parts of words, not words; {give}")
    if UNKNOWN not in words:
        raise ValueError(f"{path} has no {UNKNOWN}, so its tokens are not all the words that a text may have; {give}")


def _check_fit(tokenizer: Tokenizer, words: Sequence[str], *, boundary: int, path: Path) -> None:
    """Raise a ValueError if the tokens of an ARPA file are not those of a tokenizer, in the same order."""
    if tokenizer.vocabulary != len(words) or tokenizer.boundary != boundary:
        raise ValueError(
            f"{path} has {len(words):,} tokens and </s> at {boundary}, the tokenizer has {tokenizer.vocabulary:,} and "
            f"the end of a document at {tokenizer.boundary}: it belongs to another model"
        )
    for token, word in enumerate(words):
        if token != boundary and word != (tokenizer.engine.id_to_token(token) or ""):
            raise ValueError(
                f"token {token} is {word!r} in {path}, and {tokenizer.engine.id_to_token(token)!r} in the tokenizer: "
                "it belongs to another model"
            )
