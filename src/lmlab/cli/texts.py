"""Texts that are named on the command line, read whole and split into documents, and files to write."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from lmlab.data.readers.text import Source
    from lmlab.language_model import LanguageModel


FILE_NAME = re.compile(r"(?:~|\.{1,2})?/\S+|\S+\.(?:txt|tsv|csv|json|jsonl|conll|conllu|gz|md)")


def choose_boundary(model: LanguageModel, boundary: bool | None) -> LanguageModel:
    """The model as --boundary or --no-boundary asks for it; itself where neither is given."""
    if boundary is None:
        return model
    return model.with_boundary() if boundary else model.without_boundary()


def read_documents(files: Sequence[str], *, documents: str) -> list[str]:
    """The documents of files, folders, globs, `.gz`, `-` and `builtin`, cleaned as for training."""
    from lmlab.config import suggest
    from lmlab.data.readers.documents import SEPARATORS, gather

    if documents not in SEPARATORS:
        raise ValueError(f"unknown document separator {documents!r}{suggest(documents, SEPARATORS)}")
    with _found(files) as (sources, folder):
        gathered, _ = gather(sources, folder / "text", how=documents, report=lambda done: None)
        texts: list[str] = []
        parts: list[str] = []
        for ends, piece in gathered.pieces():
            parts.append(piece)
            if ends:
                texts.append("".join(parts))
                parts = []
    return texts


def read_lines(file: str) -> list[str]:
    """The lines of a file, a `.gz` file or standard input (`-`), cleaned as for training, without their ends."""
    from lmlab.data.readers.text import read_lines as lines_of

    with _found([file]) as (sources, _):
        if len(sources) > 1 or sources[0].path is None:
            raise ValueError(f"{file}: give one file whose lines are meant, or - for standard input")
        return list(lines_of(sources[0]))


def is_stream(text: str) -> bool:
    """Whether an argument names standard input or another pipe, as a shell does for `<(command)`."""
    from lmlab.data.readers.text import is_pipe

    return is_pipe(text)


def is_input(text: str) -> bool:
    """Whether an argument names something to read, and is not a text itself: a file, a device, or a stream."""
    mode = _mode(text)
    return is_stream(text) or (mode is not None and not stat.S_ISDIR(mode))


def text_of(argument: str) -> str:
    """The text that an argument gives: itself, or what standard input (`-`) or another pipe holds.

    A note is printed if the argument looks like the name of a file.
    """
    from lmlab.data.readers.text import STANDARD_INPUTS

    if argument in STANDARD_INPUTS:
        return sys.stdin.read()
    if is_stream(argument):
        return Path(argument).read_text(encoding="utf-8")
    note_file_name(argument)
    return argument


def note_file_name(text: str) -> None:
    """Print a note where a text that is given as an argument looks like the name of a file."""
    if looks_like_file(text):
        there = "exists" if _mode(text) is not None else "does not exist"
        print(
            f"note: {text} looks like the name of a file ({there}), and is taken as the text itself; "
            "give - and  < FILE  to read a text from a file",
            file=sys.stderr,
        )


def looks_like_file(text: str) -> bool:
    """Whether a text looks like the name of a file: a path, one with a usual ending, or one that exists."""
    return bool(FILE_NAME.fullmatch(text)) or (is_input(text) and bool(re.search(r"[/.]", text)))


@contextmanager
def spooled(file: str) -> Iterator[str]:
    """A file that can be read several times: itself, or of standard input and other pipes a copy."""
    from lmlab.data.readers.text import keep_stream

    if not is_stream(file):
        yield file
        return
    with _found([file]) as (sources, folder):
        assert sources[0].path is not None
        with sources[0].path.open("rb") as stream:
            yield str(keep_stream(stream, folder, sources[0].name).rename(folder / "standard-input"))


def _mode(text: str) -> int | None:
    """The kind of file that has this name; None where there is none."""
    try:
        return os.stat(os.path.expanduser(text)).st_mode if text else None
    except (OSError, ValueError):  # not there, too long for a name, or with a NUL in it
        return None


def check_output(option: str, path: str | Path | None) -> None:
    """Raise an error if an output cannot be written, before any work is done."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {Path(path).absolute().parent}")
    if path is not None and Path(path).is_dir():
        raise ValueError(f"{option} {path} is a folder: give the name of a file")


def check_outputs(
    outputs: Mapping[str, str | Path | None], *, inputs: Sequence[str | Path | None], overwrite: bool = False
) -> None:
    """Refuse to write, by option, where nothing can be written, and over anything that is read or was there before.

    Inputs are files, folders (what is in them counts, too) and `-`. Files are compared as the system knows them, so
    that another path, a symbolic link or a hard link to an input is that input. What was there before is replaced with
    `--overwrite` alone; pipes and devices may always be written to.
    """
    from lmlab.data.readers.text import STANDARD_INPUTS

    read = [Path(each) for each in inputs if each is not None and str(each) not in STANDARD_INPUTS]
    known = {identity for path in read if path.is_file() and (identity := _identity(path))}
    if any(str(each) in STANDARD_INPUTS for each in inputs) and (standard := _identity(0)):
        known.add(standard)
    folders = [path.resolve() for path in read if path.is_dir()]
    if (shown := _identity(1)) and shown in known:
        raise ValueError("standard output goes to a file that is read, too: write to another file")
    named: dict[Path, str] = {}
    for option, output in outputs.items():
        if output is None or str(output) == "-":
            continue
        check_output(option, output)
        path, identity = Path(output).resolve(), _identity(output)
        if identity in known:
            raise ValueError(f"{option} {output} is read, too, and would be overwritten: write to another file")
        if identity and any(folder in path.parents for folder in folders):
            raise ValueError(f"{option} {output} is a file of what is read: write to another file")
        if path in named:
            raise ValueError(f"{named[path]} and {option} name the same file, {output}: give two names")
        named[path] = option
        if identity and not overwrite and Path(output).stat().st_size:
            raise ValueError(f"{option} {output} exists already: choose another name, or replace it with --overwrite")


def _identity(file: str | Path | int) -> tuple[int, int] | None:
    """Which file this is, whatever its name; None where it is not there, or is a pipe, a device or a folder."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


@contextmanager
def _found(files: Sequence[str]) -> Iterator[tuple[list[Source], Path]]:
    """The texts that are meant, and a folder that is there as long as they are needed."""
    from lmlab.data.readers.text import find, keep_stream

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def spool(stream: IO[bytes], name: str) -> Path:
            return keep_stream(stream, Path(tempfile.mkdtemp(dir=folder)), name)

        yield find(files, spool=spool), folder


def documents_of(run: Path) -> str:
    """The document separator that a run was trained with; `file` if it is unknown."""
    import json

    try:
        return str(json.loads((run / "recipe.json").read_text(encoding="utf-8"))["data"]["documents"])
    except (OSError, ValueError, KeyError, TypeError):
        return "file"
