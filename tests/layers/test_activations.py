"""The lecture's worked numbers."""

from __future__ import annotations

import math

import pytest
import torch

from lmlab.layers.activations import gelu, gelu_tanh, relu, sigmoid, tanh, unit
from lmlab.layers.kernels.gelu import gelu_tanh as fast_gelu_tanh


def test_worked_unit() -> None:
    z = unit(torch.tensor([0.3, 0.2, 0.9]), torch.tensor([0.1, 0.4, 0.2]), 0.4)
    assert z.item() == pytest.approx(0.69)
    assert sigmoid(z).item() == pytest.approx(0.666, abs=5e-4)


def test_units_of_a_batch() -> None:
    x = torch.tensor([[0.3, 0.2, 0.9], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(unit(x, torch.tensor([0.1, 0.4, 0.2]), 0.4), torch.tensor([0.69, 0.4]))


@pytest.mark.parametrize("z", [-3.0, -0.5, 0.0, 0.7, 2.5])
def test_definitions(z: float) -> None:
    given = torch.tensor(z, dtype=torch.float64)
    assert sigmoid(given).item() == pytest.approx(1 / (1 + math.exp(-z)))
    assert tanh(given).item() == pytest.approx(math.tanh(z))
    assert relu(given).item() == max(0, z)
    assert gelu(given).item() == pytest.approx(z * (1 + math.erf(z / math.sqrt(2))) / 2)
    approximation = z / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    assert gelu_tanh(given).item() == pytest.approx(approximation)


def test_the_fast_gelu_is_the_readable_one() -> None:
    """Values and slopes; the fast one adds up in another order."""
    fast, readable = (torch.linspace(-6, 6, 1001, requires_grad=True) for _ in range(2))
    ours, theirs = fast_gelu_tanh(fast), gelu_tanh(readable)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    (ours.sum() + theirs.sum()).backward()
    torch.testing.assert_close(fast.grad, readable.grad, atol=1e-5, rtol=1e-5)
