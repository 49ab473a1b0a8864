"""Attention: the lecture's numbers, masks, the fused and the visible path, and the layers beside it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import MultiHeadAttention, SelfAttention, attend, attention_weights
from lmlab.layers.cache import KeyValueCache
from lmlab.layers.kernels import tiled_attention
from lmlab.layers.kernels.gelu import gelu_tanh
from lmlab.layers.kernels.linear import Linear, linear
from lmlab.layers.kernels.tiled_attention import attend_in_tiles, tiles_are_faster
from lmlab.layers.watching import watching


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(2)


def slow_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """One query at a time, as the equations say it."""
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = torch.zeros_like(q)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                last = keys - queries + i + 1 if causal else keys
                scores = [math.fsum((q[b, h, i] * k[b, h, j]).tolist()) / math.sqrt(width) for j in range(last)]
                top = max(scores)
                exponentials = [math.exp(score - top) for score in scores]
                for j, e in enumerate(exponentials):
                    out[b, h, i] += e / math.fsum(exponentials) * v[b, h, j]
    return out


def test_the_worked_example() -> None:
    q = torch.ones(1, 64)
    k = torch.stack((torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)))
    assert (q @ k.mT).tolist() == [[112, 96]]
    assert attention_weights(q, k)[0].tolist() == pytest.approx([0.88, 0.12], abs=0.005)
    assert attention_weights(q, k)[0, 0].item() == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 6), (3, 7)])
def test_fused_and_watched_agree_with_the_equation(causal: bool, queries: int, keys: int) -> None:
    q, k, v = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4), torch.randn(2, 3, keys, 4)
    expected = slow_attention(q, k, v, causal=causal)
    torch.testing.assert_close(attend(q, k, v, causal=causal), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(attend(q, k, v, causal=causal, watch=nn.Identity()), expected, atol=1e-5, rtol=1e-5)


def test_weights_are_distributions_over_the_past() -> None:
    weights = attention_weights(torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 8), causal=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 6))
    assert weights.triu(1).abs().max() == 0
    assert weights.tril().min() >= 0


def test_weights_are_seen_only_while_watched() -> None:
    layer = SelfAttention(12, 3).eval()
    x = torch.randn(2, 7, 12)
    quiet = layer(x)
    with watching(layer, "probabilities") as seen:
        torch.testing.assert_close(layer(x), quiet, atol=1e-5, rtol=1e-5)
    layer(x)
    (weights,) = seen["probabilities"]
    assert weights.shape == (2, 3, 7, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 7))


def test_watching_through_a_cache() -> None:
    layer = MultiHeadAttention(12, 3).eval()
    x = torch.randn(2, 7, 12)
    with torch.no_grad():
        expected = layer(x)
        cache = KeyValueCache.empty(2, layers=1, heads=3, head_width=4, window=9, like=x)
        parts = []
        with watching(layer, "probabilities") as seen:
            for piece in (x[:, :4], x[:, 4:5], x[:, 5:]):
                cache, (layer_cache,) = cache.advance(piece.shape[1], window=9)
                parts.append(layer(piece, layer_cache))
        assert [weights.shape[2:] for weights in seen["probabilities"]] == [(4, 4), (1, 5), (2, 7)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 5, 16, 19])
def test_attention_in_tiles_with_dropout(length: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mask known, autograd over the equation gives the same values and gradients."""
    monkeypatch.setattr(tiled_attention, "ROWS", 8)
    monkeypatch.setattr(tiled_attention, "TILE", 4 * length**2)  # of the six heads, the last two alone
    masks: list[Tensor] = []

    def remember(shape: tuple[int, ...], p: float) -> tuple[Tensor, float]:
        masks.append(torch.rand(shape) > p)
        return masks[-1], 1 / (1 - p)

    monkeypatch.setattr(tiled_attention, "drawn_mask", remember)
    q, k, v = (torch.randn(2, 3, length, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    upstream = torch.randn(2, 3, length, 4, dtype=torch.float64)
    z = attend_in_tiles(q, k, v, dropout=0.4, causal=causal)
    found = torch.autograd.grad(z, (q, k, v), upstream)
    tiles = [F.pad(part, (0, length - part.shape[2])) for part in masks]
    assert len(tiles) == (math.ceil(length / 8) if causal else 2)
    mask = torch.cat(tiles, 1 if causal else 0).view(2, 3, length, length)
    expected = (attention_weights(q, k, causal=causal) * mask / 0.6) @ v
    torch.testing.assert_close(z, expected)
    for ours, theirs in zip(found, torch.autograd.grad(expected, (q, k, v), upstream), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 5, 16, 19])
def test_attention_in_tiles_without_dropout(length: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients are those of the readable form, in fp64 and, roughly, in bf16."""
    monkeypatch.setattr(tiled_attention, "ROWS", 8)
    monkeypatch.setattr(tiled_attention, "TILE", 4 * length**2)
    q, k, v = (torch.randn(2, 3, length, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    upstream = torch.randn(2, 3, length, 4, dtype=torch.float64)
    expected = attention_weights(q, k, causal=causal) @ v
    gradients = torch.autograd.grad(expected, (q, k, v), upstream)
    for dtype, atol in ((torch.float64, 1e-9), (torch.bfloat16, 0.06)):
        narrow = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
        z = attend_in_tiles(narrow[0], narrow[1], narrow[2], causal=causal)
        assert z.dtype == dtype
        torch.testing.assert_close(z.double(), expected, atol=atol, rtol=1e-9)
        for ours, theirs in zip(torch.autograd.grad(z, narrow, upstream.to(dtype)), gradients, strict=True):
            torch.testing.assert_close(ours.double(), theirs, atol=atol, rtol=1e-9)


def test_too_many_weights_are_left_to_the_kernel_that_keeps_none() -> None:
    few = torch.empty(1, 2, 512, 8, device="meta", dtype=torch.bfloat16)
    assert tiles_are_faster(few, causal=False)
    assert not tiles_are_faster(few.expand(2**20, -1, -1, -1), causal=False)
    assert not tiles_are_faster(few.float(), causal=False)


def test_dropout_acts_on_the_weights_in_training_only() -> None:
    layer = SelfAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert (layer(x) - layer(x)).abs().max() > 1e-3
    layer.eval()
    torch.testing.assert_close(layer(x), layer(x), atol=0, rtol=0)
    v = torch.ones(64, 2, 40, 4)
    mean = attend(torch.randn_like(v), torch.randn_like(v), v, causal=True, dropout=0.3).mean()
    assert mean.item() == pytest.approx(1, abs=0.02)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="5 heads do not divide the width 12"):
        SelfAttention(12, 5)


@pytest.mark.parametrize("rows", [(1,), (1, 1), (2, 1), (3, 5), (40,)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 24), (1024, 1040)])
def test_linear_is_the_same_in_every_order(rows: tuple[int, ...], bias: bool, inputs: int, outputs: int) -> None:
    layer = Linear(inputs, outputs, bias=bias)
    x = torch.randn(*rows, inputs)
    expected = F.linear(x, layer.weight, layer.bias)
    with torch.no_grad():
        found = layer(x)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(linear(x, layer.weight, layer.bias), expected)


def test_gelu_and_its_slope() -> None:
    x = torch.cat((torch.linspace(-12, 12, 70_001), torch.tensor([0.0, -50.0, 50.0]))).requires_grad_()
    upstream = torch.randn(len(x))
    y = gelu_tanh(x)
    expected = F.gelu(x.double(), approximate="tanh")
    torch.testing.assert_close(y.double(), expected, atol=1e-6, rtol=1e-5)
    (slope,) = torch.autograd.grad(y, x, upstream)
    (theirs,) = torch.autograd.grad(expected, x, upstream.double())
    torch.testing.assert_close(slope, theirs, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(gelu_tanh(x.detach()).double(), expected, atol=1e-6, rtol=1e-5)
    sample = torch.tensor([-1.0, 0.5, 2.0])
    by_hand = [z / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))) for z in sample.tolist()]
    assert gelu_tanh(sample.requires_grad_()).tolist() == pytest.approx(by_hand, abs=1e-6)


def test_gelu_of_a_transposed_tensor() -> None:
    x = torch.randn(6, 4).t().requires_grad_()
    gelu_tanh(x).sum().backward()
    y = x.detach().requires_grad_()
    F.gelu(y, approximate="tanh").sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=1e-6, rtol=1e-5)
