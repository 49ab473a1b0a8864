"""Errors in words: what the user reads in place of a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar

from lmlab.messages import printable

debugging: ContextVar[bool] = ContextVar("debugging", default=False)
"""Whether tracebacks are shown (`lmlab --debug`, or LMLAB_DEBUG=1 in the environment)."""
USERS, OURS, INTERRUPTED, UNREAD = 2, 1, 130, 141
"""Exit statuses: what the user can mend, what we must, Ctrl-C, and output that nobody reads any more."""
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
    """Tell the user of an error on standard error, in one line where that will do; give the exit status."""
    if _interrupted(error):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough
        sys.stderr.close()
        return UNREAD
    debug = debugging.get() or os.environ.get("LMLAB_DEBUG", "0") not in ("", "0")
    if debug:
        traceback.print_exception(error)
    told, status = _tell(error)
    if status == OURS:
        told += (
            "; this is a mistake in lmlab: please report it with the traceback above"
            if debug
            else "; run it again as  lmlab --debug …  for the traceback"
        )
    print(f"error: {printable(as_typed(told))}", file=sys.stderr)
    return status


def _tell(error: BaseException) -> tuple[str, int]:
    if isinstance(error, OSError):
        return in_words(error), USERS
    if number := re.search(r"\(os error (\d+)\)", str(error)):  # as Rust says it: safetensors, tokenizers
        return in_words(OSError(int(number[1]), str(error))), USERS
    if isinstance(error, ValueError):
        return str(error), USERS
    if isinstance(error, MemoryError) or "not enough memory" in str(error) or "out of memory" in str(error):
        return "not enough memory; make the batch, the model or the text smaller", USERS
    lines = str(error).strip().splitlines()
    return f"unexpected {type(error).__name__}{': ' if lines else ''}{lines[0] if lines else ''}", OURS


def as_typed(message: str) -> str:
    """A message with the arguments of the Python interface named as the options of the verb that was called."""
    from lmlab.cli.verbs import VERBS, load_command

    verb = next((VERBS[word] for word in sys.argv[1:] if word in VERBS), None)
    if verb is None or not re.search(r"\w = |\w_\w", message):
        return message
    command = load_command(verb)
    for word in sys.argv[1:]:  # of a group, the verb in it
        inner = getattr(command, "verbs", {}).get(word)
        command = command if inner is None else load_command(inner)
    for param in command.params:
        option = next((option for option in param.opts if option.startswith("--")), None)
        if option is not None:
            name = option.removeprefix("--").replace("-", "_")
            message = re.sub(rf"(?<![\w.'\"/-]){name} = (?=[^\s])", f"{option} ", message)
            if "_" in name and name not in sys.argv:
                message = re.sub(rf"(?<![\w.'\"/-]){name}(?![\w./'\"(])", option, message)
    return message


def in_words(error: OSError) -> str:
    """What an error of the operating system means, and which file it is about."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    if error.errno in _ABOUT and names:
        return f"{names[-1] if error.errno == errno.EEXIST else names[0]} {_ABOUT[error.errno]}"
    words = _WORDS.get(error.errno or 0)
    if words is None:
        words = error.strerror if error.strerror and error.errno else str(error)
        words = words[:1].lower() + words[1:]
    return f"{words}: {', '.join(names)}" if names else words


def _interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C is behind an error: libraries turn one that comes while they are imported into others."""
    return any(isinstance(each, KeyboardInterrupt) for each in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
