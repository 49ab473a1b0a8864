"""The wording of messages: nearest valid names, checks of arguments, articles, text that is safe to print."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints


class ArgumentError(ValueError):
    """A wrong value of an argument, whose name the command line shows as an option."""

    def __init__(self, name: str, value: object, problem: str) -> None:
        super().__init__(f"{name} = {value}: {problem}")
        self.name, self.value, self.problem = name, value, problem


class TooLongError(ValueError):
    """A text is longer than the model reads, or than the user allows."""

    def __init__(self, what: str, number: int, *, tokens: int, most: int, remedy: str) -> None:
        self.number, self.tokens, self.most = number, tokens, most
        super().__init__(f"{what} {number} has {tokens:,} tokens, and the model reads at most {most:,}: {remedy}")


def with_article(name: str) -> str:
    """Return a name with its article, as it is pronounced: an elmo, an lstm, a llama."""
    spelled = name[:1].lower() in "fhlmnrsx" and name[1:2].lower() not in (*"aeiouy", name[:1].lower())
    return f"{'an' if spelled or name[:1].lower() in (*'aeio',) else 'a'} {name}"


def suggest_near(given: str, allowed: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest valid one, if one is near."""
    near = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def suggest(given: str, allowed: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest valid one, and all of them."""
    names = list(allowed)
    return f"{suggest_near(given, names)} (allowed: {', '.join(names)})"


def printable(text: str) -> str:
    """Return a text that is safe to print: control characters, such as ESC, are escaped; newlines and tabs stay."""
    return re.sub(
        r"[^\n\t\x20-\x7e\xa0-\U0010ffff]|[\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]", _escape, text
    )


def _escape(sign: re.Match[str]) -> str:
    return sign[0].encode("unicode_escape").decode("ascii")


P = ParamSpec("P")
R = TypeVar("R")


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose TypeErrors about its arguments name them: the nearest keyword, or those that it needs."""
    parameters = inspect.signature(function).parameters.values()
    positional = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    most = len(positional) if all(each.kind is not each.VAR_POSITIONAL for each in parameters) else sys.maxsize
    needed = [each.name for each in positional if each.default is each.empty]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if unknown := [name for name in kwargs if name not in _keywords(function)]:
            raise TypeError(
                f"{function.__name__}() has no argument {unknown[0]!r}{suggest(unknown[0], _keywords(function))}"
            )
        if len(args) > most:
            named = [name for name in _keywords(function) if name not in {each.name for each in positional}]
            raise TypeError(
                f"{function.__name__}(… {_short(args[most])}): give this by name: {', '.join(f'{n}=' for n in named)}"
            )
        if missing := [name for name in needed[len(args) :] if name not in kwargs]:
            raise TypeError(f"{function.__name__}() needs {', '.join(missing)}")
        return function(*args, **kwargs)

    return checked


@functools.cache
def _keywords(function: Callable[..., object]) -> list[str]:
    """The keyword arguments of a function, those of `**options: Unpack[Record]` included."""
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            record = get_args(get_type_hints(function)[name])
            names += [*record[0].__annotations__] if record else []
        elif name != "self" and parameter.kind is not parameter.VAR_POSITIONAL:
            names.append(name)
    return names


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


def check_paths(name: str, value: Any) -> list[str | Path]:
    """One path, or several, as a list; a TypeError names the argument where it is something else."""
    if isinstance(value, (str, Path)):
        return [value]
    if isinstance(value, (bytes, bytearray, dict)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} = {_short(value)}: give a path (str or Path) or a list of paths, not {_kind(value)}")
    given = list(value)
    for number, each in enumerate(given):
        if not isinstance(each, (str, Path)):
            raise TypeError(f"{name}[{number}] = {_short(each)}: give a path (str or Path), not {_kind(each)}")
    return given


def check_path(name: str, value: Any) -> str | Path:
    """The path; a TypeError names the argument where it is something else."""
    if not isinstance(value, (str, Path)):
        raise TypeError(f"{name} = {_short(value)}: give a path (str or Path), not {_kind(value)}")
    return value


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
