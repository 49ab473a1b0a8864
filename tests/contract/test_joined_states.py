"""Texts that join and leave a batch: each goes on as if it were alone, whatever the others have read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lineage_models import PREDICT_NEXT, make, reader, tokens

from lmlab.models.states import join_states, make_batch_invariant, reorder_state

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in PREDICT_NEXT),
    ("attention-lm", {"positions": "learned"}),
    ("attention-lm", {"positions": "sinusoidal"}),
    ("attention-lm", {"positions": "none"}),
    ("transformer-xl", {"memory": 4}),
    ("transformer-xl", {"memory": 0}),
    ("xlnet", {"memory": 4}),
    ("xlnet", {"memory": 0}),
    ("reformer", {"chunk": 2, "local_chunk": 2}),
    ("reformer", {"chunk": 4, "local_chunk": 2, "attends": "chunk", "hashes": 2}),
    ("lstm", {"connections": "highway", "tied": True}),
    ("nplm", {"direct": True}),
]


def as_it_is(state: Any) -> Any:
    return state


@pytest.mark.parametrize("keep", [as_it_is, make_batch_invariant])
@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=lambda value: str(value))
@torch.no_grad()
def test_texts_join_and_leave(name: str, settings: dict[str, Any], keep: Callable[[Any], Any]) -> None:
    model = reader(name, **settings)
    texts = [tokens(20, seed=seed) for seed in range(4)]
    read, by_themselves = [7, 2, 11, 5], {}

    def begin(row: int) -> Any:
        (by_themselves[row], state) = (model.step(texts[row][None, : read[row]], model.start(1))[1] for _ in range(2))
        return state

    def step(rows: list[int], state: Any, more: int = 1) -> Any:
        piece = torch.stack([texts[row][read[row] : read[row] + more] for row in rows])
        logits, state = model.step(piece, state)
        for row, text, scores in zip(rows, piece, logits, strict=True):
            read[row] += more
            alone, by_themselves[row] = model.step(text[None], by_themselves[row])
            torch.testing.assert_close(scores, alone[0], atol=1e-4, rtol=1e-4)
        return state

    state = join_states([keep(begin(row)) for row in range(3)])
    for more in (1, 1, 2, 1):
        state = step([0, 1, 2], state, more)
    state = reorder_state(state, torch.tensor([0, 1]))
    state = step([0, 1], state)
    state = join_states([state, keep(begin(3))])
    for _ in range(3):
        state = step([0, 1, 3], state)
    state = reorder_state(state, torch.tensor([2, 0]))
    step([3, 0], state)


@torch.no_grad()
def test_equally_long_texts_keep_the_fast_path() -> None:
    for name in ("gpt2", "transformer-xl"):
        model = make(name)
        states = [model.step(tokens(2, 5, seed=seed), model.start(2))[1] for seed in range(2)]
        assert join_states(states).lengths is None
        _, short = model.step(tokens(1, 2), model.start(1))
        uneven = join_states([*states, short])
        assert uneven.lengths.tolist() == [5, 5, 5, 5, 2]


@torch.no_grad()
def test_a_cache_left_by_its_longest_text_has_its_room_again() -> None:
    model = make("gpt2")
    _, long = model.step(tokens(1, 24), model.start(1))
    _, short = model.step(tokens(1, 3), model.start(1))
    both = join_states([long, short])
    with pytest.raises(ValueError, match="do not fit into a window of 24"):
        model.step(tokens(2, 1), both)
    left = reorder_state(both, torch.tensor([1]))
    assert (left.length, left.lengths) == (3, None)
    model.step(tokens(1, 21), left)


def test_states_of_encoder_decoders_are_refused() -> None:
    model = make("transformer")
    states = [model.begin(model.encode(source=tokens(1, 4))) for _ in range(2)]
    with pytest.raises(ValueError, match="cannot be joined"):
        join_states(states)
