"""The spelling of a word as numbers: its bytes between a begin and an end mark, so that no word is unknown."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PAD, BEGIN, END = 0, 1, 2
SYMBOLS = 3 + 256
"""Padding, the two marks, and the bytes of UTF-8."""


def spell(word: str, *, longest: int) -> list[int]:
    """The begin mark, the bytes of a word and the end mark; of a long word the first bytes, `longest` in all."""
    return [BEGIN, *(3 + byte for byte in word.encode()[: longest - 2]), END]


def spell_rows(rows: Sequence[Sequence[str]], *, longest: int) -> Tensor:
    """Rows of words as their spellings [B, T, C], padded to the longest row and the longest word of them."""
    spelled = [[spell(word, longest=longest) for word in row] for row in rows]
    width = max((len(word) for row in spelled for word in row), default=1)
    found = torch.zeros(len(rows), max(map(len, rows), default=1), width, dtype=torch.long)
    for number, row in enumerate(spelled):
        if row:
            padded = [word + [PAD] * (width - len(word)) for word in row]
            found[number, : len(row)] = torch.tensor(padded)
    return found
