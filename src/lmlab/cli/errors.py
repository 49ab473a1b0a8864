"""Errors as one line on standard error, instead of a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar

from lmlab.messages import ArgumentError, printable

debugging: ContextVar[bool] = ContextVar("debugging", default=False)
"""Whether tracebacks are shown (`lmlab --debug`, or LMLAB_DEBUG=1 in the environment)."""
USERS, OURS, INTERRUPTED, PLACEHOLDERS = 2, 1, 130, 141
"""Exit statuses: an error of the user, a bug of ours, Ctrl-C, and a closed pipe."""
OPTIONS = {"origin": "--from", "settings": "--set"}
"""Options whose name is not that of the argument in Python."""
_WORDS = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "no space left: the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOTEMPTY: "the folder is not empty",
    errno.EMFILE: "too many files are open",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EFBIG: "the file is too large for the device",
    errno.EIO: "the device failed to read or write",
}
_ABOUT = {
    errno.ENOENT: "does not exist",
    errno.EISDIR: "is a folder, not a file",
    errno.ENOTDIR: "is a file, not a folder",
    errno.EEXIST: "exists already",
}


def report(error: BaseException) -> int:
    """Print an error on standard error, in one line if possible; returns the exit status."""
    if _interrupted(error):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader of our output has ended
        sys.stderr.close()
        return PLACEHOLDERS
    debug = debugging.get() or os.environ.get("LMLAB_DEBUG", "0") not in ("", "0")
    if debug:
        traceback.print_exception(error)
    message, status = _describe(error)
    if (process := os.environ.get("RANK")) is not None and not _is_news(error):
        return status
    if status == OURS:
        message += (
            "; this is a bug in lmlab: please report it with the traceback above"
            if debug
            else "; run it again as  lmlab --debug …  for the traceback"
        )
    where = f"process {process}: " if process is not None and is_follower() else ""
    print(f"{where}error: {printable(message)}", file=sys.__stderr__ if where else sys.stderr)
    return status


def is_follower() -> bool:
    """Whether torchrun has started this process as one of several, and it is not the first, which reports."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0"


def be_silent() -> None:
    """Print nothing from now on, except for errors that no other process has."""
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the process ends)


def _is_news(error: BaseException) -> bool:
    """Whether an error of one of several processes is to be shown: not if the first of them shows it."""
    from lmlab.training.distributed.group import first_has_failed, report_failure
    from lmlab.training.distributed.world import LostProcessError

    if not is_follower():
        report_failure()
        return True
    return not isinstance(error, LostProcessError) and not first_has_failed()


def _describe(error: BaseException) -> tuple[str, int]:
    if isinstance(error, OSError):
        return in_words(error), USERS
    if number := re.search(r"\(os error (\d+)\)", str(error)):  # errors of Rust: safetensors, tokenizers
        return in_words(OSError(int(number[1]), str(error))), USERS
    if isinstance(error, ArgumentError):
        return f"{format_option(error.name)} {error.value}: {error.problem}", USERS
    if isinstance(error, ValueError):
        return str(error), USERS
    if isinstance(error, MemoryError) or "not enough memory" in str(error) or "out of memory" in str(error):
        return "not enough memory; make the batch, the model or the text smaller", USERS
    lines = str(error).strip().splitlines()
    return f"unexpected {type(error).__name__}{': ' if lines else ''}{lines[0] if lines else ''}", OURS


def format_option(name: str) -> str:
    """An argument of a Python function as the option of the command line."""
    return OPTIONS.get(name) or f"--{name.rstrip('_').replace('_', '-')}"


def in_words(error: OSError) -> str:
    """The message of an error of the operating system, with the file that it is about."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    if error.errno in _ABOUT and names:
        return f"{names[-1] if error.errno == errno.EEXIST else names[0]} {_ABOUT[error.errno]}"
    words = _WORDS.get(error.errno or 0)
    if words is None:
        words = error.strerror if error.strerror and error.errno else str(error)
        words = words[:1].lower() + words[1:]
    return f"{words}: {', '.join(names)}" if names else words


def _interrupted(error: BaseException) -> bool:
    """Whether an error was caused by Ctrl-C: libraries that are being imported turn it into other errors."""
    return any(isinstance(each, KeyboardInterrupt) for each in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
