"""Texts of unequal length: whole, masked and packed give the same; attention sees no padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import BidirectionalAttention, attend
from lmlab.layers.kernels.packing import PackedByLength, PackedTokens
from lmlab.layers.padding import NoPadding, PaddingMask, has_padding


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(4)


def test_packed_by_hand() -> None:
    """Rows 1 and 2 have two tokens each, row 0 has three: the shorter ones come first."""
    tokens = torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 0, 0]])
    texts = PackedByLength(torch.tensor([3, 2, 2]), 4)
    assert texts.pack(tokens).tolist() == [4, 5, 6, 7, 1, 2, 3]
    assert texts.groups == [(2, 2), (1, 3)]
    table = torch.arange(4.0)[:, None] * 10
    assert texts.position_vectors(table)[:, 0].tolist() == [0, 10, 0, 10, 0, 10, 20]
    assert texts.unpack(texts.pack(tokens)[:, None].float())[..., 0].tolist() == tokens.tolist()
    shapes: list[tuple[int, ...]] = []

    def reverse(x: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is None
        shapes.append(tuple(x.shape))
        return x.flip(1)

    turned = texts.each_text(reverse, texts.pack(tokens)[:, None])
    assert turned[:, 0].tolist() == [5, 4, 7, 6, 3, 2, 1]
    assert shapes == [(2, 2, 1), (1, 3, 1)]


def test_masked_by_hand() -> None:
    texts = PaddingMask(torch.tensor([2, 1]), 3)
    assert texts.unpack(torch.full((2, 3, 1), torch.nan).nan_to_num(5))[..., 0].tolist() == [[5, 5, 0], [5, 0, 0]]
    seen: list[Tensor | None] = []
    texts.each_text(lambda x, mask: (seen.append(mask), x)[1], torch.zeros(2, 3, 1))
    assert seen[0] is not None
    assert seen[0][:, 0, 0].tolist() == [[True, True, False], [True, False, False]]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_the_same_whole_masked_and_packed(causal: bool) -> None:
    layer = BidirectionalAttention(12, 3, causal=causal).eval()
    lengths = torch.tensor([5, 1, 9, 5, 2])
    x = torch.randn(5, 9, 12)
    masked, packed = PaddingMask(lengths, 9), PackedByLength(lengths, 9)
    by_mask = masked.unpack(layer(x, masked))
    torch.testing.assert_close(packed.unpack(layer(packed.pack(x), packed)), by_mask, atol=1e-6, rtol=1e-5)
    tokens = PackedTokens(lengths, 9)
    torch.testing.assert_close(tokens.unpack(layer(tokens.pack(x), tokens)), by_mask, atol=1e-6, rtol=1e-5)
    for row, length in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, :length], NoPadding())[0]
        torch.testing.assert_close(by_mask[row, :length], alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [1, 4, 7])
def test_a_masked_key_might_as_well_not_be_there(queries: int, causal: bool, watched: bool) -> None:
    """Attention over seven keys, the first two masked, is attention over the other five."""
    q, k, v = torch.randn(3, 2, queries, 4), torch.randn(3, 2, 7, 4), torch.randn(3, 2, 7, 4)
    mask = torch.arange(7)[None, None, None] >= 2
    watch = nn.Identity() if watched else None
    found = attend(q, k, v, causal=causal, mask=mask, watch=watch)
    rows = min(queries, 5)  # the earliest of seven causal queries see masked keys only
    expected = attend(q[:, :, -rows:], k[:, :, 2:], v[:, :, 2:], causal=causal)
    torch.testing.assert_close(found[:, :, -rows:], expected, atol=1e-6, rtol=1e-5)


def test_lengths_are_checked() -> None:
    assert has_padding(torch.tensor([1, 3]), 2, 3)
    assert not has_padding(torch.tensor([3, 3]), 2, 3)
    with pytest.raises(ValueError, match="give one length for each row"):
        has_padding(torch.tensor([[3]]), 1, 3)
    with pytest.raises(ValueError, match="each must be from 1 to 3"):
        has_padding(torch.tensor([4]), 1, 3)


def test_a_few_queries_are_answered_as_all_are() -> None:
    layer = BidirectionalAttention(12, 3).eval()
    lengths, x = torch.tensor([5, 1, 9, 5, 2]), torch.randn(5, 9, 12)
    at = torch.tensor([[0, 4], [0, 0], [8, 2], [3, 3], [1, 0]])
    every = torch.arange(5)[:, None]
    for texts in (PaddingMask(lengths, 9), PackedByLength(lengths, 9)):
        packed = texts.pack(x)
        chosen = texts.gather_positions(packed, at)
        assert torch.equal(chosen, x[every, at])
        whole = texts.unpack(layer(packed, texts))[every, at]
        torch.testing.assert_close(layer.attend_from(chosen, packed, texts), whole, atol=1e-6, rtol=1e-5)
    whole = layer(x, NoPadding())[every, at]
    torch.testing.assert_close(layer.attend_from(x[every, at], x, NoPadding()), whole, atol=1e-6, rtol=1e-5)


def test_a_compiled_graph_does_not_look_at_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look would break it off; shapes are known to it."""
    assert not has_padding(None, 2, 3)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert has_padding(torch.tensor([3, 3]), 2, 3)
    assert has_padding(torch.empty(2, device="meta"), 2, 3)
    with pytest.raises(ValueError, match="give one length for each row"):
        has_padding(torch.tensor([3]), 2, 3)
