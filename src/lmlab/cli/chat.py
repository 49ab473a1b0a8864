"""lmlab generate --chat: answers of a chat model, to one message or in a conversation on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmlab.decoding.chat_writer import ChatWriter

HELP = "Write a message and press Enter. /new begins a new conversation; /exit or Ctrl-D ends."
"""What is shown before the first message."""


def begin_conversation(system: str | None) -> list[dict[str, str]]:
    """The messages with which a conversation begins: that of the system, or none."""
    return [] if system is None else [{"role": "system", "content": system}]


def converse(
    chat: ChatWriter,
    *,
    system: str | None,
    read: Callable[[], str],
    show: Callable[[str], None],
    **options: Any,
) -> None:
    """Answer messages until there are no more; `read` gives the next one, `show` is given the pieces of an answer.

    Ctrl-C ends an answer early, and what was written of it stays in the conversation. An answer that cannot be given is
    told, and its message is left out.
    """
    messages = begin_conversation(system)
    while (text := _next(read)) is not None:
        if text == "/new":
            messages = begin_conversation(system)
            show("(new conversation)\n")
            continue
        if not text:
            continue
        asked = [*messages, {"role": "user", "content": text}]
        try:
            answer = _show_answer(chat.stream(asked, **options), show)
        except ValueError as error:
            show(f"error: {error}\n")
            continue
        messages = [*asked, {"role": "assistant", "content": answer}]


def _next(read: Callable[[], str]) -> str | None:
    """The next message; None where there is none."""
    try:
        text = read().strip()
    except (EOFError, KeyboardInterrupt):
        return None
    return None if text == "/exit" else text


def _show_answer(pieces: Iterator[list[str]], show: Callable[[str], None]) -> str:
    answer = ""
    try:
        for (piece,) in pieces:
            show(piece)
            answer += piece
    except KeyboardInterrupt:
        pass
    show("\n")
    return answer


def read_line() -> str:
    """A message from the terminal."""
    print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
