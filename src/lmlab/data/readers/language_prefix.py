"""Texts that are named with their language: `en=wiki.txt`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

LABEL = re.compile(r"([a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?)=(.+)", re.DOTALL)


def by_language(texts: Sequence[str] | None) -> dict[str, list[str]] | None:
    """Texts named `en=wiki.txt` by language; None where no text has a label. A file of that very name is a file."""
    found: dict[str, list[str]] = {}
    plain = []
    for text in texts or []:
        label = LABEL.fullmatch(text) if isinstance(text, str) else None
        if label is None or Path(text).exists():
            plain.append(text)
        else:
            found.setdefault(label[1], []).append(label[2])
    if found and plain:
        raise ValueError(
            f"{plain[0]} has no language, but {', '.join(found)} are named; label all texts, as in en={plain[0]}"
        )
    return found or None
