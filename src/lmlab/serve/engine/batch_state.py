"""The state of the model for a batch, to which rows are added and from which they are removed between two steps.

Each row has the same bits as it has without the others. Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lmlab.models.abilities import PredictsNext, State
from lmlab.models.states import join_states, make_batch_invariant, reorder_state

FEWEST = 2
"""Minimum number of rows of a step: a single row is computed by other kernels, with other last bits."""


class BatchState:
    """The joined states of B sequences, padded with copies of the first row to at least `fewest` rows."""

    def __init__(self, model: PredictsNext, *, fewest: int = FEWEST) -> None:
        self.model, self.fewest = model, fewest
        self.size = 0
        self._state: State = None
        self._rows = 0  # with the padding

    def leave(self, rows: Sequence[int]) -> list[int]:
        """Remove rows; the last ones take their places. Returns the old row of each remaining one."""
        gone = set(rows)
        count = self.size - len(gone)
        movable = iter(row for row in range(count, self.size) if row not in gone)
        index = [row if row not in gone else next(movable) for row in range(count)]
        self._select(index)
        return index

    def join(self, states: Sequence[State]) -> None:
        """Append states of one row each; they must not be used afterwards."""
        if not states:
            return
        self._select(list(range(self.size)))
        own = [self._state] if self.size else []
        self._state = join_states([*own, *(make_batch_invariant(state) for state in states)])
        self.size += len(states)
        self._rows = self.size

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Read the next token of each row; return the logits [B, V] of the one after it."""
        padding = max(0, self.fewest - self.size)
        if self.size + padding != self._rows:
            self._select(list(range(self.size)))
            copies = [reorder_state(self._state, torch.tensor([0], device=self.model.device)) for _ in range(padding)]
            self._state = join_states([self._state, *map(make_batch_invariant, copies)])
            self._rows = self.size + padding
        ids = torch.tensor([[token] for token in [*tokens, *[tokens[0]] * padding]], device=self.model.device)
        logits, self._state = self.model.step(ids, self._state)
        return logits[: self.size]

    def _select(self, index: list[int]) -> None:
        """Keep these rows, in this order, and no padding."""
        if not index:
            self._state = None
        elif index != list(range(self._rows)):
            self._state = reorder_state(self._state, torch.tensor(index, device=self.model.device))
        self.size = self._rows = len(index)


@torch.inference_mode()
def fewest_rows(model: PredictsNext, *, most: int) -> int:
    """The minimum number of rows of a step for which the bits of a row do not depend on the number of others.

    It is found by trying: prepared products (layers/kernels/linear.py) and the LSTM's kernel need two rows. Other
    kernels compute few rows in another way than many (MKL's for a GRU); they always get `most` rows.
    """
    probes = [_probe(model, length) for length in (3, 9)]
    first = None
    for size in sorted({FEWEST, min(3, most), min(5, most), min(9, most), most}):
        batch = BatchState(model)
        batch.join([_copy(model, probes[number % 2]) for number in range(size)])
        tokens = [(7 * number + 1) % model.vocabulary if number else 0 for number in range(size)]
        logits = torch.stack([batch.step(tokens)[0] for _ in range(2)])
        if first is not None and not torch.equal(first, logits):
            return most
        first = logits
    return FEWEST


def state_usage(model: PredictsNext | None, lengths: Sequence[int], *, rows: int) -> float:
    """The fraction of the room for states in use, from 0 to 1, by sequences of these lengths.

    For a model with a window it is tokens / (rows x window). States without a window do not grow: used rows / rows.
    """
    window = None if model is None else model.window
    used = len(lengths) if window is None else sum(min(length, window) for length in lengths) / window
    return used / rows


def _probe(model: PredictsNext, length: int) -> State:
    tokens = torch.arange(length, device=model.device)[None] % model.vocabulary
    return model.step(tokens, model.start(1))[1]


def _copy(model: PredictsNext, state: State) -> State:
    return reorder_state(state, torch.tensor([0], device=model.device))
