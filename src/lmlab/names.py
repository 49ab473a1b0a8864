"""Names that are typed by hand: an unknown one is answered with the nearest valid one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(given: str, allowed: Iterable[str]) -> str:
    """The tail of an error about an unknown name: the nearest valid one, and all of them."""
    names = list(allowed)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint} (allowed: {', '.join(names)})"
