"""Bits per byte: the one measure that does not depend on the tokenizer."""

from __future__ import annotations

import math


def bits_per_byte(nats: float, bytes_: float) -> float:
    """nats / (ln 2 · bytes of UTF-8): of a whole text, or of a token that stands for so many bytes on average."""
    return nats / math.log(2) / bytes_
