"""The wording of messages: the nearest valid name for an unknown one, articles, text that is safe to print."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


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
