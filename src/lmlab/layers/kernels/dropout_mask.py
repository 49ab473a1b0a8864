"""The mask of dropout, drawn quickly on a CPU: the fast twin of `F.dropout(ones, p)`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LANES = 65536
"""A 16-bit lane of a random 64-bit number decides over one element, so p is rounded to a multiple of 1 / LANES."""


def dropout_mask(shape: tuple[int, ...], p: float, *, like: Tensor) -> Tensor:
    """A mask of zeros and 1 / (1 − p) on the device of `like`, from torch's global generator.

    It has the type of `like`; on a CPU at least fp32, because 1 / (1 − p) would be rounded too much in bf16.
    Multiplying by the mask is all that autograd has to know.
    """
    check_probability(p)
    if like.device.type != "cpu":
        return F.dropout(torch.ones(shape, dtype=like.dtype, device=like.device), p)
    kept, scale = drawn_mask(shape, p)
    return kept.to(torch.promote_types(like.dtype, torch.float32)).mul_(scale)


def drawn_mask(shape: tuple[int, ...], p: float) -> tuple[Tensor, float]:
    """Which elements are kept, on a CPU, and 1 / (1 − p).

    torch draws one number per element in one thread, which takes longer than all the rest of a layer; here one 64-bit
    number decides over four elements.
    """
    dropped = min(round(p * LANES), LANES - 1)
    count = torch.Size(shape).numel()
    lanes = _draw((count + 3) // 4).view(torch.int16)[:count]
    return (lanes >= dropped - LANES // 2).view(shape), LANES / (LANES - dropped)


def check_probability(p: float) -> None:
    """A ValueError where dropout cannot be done with this probability."""
    if not 0 <= p < 1:
        raise ValueError(f"dropout p = {p}: give a probability from 0 up to, but not including, 1")


def _draw(count: int) -> Tensor:
    """Random 64-bit numbers."""
    if torch.compiler.is_compiling():  # which would break off at random_
        return torch.randint(-(2**63), 2**63 - 1, (count,))
    return torch.empty(count, dtype=torch.int64).random_(-(2**63), None)
