"""Frame the rows of a whole batch at once; `Frame.rows` does the same for one item after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.tokenizers.frames import Frame, TemplateToken

Integers = NDArray[np.int64]


class FlatTexts(NamedTuple):
    """One part of each item: pieces of a flat array."""

    tokens: NDArray[Any]  # [N]
    starts: Integers  # [B]
    lengths: Integers  # [B]


class FramedRows(NamedTuple):
    """Rows of a batch, padded at their ends."""

    tokens: Integers  # [B, T]
    lengths: Integers  # [B]
    segments: Integers | None  # [B, T], 0 at padding; None where all would be 0
    begins: list[tuple[TemplateToken, Integers]]  # the position of each slot of the template in its row [B]

    def position_of(self, special: str) -> Integers:
        """Return the position of a special token in each row [B], the first of its name."""
        for slot, begin in self.begins:
            if slot.name == special:
                return begin
        raise ValueError(f"there is no {special} in the rows: the frame's template has none")

    def begin_of(self, part: str) -> Integers:
        """Return where a part begins in each row [B], with its special tokens."""
        return next(begin for slot, begin in self.begins if slot.owner == part)


def frame_rows(
    frame: Frame, name: str, parts: Mapping[str, FlatTexts], *, pad: int = 0, width: int | None = None
) -> FramedRows:
    """Return the rows of an input [B, T], where T is `width`, or the length of the longest row."""
    layout = frame.layout(name, "".join(parts))
    count = len(next(iter(parts.values())).lengths)
    sizes = [parts[slot.name].lengths if slot.is_part else np.ones(count, np.int64) for slot, _ in layout]
    ends = np.cumsum(sizes, axis=0)
    lengths = ends[-1]
    positions = np.arange(int(lengths.max()) if width is None else width)
    tokens = np.full((count, len(positions)), pad, np.int64)
    segments = np.zeros_like(tokens) if any(slot.segment for slot, _ in layout) else None
    begins = []
    for (slot, piece), end, size in zip(layout, ends, sizes, strict=True):
        begin = end - size
        begins.append((slot, begin))
        if not slot.is_part:
            tokens[np.arange(count), begin] = piece
            if segments is not None and slot.segment:
                segments[np.arange(count), begin] = slot.segment
            continue
        inside = (positions >= begin[:, None]) & (positions < end[:, None])
        source = parts[slot.name]
        steps = (end[:, None] - 1 - positions) if name in frame.backwards else positions - begin[:, None]
        tokens[inside] = source.tokens[(source.starts[:, None] + steps)[inside]]
        if segments is not None and slot.segment:
            segments[inside] = slot.segment
    return FramedRows(tokens, lengths, segments, begins)
