"""Checks of arguments, with errors that name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class TooLongError(ValueError):
    """A text is longer than the model reads, or than the user allows."""

    def __init__(self, what: str, number: int, *, tokens: int, most: int, remedy: str) -> None:
        self.number, self.tokens, self.most = number, tokens, most
        super().__init__(f"{what} {number} has {tokens:,} tokens, and the model reads at most {most:,}: {remedy}")


def check_text(name: str, value: Any) -> str:
    """The text; a TypeError names the argument where it is something else."""
    if not isinstance(value, str):
        raise TypeError(f"{name} = {_short(value)}: give a text (str), not {_kind(value)}{_fix(value)}")
    return value


def check_texts(name: str, value: Any) -> list[str]:
    """One text, or several, as a list; a TypeError names the argument, and the one among several that is no text."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, (bytes, bytearray, dict)) or not isinstance(value, Iterable):
        raise TypeError(
            f"{name} = {_short(value)}: give a text (str) or a list of texts, not {_kind(value)}{_fix(value)}"
        )
    return [check_text(f"{name}[{number}]", each) for number, each in enumerate(value)]


def check_whole_number(name: str, value: Any) -> int:
    """The number; a TypeError names the argument where it is something else."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} = {_short(value)}: give a whole number, not {_kind(value)}")
    return int(value)


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:39] + "…"


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _fix(value: Any) -> str:
    return '; bytes become text with .decode("utf-8")' if isinstance(value, (bytes, bytearray)) else ""
