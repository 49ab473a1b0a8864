"""Texts that grow from one another: the same numbers as from whole texts, whatever splits, ends or is begun anew."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lmlab.layers.attention.beams import BeamAttention, BeamCache
from lmlab.layers.attention.multi_head import CrossAttention, MultiHeadAttention
from lmlab.layers.watching import watching
from lmlab.models.states import reorder_state


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def layers() -> tuple[BeamAttention, MultiHeadAttention]:
    ours, reference = BeamAttention(12, 3), MultiHeadAttention(12, 3)
    reference.load_state_dict(ours.state_dict())
    return ours, reference


def empty(sources: int, each: int) -> BeamCache:
    return BeamCache.empty(sources, each, layers=1, heads=3, head_width=4, like=torch.zeros(1))


@pytest.mark.parametrize("watched", [False, True])
@torch.no_grad()
def test_random_searches_equal_whole_texts(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beams split and end at random, several tokens come at once, sources leave: each text is read as a whole."""
    monkeypatch.setattr("lmlab.layers.attention.beams.FIRST", 5)
    ours, reference = layers()
    names = ["ours.probabilities"] if watched else []
    both = nn.ModuleDict({"ours": ours, "reference": reference})
    sources, each = 4, 1
    cache, texts = empty(sources, each), torch.empty(4, 0, 12)
    for number, new in enumerate([3, 1, 1, 2, 1, 1, 1, 3, 1]):
        x = torch.randn(sources * each, new, 12)
        cache, (slots,) = cache.advance(new, sources=sources)
        texts = torch.cat([texts, x], dim=1)
        with watching(both, "reference.probabilities", *names) as seen:
            z = ours(x, slots)
            torch.testing.assert_close(z, reference(texts)[:, -new:], atol=1e-5, rtol=1e-5)
        if watched:
            expected = seen["reference.probabilities"][0][:, :, -new:]
            torch.testing.assert_close(seen["ours.probabilities"][0], expected, atol=1e-6, rtol=1e-5)
        stay = torch.arange(sources) if number != 4 else torch.tensor([0, 3])
        parent = torch.randint(each, (len(stay), 3))
        index = (stay[:, None] * each + parent).flatten()
        cache, texts, sources, each = reorder_state(cache, index), texts[index], len(stay), 3
    assert cache.length == texts.shape[1] == 14


@torch.no_grad()
def test_two_continuations_of_one_state_do_not_meet() -> None:
    ours, reference = layers()
    x = torch.randn(2, 4, 12)
    cache, (slots,) = empty(2, 1).advance(4, sources=2)
    ours(x, slots)
    one, two = (reorder_state(cache, torch.arange(2)) for _ in range(2))
    tokens = [torch.randn(2, 1, 12) for _ in range(2)]
    results = []
    for state, token in ((one, tokens[0]), (two, tokens[1])):
        state, (slots,) = state.advance(1, sources=2)
        ours(token, slots)
        results.append(state)
    last = torch.randn(2, 1, 12)
    for state, token in zip(results, tokens, strict=True):
        _, (slots,) = state.advance(1, sources=2)
        expected = reference(torch.cat([x, token, last], dim=1))[:, -1:]
        torch.testing.assert_close(ours(last, slots), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rows_that_change_places_take_their_past_along() -> None:
    ours, reference = layers()
    x, y = torch.randn(3, 4, 12), torch.randn(3, 1, 12)
    cache, (slots,) = empty(3, 1).advance(4, sources=3)
    ours(x, slots)
    order = torch.tensor([1, 0, 1])
    _, (slots,) = reorder_state(cache, order).advance(1, sources=3)
    expected = reference(torch.cat([x[order], y], dim=1))[:, -1:]
    torch.testing.assert_close(ours(y, slots), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("each", "length", "learning"), [(1, 5, True), (1, 1, False), (4, 1, False), (3, 7, False)])
def test_cross_attention_agrees_with_torch(each: int, length: int, learning: bool) -> None:
    """With padding, with several texts to a source, watched or not."""
    ours, theirs = CrossAttention(12, 3), torch.nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.in_proj_weight.data.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
    theirs.in_proj_bias.data.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
    theirs.out_proj.load_state_dict(ours.projection.state_dict())
    x, y, lengths = torch.randn(2, 6, 12), torch.randn(2 * each, length, 12), torch.tensor([6, 2])
    mask = torch.arange(6) < lengths[:, None]
    with torch.set_grad_enabled(learning):
        z = ours(y, ours.remember(x), mask[:, None, None])
        rows = x.repeat_interleave(each, 0)
        padding = ~mask.repeat_interleave(each, 0)
        expected, weights = theirs(y, rows, rows, key_padding_mask=padding, average_attn_weights=False)
        torch.testing.assert_close(z, expected, atol=1e-5, rtol=1e-5)
        with watching(ours, "probabilities") as seen:
            z = ours(y, ours.remember(x), mask[:, None, None])
        torch.testing.assert_close(z, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(seen["probabilities"][0], weights, atol=1e-6, rtol=1e-5)
