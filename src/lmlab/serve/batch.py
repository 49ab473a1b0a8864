"""Texts that are continued together and join and leave at every step, each to the same bits as without the others.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lmlab.models.abilities import PredictsNext, State
from lmlab.models.states import join_states, make_batch_invariant, reorder_state

FEWEST = 2
"""Rows, at least, of a step: one row alone is computed by other kernels, with other last bits."""


class Company:
    """The joined state of B texts. Where there are fewer rows than `fewest`, shadows of the first fill them up."""

    def __init__(self, model: PredictsNext, *, fewest: int = FEWEST) -> None:
        self.model, self.fewest = model, fewest
        self.size = 0
        self._state: State = None
        self._rows = 0  # with the shadows

    def leave(self, rows: Sequence[int]) -> list[int]:
        """Let some texts leave; the last ones take their places. Gives the old row of each that stays."""
        gone = set(rows)
        staying = [row for row in range(self.size) if row not in gone]
        index = staying[:]
        if gone:
            count = len(staying)
            movable = iter(row for row in range(count, self.size) if row not in gone)
            index = [row if row not in gone else next(movable) for row in range(count)]
        self._take(index)
        return index

    def join(self, states: Sequence[State]) -> None:
        """Let texts join, after all that are there; each state has one row and is used up."""
        if not states:
            return
        self._take(list(range(self.size)))
        own = [self._state] if self.size else []
        self._state = join_states([*own, *(make_batch_invariant(state) for state in states)])
        self.size += len(states)
        self._rows = self.size

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Read the next token of each text; give the scores [B, V] of the one after it."""
        shadows = max(0, self.fewest - self.size)
        if self.size + shadows != self._rows:
            self._take(list(range(self.size)))
            first = [reorder_state(self._state, torch.tensor([0], device=self.model.device)) for _ in range(shadows)]
            self._state = join_states([self._state, *map(make_batch_invariant, first)])
            self._rows = self.size + shadows
        ids = torch.tensor([[token] for token in [*tokens, *[tokens[0]] * shadows]], device=self.model.device)
        logits, self._state = self.model.step(ids, self._state)
        return logits[: self.size]

    def _take(self, index: list[int]) -> None:
        """Keep these rows, in this order, and no shadows."""
        if not index:
            self._state = None
        elif index != list(range(self._rows)):
            self._state = reorder_state(self._state, torch.tensor(index, device=self.model.device))
        self.size = self._rows = len(index)


@torch.inference_mode()
def fewest_rows(model: PredictsNext, *, most: int) -> int:
    """How many rows a step must have, at least, so that a row's bits do not depend on how many others there are.

    It is tried: prepared products (layers/kernels/linear.py) and the LSTM's kernel need two rows. Others are computed
    in another way for few rows than for many (MKL's, of a GRU), and always get all the rows that there may be.
    """
    probes = [_probe(model, length) for length in (3, 9)]
    first = None
    for size in sorted({FEWEST, min(3, most), min(5, most), min(9, most), most}):
        company = Company(model)
        company.join([_copy(model, probes[number % 2]) for number in range(size)])
        tokens = [(7 * number + 1) % model.vocabulary if number else 0 for number in range(size)]
        scores = torch.stack([company.step(tokens)[0] for _ in range(2)])
        if first is not None and not torch.equal(first, scores):
            return most
        first = scores
    return FEWEST


def room_in_use(model: PredictsNext | None, lengths: Sequence[int], *, rows: int) -> float:
    """How much of the room for states is in use, from 0 to 1, by texts of which so many tokens were read.

    Of a model with a window they are tokens, of rows times window. Where there is none, states do not grow: of rows.
    """
    window = None if model is None else model.window
    used = len(lengths) if window is None else sum(min(length, window) for length in lengths) / window
    return used / rows


def _probe(model: PredictsNext, length: int) -> State:
    tokens = torch.arange(length, device=model.device)[None] % model.vocabulary
    return model.step(tokens, model.start(1))[1]


def _copy(model: PredictsNext, state: State) -> State:
    return reorder_state(state, torch.tensor([0], device=model.device))
