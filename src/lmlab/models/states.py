"""What a model remembers of what it has read: nests of batch-first tensors, and how their rows are taken and joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from lmlab.models.abilities import State


class Decoding(NamedTuple):
    """The state of an encoder-decoder: what it knows of B sources, and K texts in the writing for each."""

    encoded: Any  # a nest of tensors [B, ...], read only: all beams of one source share a row
    decoder: Any  # a nest of tensors [B * K, ...], K rows after each other for each source


def is_tensor(nest: State) -> bool:
    """Whether this part of a nest is a tensor."""
    return isinstance(nest, Tensor)


def map_state(
    function: Callable[..., Any], state: State, *others: State, is_leaf: Callable[[State], bool] = is_tensor
) -> State:
    """The same nest of dictionaries, tuples and lists with `function` applied to each leaf: by default each tensor.

    With `others`, nests of the same form, it gets the leaves at the same place of all. What is neither a nest nor a
    leaf stays as it is.
    """
    if is_leaf(state):
        return function(state, *others)
    if isinstance(state, dict):
        parts = zip(state.values(), *([other[key] for key in state] for other in others), strict=True)
        return {key: map_state(function, *each, is_leaf=is_leaf) for key, each in zip(state, parts, strict=True)}
    if isinstance(state, (tuple, list)):
        mapped = [map_state(function, *each, is_leaf=is_leaf) for each in zip(state, *others, strict=True)]
        return type(state)(*mapped) if hasattr(state, "_fields") else type(state)(mapped)
    return state


def detach_state(state: State) -> State:
    """The state with its history cut, so that gradients stop here."""
    return map_state(Tensor.detach, state)


def reset_rows(state: State, *, probability: float) -> State:
    """The state with some of its rows, each with this probability, back at the start: zeros.

    Carried states alone would show a model the start of a text once in an epoch, yet all that it is later asked to
    score or continue begins there.
    """
    kept: list[Tensor] = []

    def cut(tensor: Tensor) -> Tensor:
        if not kept:
            kept.append(torch.rand(len(tensor), 1, device=tensor.device) >= probability)
        return tensor * kept[0]

    return map_state(cut, state)


def reorder_state(state: State, index: Tensor) -> State:
    """The state whose row i is the given state's row index[i]: how beams change places."""
    if isinstance(state, Decoding):
        beams = rows_of(state.decoder) // rows_of(state.encoded)
        return Decoding(reorder_state(state.encoded, index // beams), reorder_state(state.decoder, index))
    if isinstance(state, JoinableState):
        return state.select(index)
    return map_state(lambda tensor: tensor.index_select(0, index), state)


@runtime_checkable
class JoinableState(Protocol):
    """A state whose rows are not simply the rows of its tensors."""

    def select(self, index: Tensor) -> Any: ...

    def join(self, others: Sequence[Any]) -> Any: ...


@runtime_checkable
class BatchInvariantState(JoinableState, Protocol):
    """A state that can be made batch-invariant."""

    def make_batch_invariant(self) -> Any: ...


def join_states(states: Sequence[State]) -> State:
    """One state with the rows of several states of one model; each row continues as it would alone."""
    if len(states) == 1:
        return states[0]
    return map_state(_join, *states, is_leaf=lambda state: isinstance(state, (Tensor, Decoding, JoinableState)))


def _join(first: State, *others: State) -> State:
    if isinstance(first, Decoding):
        raise ValueError("states of an encoder–decoder cannot be joined; encode and decode their sources in one batch")
    return first.join(others) if isinstance(first, JoinableState) else torch.cat([first, *others])


def make_batch_invariant(state: State) -> State:
    """Return the state in a form in which the results of a row are the same bits, whatever the other rows are.

    It costs some work. Rows must be two or more, since one row alone is computed by
    other kernels, and what the model multiplies with must be prepared (`layers/kernels/linear.py`). A state that can be
    joined but not made batch-invariant is unchanged: its rows continue as they would alone, except for rounding.
    """
    return map_state(
        lambda part: part.make_batch_invariant() if isinstance(part, BatchInvariantState) else part,
        state,
        is_leaf=lambda part: isinstance(part, JoinableState),
    )


def rows_of(state: State) -> int:
    """How many texts a nest of batch-first tensors holds; 0 where it has no tensor."""
    rows = [0]

    def look(tensor: Tensor) -> Tensor:
        rows[0] = rows[0] or len(tensor)
        return tensor

    map_state(look, state)
    return rows[0]
