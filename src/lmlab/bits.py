"""Bits per byte: the one measure that compares models whatever their tokenizers."""

from __future__ import annotations

import math


def bits_per_byte(nats: float, size: float) -> float:
    """nats / (ln 2 * bytes of UTF-8); comparable between tokenizers that lose nothing.

    `nats` is the surprisal of the text alone: a boundary or separator that is no part of it counts neither above nor
    below the line.
    """
    return nats / math.log(2) / size
