"""Properties of positions in a text that a cell may keep track of: inside quotes, inside brackets, late in the line …

Each says for every character whether it holds *after* that character has been read, which is when a state can know it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lmlab.config import suggest
from lmlab.progress import check_cancelled

Marks = NDArray[np.bool_]
Property = Callable[[str], Marks]

OPENING, CLOSING = "([{", ")]}"
LONGEST = 400
"""Characters after which a quotation or bracket is taken to have been closed, or never opened."""
LATE = 40
"""The character of a line from which on it is late in it."""


def in_quotes(text: str) -> Marks:
    """Between double quotation marks, straight or curly; those left open are closed by an empty line."""
    marks, since = np.zeros(len(text), bool), -1
    for position, letter in enumerate(text):
        if letter == "“" or (letter == '"' and since < 0):
            since = position
        elif letter in '"”' or (letter == "\n" and text[position - 1 : position] == "\n") or position - since > LONGEST:
            since = -1
        marks[position] = since >= 0
    return marks


def in_brackets(text: str) -> Marks:
    """Between round, square or curly brackets; those left open are closed by an empty line."""
    marks, depth, since = np.zeros(len(text), bool), 0, 0
    for position, letter in enumerate(text):
        if letter in OPENING:
            depth, since = depth + 1, position
        elif letter in CLOSING:
            depth = max(0, depth - 1)
        elif (letter == "\n" and text[position - 1 : position] == "\n") or position - since > LONGEST:
            depth = 0
        marks[position] = depth > 0
    return marks


def late_in_line(text: str) -> Marks:
    """At the 40th character of a line or later."""
    marks, column = np.zeros(len(text), bool), 0
    for position, letter in enumerate(text):
        column = 0 if letter == "\n" else column + 1
        marks[position] = column >= LATE
    return marks


def in_capitals(text: str) -> Marks:
    """Within a word of capital letters only, of two or more."""
    return matches(r"\b[A-Z]{2,}\b")(text)


def in_if(text: str) -> Marks:
    """Within the condition of an `if`, `elif` or `while` of a program: up to the colon or the end of the line."""
    return matches(r"(?m)^\s*(?:if|elif|while)\b[^:\n]*")(text)


FIND = """
import json, re, sys
pattern, text = json.load(sys.stdin)
print(json.dumps([found.span() for found in re.finditer(pattern, text)]))
"""
"""What a process of its own runs to look for a pattern, so that it can be ended."""


LOOK_EVERY = 0.1
"""Seconds between two looks whether such a process has ended, or must be."""


def matches(pattern: str, *, within: float | None = None) -> Property:
    """Whether each character is in a match of a regular expression; `within` limits the seconds that it may take."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None

    def find(text: str) -> Marks:
        marks = np.zeros(len(text), bool)
        here = (found.span() for found in expression.finditer(text))
        for start, end in here if within is None else _find(pattern, text, within):
            marks[start:end] = True
        return marks

    return find


def _find(pattern: str, text: str, within: float) -> list[tuple[int, int]]:
    """Where a pattern is found, by a process that is killed when its time is over or the work is cancelled."""
    end = time.monotonic() + within
    given: str | None = json.dumps([pattern, text])
    with subprocess.Popen(
        [sys.executable, "-I", "-c", FIND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(given, timeout=LOOK_EVERY)
                    break
                except subprocess.TimeoutExpired:
                    given = None  # `communicate` has it already
                check_cancelled()
                if time.monotonic() > end:
                    raise ValueError(
                        f"{pattern!r} takes longer than {within:g} seconds: leave out repetitions of repetitions, such "
                        "as (a+)+"
                    )
        finally:
            process.kill()
    if process.returncode:
        raise ValueError(f"{pattern!r} cannot be searched for: try a simpler regular expression")
    return [(start, end) for start, end in json.loads(output)]


PROPERTIES: dict[str, Property] = {
    "quotes": in_quotes,
    "brackets": in_brackets,
    "line": late_in_line,
    "capitals": in_capitals,
    "if": in_if,
}


def find_property(name: str) -> Property:
    """The property of this name; a ValueError names the nearest."""
    if name not in PROPERTIES:
        raise ValueError(f"unknown property {name!r}{suggest(name, PROPERTIES)}")
    return PROPERTIES[name]
