"""LLaMA: a real tiny model writes its golden text; each of the four changes against its equation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.layers.attention.multi_head import GroupedAttention
from lmlab.layers.feedforward import GatedFeedForward
from lmlab.layers.positions import Rotary, rotate
from lmlab.layers.watching import watching
from lmlab.models import create
from stories import read_pieces, read_stories
from tolerances import rounding


def test_a_real_model_writes_its_golden_text(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("llama")
    model, pieces = read_stories(folder / "stories260K.bin"), read_pieces(folder / "tok512.bin")
    start = torch.tensor([[1]])
    steps = generate(model, start, tokens=200, pick=Sampler(Sampling(temperature=0.0)), boundary=1)
    text = b"".join(pieces[drawn.token] for (drawn,) in steps).removeprefix(b" ")
    assert text.decode() == (folder / "golden.txt").read_text(encoding="utf-8")


def test_rms_norm_is_its_equation() -> None:
    torch.manual_seed(0)
    norm, x = nn.RMSNorm(7, eps=0.1), 3 * torch.randn(2, 5, 7) + 1
    norm.weight.data.normal_()
    expected = norm.weight * x / (x.pow(2).mean(-1, keepdim=True) + 0.1).sqrt()
    torch.testing.assert_close(norm(x), expected, rtol=rounding(terms=7), atol=rounding(terms=7))


def test_products_of_turned_vectors_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    rotary = Rotary(40, 8, base=100.0)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def product(m: int, n: int) -> float:
        turned = rotate(q, rotary.table[m : m + 1]), rotate(k, rotary.table[n : n + 1])
        return float((turned[0] * turned[1]).sum())

    assert product(7, 3) == pytest.approx(product(31, 27), abs=1e-5)
    assert product(0, 0) == pytest.approx(float((q * k).sum()), abs=1e-6)
    assert abs(product(7, 3) - product(7, 4)) > 1e-3


def test_pairs_are_points_that_are_turned() -> None:
    """Dimension i and i + d/2 are the two parts of a complex number, multiplied with e^(i m θ)."""
    torch.manual_seed(0)
    x, rotary = torch.randn(2, 5, 3, 6), Rotary(9, 6, base=50.0)
    points = torch.complex(x[..., :3], x[..., 3:])
    angles = torch.arange(2, 7)[:, None] * 50.0 ** (-torch.arange(3) / 3)
    turned = points * torch.polar(torch.ones_like(angles), angles)[:, None]
    found = rotate(x, rotary.table[2:7])
    torch.testing.assert_close(found, torch.cat((turned.real, turned.imag), -1))


def test_gated_feed_forward_is_its_equation() -> None:
    torch.manual_seed(0)
    layer, x = GatedFeedForward(6, 9), torch.randn(2, 4, 6)
    gate, up = layer.expand.weight.split(9)
    expected = (torch.sigmoid(x @ gate.T) * (x @ gate.T) * (x @ up.T)) @ layer.contract.weight.T
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_grouped_attention_by_hand(groups: int) -> None:
    """Head h asks the keys of group h // (H / G); the weights can be watched, and seeing them changes nothing."""
    torch.manual_seed(0)
    layer = GroupedAttention(12, 6, key_value_heads=groups, rotary=None, bias=True)
    x = torch.randn(2, 5, 12)
    q = layer.query(x).view(2, 5, 6, 2)
    k, v = layer.key_value(x).view(2, 5, 2, groups, 2).unbind(2)
    z = torch.zeros(2, 5, 6, 2)
    for head in range(6):
        for place in range(5):
            group = head // (6 // groups)
            scores = (q[:, place, None, head] * k[:, : place + 1, group]).sum(-1) / 2**0.5
            z[:, place, head] = (scores.softmax(-1)[..., None] * v[:, : place + 1, group]).sum(1)
    expected = layer.projection(z.view(2, 5, 12))
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-6)
    with watching(layer, "probabilities") as seen:
        torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-6)
    assert seen["probabilities"][0].shape == (2, 6, 5, 5)


@torch.no_grad()
def test_a_shared_cache_is_smaller_and_says_the_same() -> None:
    torch.manual_seed(0)
    model: Any = create("llama", {"vocabulary": 31, "heads": 4, "key_value_heads": 2, "width": 16}, size="tiny").eval()
    text = torch.randint(31, (3, 11))
    whole = model.logits(model(text).hidden)
    state = model.start(3)
    assert state.layers[0].shape[1] == 2
    for place in range(11):
        logits, state = model.step(text[:, place : place + 1], state)
        torch.testing.assert_close(logits, whole[:, place], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "reported"),
    [
        ({"heads": 4, "key_value_heads": 3}, "4 heads cannot share 3 key/value heads evenly"),
        ({"width": 12, "heads": 4, "key_value_heads": 2}, "width 3 cannot be turned in pairs"),
        ({"heads": 5}, "5 heads do not divide the width"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(values: dict[str, int], reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        create("llama", {"vocabulary": 31, **values}, size="tiny")
