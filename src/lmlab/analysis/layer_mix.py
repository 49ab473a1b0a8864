"""The layers of a model as vectors, whatever its family.

Layer 0 is what enters the first block (the embeddings, with positions), layers 1 to L are what leaves each block, and
layer L is what the model predicts from: in GPT-2 it is after the last norm.
Shapes: B texts, T tokens, D width, L layers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lmlab.layers.selection import Selection
from lmlab.models.abilities import PredictsNext, ability
from lmlab.models.model import Model

SEGMENT = 256
"""Tokens that a model without a window reads at once, carrying its state: as in scoring."""


def read_layers(model: Model, tokens: Tensor, lengths: Tensor, selection: Selection) -> Tensor:
    """tokens [B, T], row i of lengths[i] tokens -> the selected mix of layers [B, T, D]; padding holds anything.

    Of ELECTRA the part that is used, of an encoder-decoder the encoder. What predicts the next token and has no window
    reads a long text in segments, carrying its state.
    """
    reader = ability(model, PredictsNext)
    if reader is None or model.window is not None:
        return selection.of(model.layers(**{next(iter(model.FRAME)): tokens}, lengths=lengths))
    parts, state = [], reader.start(len(tokens))
    for segment in torch.split(tokens, SEGMENT, dim=1):
        layers: list[Tensor] = []
        state = model(segment, state=state, collect=layers).state
        parts.append(selection.of(layers))
    return torch.cat(parts, dim=1)
