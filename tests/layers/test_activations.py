"""The fast GELU is the approximation that GPT and GPT-2 use."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from lmlab.layers.kernels.gelu import gelu, gelu_tanh


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


@pytest.mark.parametrize(("ours", "approximate"), [(gelu_tanh, "tanh"), (gelu, "none")])
@pytest.mark.parametrize("count", [7, 2**17 + 5])
def test_in_bf16_values_and_slopes_are_rounded_once(
    ours: Callable[[torch.Tensor], torch.Tensor], approximate: str, count: int
) -> None:
    """Computed in fp32 and then rounded: as near as bf16 can be."""
    narrow = torch.linspace(-6, 6, count).bfloat16().requires_grad_()
    wide = narrow.detach().float().requires_grad_()
    y, expected = ours(narrow), torch.nn.functional.gelu(wide, approximate=approximate)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, atol=1e-5, rtol=2**-8)
    y.sum().backward()
    expected.sum().backward()
    assert narrow.grad is not None
    torch.testing.assert_close(narrow.grad.float(), wide.grad, atol=1e-5, rtol=2**-8)
