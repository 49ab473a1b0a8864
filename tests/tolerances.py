"""How far two ways of computing the same number may be apart: what follows from the arithmetic, not from one machine.

A floating-point operation is exact but for a relative error of at most the unit roundoff u: 2⁻²⁴ in single precision,
2⁻⁵³ in double. Processors add up the terms of a sum in different orders (by 4, 8 or 16 at a time, in one thread or two,
with or without a fused multiply-add), so that two of them agree in nothing but this: a sum of n products is within n u
of the true one, relative to the sum of the sizes of its terms, at worst, and within about √n u as a rule (Higham 2002,
"Accuracy and Stability of Numerical Algorithms", section 3.1; Higham & Mary 2019, "A new approach to probabilistic
rounding error analysis"). A network is a chain of such sums, and each adds its own error to those it is given; two
evaluations of it err independently, hence twice that.

What is left is the factor by which the layers magnify the errors of their inputs: `growth`, 2 for weights as they are
initialised, where a tenth of the tolerance or less is seen, and 8 for large random ones, whose attention and scores
are steep. Any mistake in a formula makes far more of a number.
"""

from __future__ import annotations

import math

import torch

BLOCK = 6
"""Sums that follow each other in a Transformer's block: into queries and keys, their products, the mean of the values,
out of the heads, and the two of the feed-forward net; a LayerNorm belongs to the sum that it follows."""


def rounding(*, terms: int, depth: int = 1, growth: float = 2.0, dtype: torch.dtype = torch.float32) -> float:
    """The tolerance for a result of `depth` sums after each other of `terms` terms each, relative to their size.

    As `rtol` or `rel` where nothing cancels, and times the size of the terms as `atol` or `abs` where something may.
    """
    unit = torch.finfo(dtype).eps / 2
    return 2 * growth * depth * math.sqrt(terms) * unit


def of_blocks(layers: int, *, width: int, growth: float = 2.0, dtype: torch.dtype = torch.float32) -> float:
    """The same for a Transformer of several blocks of a `width`, its embeddings and its scores."""
    return rounding(terms=width, depth=BLOCK * layers + 2, growth=growth, dtype=dtype)
