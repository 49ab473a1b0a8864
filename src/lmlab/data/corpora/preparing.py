"""Shared by the preparation of texts and of pairs: fingerprints, progress, pipes, tokenizers and warnings."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from lmlab.data.corpora.corpus import Processor
from lmlab.data.corpora.store import temporary
from lmlab.data.readers.text import TextWarning, keep_stream
from lmlab.tokenizers import Tokenizer, TokenizerWarning, parse, resolve
from lmlab.tokenizers.processors import is_processor
from lmlab.tokenizers.tokenizer import WORD_KINDS
from lmlab.tokenizers.training import is_path

ReportStage = Callable[[str, int, int], None]
"""Called with the stage, the bytes done and the bytes in all."""

SAMPLE = 24 << 20
"""The largest number of bytes on which subword tokenizers are trained, taken evenly from all of the training text."""

Spool = Callable[[IO[bytes], str], Path]
"""Writes a stream that can be read only once to a file, and returns its path."""


class Counter:
    """Reports the bytes that are done of one stage."""

    def __init__(self, stage: str, total: int, report: ReportStage) -> None:
        self.stage, self.total, self.report = stage, total, report
        self.done = 0

    def add(self, size: int) -> None:
        self.done += size
        self.report(self.stage, min(self.done, self.total), self.total)


def digest(value: Any) -> str:
    """Return the SHA-256 of a text, or of any other value as JSON."""
    return hashlib.sha256((value if isinstance(value, str) else json.dumps(value)).encode()).hexdigest()


def size_of(files: Iterable[Path]) -> int:
    """Return the number of bytes of all files."""
    return sum(path.stat().st_size for path in files)


def stamps_of(files: Iterable[Path]) -> list[tuple[int, int]]:
    """Return the size and the time of change of each file."""
    return [(status.st_size, status.st_mtime_ns) for status in (path.stat() for path in files)]


def check_unchanged(files: Iterable[Path], stamps: Sequence[tuple[int, int]]) -> None:
    """Raise a ValueError if a file has changed since its stamp was taken."""
    if stamps_of(files) != stamps:
        raise ValueError("a text changed while it was being read; run the command again")


@contextmanager
def spooling(home: Path) -> Iterator[Spool]:
    """Give a function that keeps pipes in the cache; the files are removed at the end."""
    with ExitStack() as stack:

        def spool(stream: IO[bytes], name: str) -> Path:
            folder = temporary(home)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            return keep_stream(stream, folder, name)

        yield spool


def as_tokenizer(processor: str | Processor | None) -> str | Tokenizer:
    """Return the tokenizer, or its spec, by which text is processed; a ValueError if it is another processor."""
    if is_processor(processor):
        raise ValueError(
            f"tokenizer {processor!r} is not for text; give a spec such as bpe:4096, or data that it encodes"
        )
    if isinstance(processor, (str, Tokenizer)):
        return processor
    raise ValueError(f"text needs a tokenizer, not {processor!r}; give a tokenizer, or a spec such as bpe:4096")


def check_tokenizer(given: str | Path | Tokenizer) -> str | Tokenizer:
    """Return a tokenizer that exists already, or the checked spec of one to be trained."""
    if isinstance(given, Tokenizer):
        return given
    return resolve(given, lambda: ()) if is_path(given) else str(parse(str(given)))


def name_of(tokenizer: str | Tokenizer | None) -> str | None:
    """Return what identifies a tokenizer in a fingerprint: its own fingerprint, or the spec for training it."""
    return tokenizer.fingerprint if isinstance(tokenizer, Tokenizer) else tokenizer


def learns_from_all(spec: str | Tokenizer) -> bool:
    """Whether a tokenizer is trained on all of the text: one of words or characters."""
    return isinstance(spec, str) and parse(spec).kind in (*WORD_KINDS, "characters")


def warnings_to_keep(caught: Iterable[warnings.WarningMessage]) -> list[list[str]]:
    """Return the warnings about texts and tokenizers, to be kept in an index."""
    own = (TextWarning, TokenizerWarning)
    return [[w.category.__name__, str(w.message)] for w in caught if issubclass(w.category, own)]


def repeat_warnings(messages: Iterable[Sequence[str]]) -> None:
    """Repeat the warnings of an index, at the caller's caller."""
    for kind, message in messages:
        warnings.warn(message, TextWarning if kind == "TextWarning" else TokenizerWarning, stacklevel=3)
