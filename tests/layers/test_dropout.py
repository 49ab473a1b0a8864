"""Dropout: statistics, gradients, reproducibility."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from lmlab.layers.dropout import Dropout, VariationalDropout, dropout
from lmlab.layers.kernels.dropout_mask import dropout_mask


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_statistics(p: float) -> None:
    """The number of dropped elements, in all and in each of the four lanes, is binomial; the mean is kept."""
    torch.manual_seed(0)
    count = 400_000
    y = dropout(torch.ones(count), p, True)
    for part in (y, *y.view(-1, 4).unbind(1)):
        deviation = math.sqrt(len(part) * p * (1 - p))
        assert abs((part == 0).sum().item() - len(part) * p) < 5 * deviation + len(part) / 65536
    kept = y[y != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=2e-4, atol=0)
    assert y.mean().item() == pytest.approx(1, abs=5 * math.sqrt(p / (1 - p) / count))


def test_neighbours_are_independent() -> None:
    torch.manual_seed(1)
    kept = (dropout_mask((400_000,), 0.3, like=torch.ones(1)) != 0).double()
    for distance in (1, 2, 3, 4):
        correlation = torch.corrcoef(torch.stack([kept[:-distance], kept[distance:]]))[0, 1].item()
        assert abs(correlation) < 5 / math.sqrt(len(kept))


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 5), (0, 4)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    assert dropout(torch.ones(shape), 0.5, True).shape == shape


def test_gradient_is_the_mask() -> None:
    torch.manual_seed(2)
    x = torch.randn(30, 7, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.4, True)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    assert x.grad is not None
    assert x.grad.dtype == torch.float64
    torch.testing.assert_close(x.grad, upstream * (y / x).detach())


def test_random_state_decides_everything() -> None:
    layer = Dropout(0.3)
    x = torch.randn(100)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(layer(x), first)
    assert torch.equal(layer(x), second)


def test_identity_in_evaluation_and_without_dropout() -> None:
    x = torch.randn(10)
    state = torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert VariationalDropout(0.5).eval()(x) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_variational_mask_is_the_same_at_all_times() -> None:
    torch.manual_seed(4)
    y = VariationalDropout(0.5)(torch.ones(8, 6, 10))
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert not torch.equal(y[0], y[1])
    assert set(y.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0])
def test_impossible_probability(p: float) -> None:
    with pytest.raises(ValueError, match="not including, 1"):
        Dropout(p)
    with pytest.raises(ValueError, match="not including, 1"):
        dropout(torch.ones(3), p, True)


def test_other_devices_use_torch() -> None:
    """The meta device stands for any that is not the CPU."""
    x = torch.ones(4, 5, device="meta")
    assert dropout(x, 0.5, True).device.type == "meta"
    assert F.dropout(x, 0.5).shape == dropout(x, 0.5, True).shape


def test_compiles_without_a_graph_break() -> None:
    layer = Dropout(0.5)
    compiled = torch.compile(lambda x: layer(x) + VariationalDropout(0.5)(x), backend="aot_eager", fullgraph=True)
    torch.manual_seed(5)
    y = compiled(torch.ones(4, 3, 50))
    assert set(y.unique().tolist()) == {0.0, 2.0, 4.0}
