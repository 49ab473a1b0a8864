"""The fast GELU is the approximation that GPT and GPT-2 use."""

from __future__ import annotations

import math

import pytest
import torch

from lmlab.layers.kernels.gelu import gelu_tanh


@pytest.mark.parametrize("z", [-3.0, -0.5, 0.0, 0.7, 2.5])
def test_definition(z: float) -> None:
    approximation = z / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    assert gelu_tanh(torch.tensor(z, dtype=torch.float64)).item() == pytest.approx(approximation)


def test_the_fast_gelu_is_the_readable_one() -> None:
    """Values and slopes; the fast one adds up in another order."""
    fast, readable = (torch.linspace(-6, 6, 1001, requires_grad=True) for _ in range(2))
    ours, theirs = gelu_tanh(fast), torch.nn.functional.gelu(readable, approximate="tanh")
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    (ours.sum() + theirs.sum()).backward()
    torch.testing.assert_close(fast.grad, readable.grad, atol=1e-5, rtol=1e-5)
