"""From which size on which kernel is the fastest: measured on the machine, with defaults that are safe everywhere."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Thresholds(NamedTuple):
    """Sizes at which one kernel becomes faster than another; they change speed, and results by rounding at most."""

    few: int = 32
    """At most this number of vectors is multiplied as W xᵀ instead of x Wᵀ."""
    few_prepared: int = 64
    """At most this number of vectors is multiplied with prepared weights."""
    large: int = 3 * 2**17
    """Weights from which on a product with a single vector is worth two threads, where nothing is prepared."""
    vector_blocks: int = 2**20
    """Weights from which on a product of a prepared weight with a single vector is worth two threads."""
    int8_packed: int = 2**20
    """Weights from which on products of int8 weights with several vectors are worth packing the weights."""


@cache
def thresholds() -> Thresholds:
    """Those of this machine."""
    return Thresholds()
