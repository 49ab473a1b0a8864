"""The layers of a model as vectors, whatever its family.

Layer 0 is what enters the first block (the embeddings, with positions), layers 1 to L are what leaves each block, and
layer L is what the model predicts from: in GPT-2 it is after the last norm.
Shapes: B texts, T tokens, D width, L layers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lmlab.layers.selection import Selection
from lmlab.models import name_of
from lmlab.models.abilities import PredictsNext, State
from lmlab.models.model import Model

SEGMENT = 256
"""Tokens that a model without a window reads at once, carrying its state: as in scoring."""


def read_layers(model: Model, tokens: Tensor, lengths: Tensor, selection: Selection) -> Tensor:
    """tokens [B, T], row i of lengths[i] tokens -> the selected mix of layers [B, T, D]; padding holds anything.

    Of ELECTRA the part that is used, of an encoder-decoder the encoder. What predicts the next token and has no window
    reads a long text in segments, carrying its state.
    """
    if not isinstance(model, PredictsNext) or model.window is not None:  # XLNet, too, reads both ways here
        return selection.of(model.layers(**{model.main_input: tokens}, lengths=lengths))
    parts, state = [], model.start(len(tokens))
    for segment in torch.split(tokens, SEGMENT, dim=1):
        layers: list[Tensor] = []
        state = model(segment, state=state, collect=layers).state
        parts.append(selection.of(layers))
    return torch.cat(parts, dim=1)


def read_on(model: Model, tokens: Tensor, state: State, selection: Selection) -> tuple[Tensor, State]:
    """The same of one text [1, T] that follows on another, after which the state was as given; None at the first."""
    layers: list[Tensor] = []
    state = model(tokens, state=state, collect=layers).state
    return selection.of(layers), state


def check_stateful(model: Model) -> None:
    """A ValueError where a model has no state that could be carried from one text to the next."""
    if not model.stateful or model.window is not None:
        raise ValueError(
            f"{name_of(model)} stateful no state from text to text: leave out --carry-state, or take a recurrent "
            "model (lstm, lm-1b, elmo)"
        )
