"""Long texts, read by a stateful model segment by segment, as in pre-training."""

from __future__ import annotations

import torch
from torch import Tensor

from lmlab.models.abilities import State
from lmlab.models.model import Model
from lmlab.models.states import detach_state

LEARNT = 20
"""Gradients flow in the last segments, this many: more would need more memory."""


def read_in_segments(model: Model, tokens: Tensor, *, segment: int) -> Tensor:
    """tokens [B, T] -> the vectors of the last layer [B, T, D], as if they were read at once.

    Gradients reach each segment from its own vectors, not from those of later ones (Howard & Ruder 2018, section 3.3:
    "BPTT for text classification"); the first of very long texts are read without any.
    """
    parts = torch.split(tokens, segment, dim=1)
    found: list[Tensor] = []
    state: State = None
    for left, part in zip(range(len(parts), 0, -1), parts, strict=True):
        with torch.set_grad_enabled(torch.is_grad_enabled() and left <= LEARNT):
            hidden, state = model(part, state=state)
        found.append(hidden)
        state = detach_state(state)
    return torch.cat(found, dim=1)
