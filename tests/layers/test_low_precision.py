"""Products with weights in int8 and bf16 equal their readable references, on every kernel and instruction set."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from lmlab.layers.kernels import low_precision
from lmlab.layers.kernels.linear import Linear, apply_both, is_rounded, round_weights
from lmlab.layers.kernels.low_precision import (
    LEVELS,
    BFloat16,
    Int8,
    bf16_reference,
    check_precision,
    exact_kernels,
    input_levels,
    int8_reference,
    quantize_rows,
)
from lmlab.layers.softmax import Softmax
from tolerances import rounding

SHAPES = [(1, 32), (2, 32), (3, 5, 96), (33, 97), (1, 768), (16, 768)]
PATHS = [
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    {"ATEN_CPU_CAPABILITY": "avx512"},
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def check_products() -> None:
    """Compare products of many shapes with their references; called in processes with fewer instructions too."""
    torch.manual_seed(3)
    for shape in SHAPES:
        for outputs in (40, 1000):
            x, w, b = torch.randn(shape) * 3, torch.randn(outputs, shape[-1]), torch.randn(outputs)
            if len(shape) == 3 or outputs == 1000:
                w = w.t().contiguous().t()  # as weights that were stored transposed
            whole, rows = Int8.of(w), quantize_rows(x, input_levels())
            plain = int8_reference(rows.numbers, whole.weight, whole.scales) * rows.scales
            result = whole.times(whole.read(x), None)
            assert torch.equal(result, plain.view(*shape[:-1], -1)), f"{shape} {outputs}: {exact_kernels()}"
            torch.testing.assert_close(whole.times(rows, b), result + b, rtol=1e-6, atol=1e-5)
            half = BFloat16.of(w)
            right = bf16_reference(half.read(x), half.weight)
            torch.testing.assert_close(half.times(half.read(x), None), right, rtol=2**-7, atol=1e-2)
    print(input_levels())


def test_equals_the_reference() -> None:
    check_products()


@pytest.mark.parametrize("settings", PATHS, ids=lambda settings: " ".join(settings.values()))
def test_equals_the_reference_with_other_instructions(settings: dict[str, str]) -> None:
    """Each in a process of its own, because PyTorch and oneDNN read these variables once."""
    code = "from test_low_precision import check_products; check_products()"
    folders = os.pathsep.join([os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__)), *sys.path])
    environment = {**os.environ, "PYTHONPATH": folders, **settings}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) in (63, 127)


@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize("name", exact_kernels().names)
def test_every_kernel_gives_the_same_bits(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, x = Int8.of(torch.randn(96, 70).t()), torch.randn(rows, 96)
    by_choice = whole.times(whole.read(x), None)
    monkeypatch.setattr(low_precision, "choose_kernel", lambda rows, weights: name)
    assert torch.equal(whole.times(whole.read(x), None), by_choice)


def test_weights_are_at_most_half_a_step_off() -> None:
    w = torch.randn(50, 64) * torch.logspace(-3, 3, 50)[:, None]
    w[7] = 0
    whole = Int8.of(w)
    assert int(whole.weight.abs().max()) == LEVELS
    off = (whole.weight.float() * whole.scales[:, None] - w).abs()
    assert bool((off <= whole.scales[:, None] * 0.5001).all())
    assert not whole.times(whole.read(torch.randn(2, 64)), None)[:, 7].any()


def test_int8_is_near_fp32() -> None:
    w, x = torch.randn(400, 256), torch.randn(32, 256)
    whole = Int8.of(w)
    right = x @ w.T
    assert (whole.times(whole.read(x), None) - right).norm() < 0.02 * right.norm()


def test_a_row_does_not_depend_on_the_others() -> None:
    whole, b = Int8.of(torch.randn(1200, 1000)), torch.randn(1200)
    x = torch.randn(40, 1000) * torch.logspace(-2, 2, 40)[:, None]
    together = whole.times(whole.read(x), b)
    for rows in (1, 2, 7):
        assert torch.equal(whole.times(whole.read(x[:rows]), b), together[:rows])


def test_zeros_stay_zero_and_nan_is_not_hidden() -> None:
    whole = Int8.of(torch.randn(40, 64))
    x = torch.zeros(3, 64)
    x[1, 5], x[2, 6] = float("nan"), float("inf")
    y = whole.times(whole.read(x), None)
    assert not y[0].any()
    assert y[1:].isnan().all()


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_a_part_and_two_at_once_are_the_same(precision: str) -> None:
    one, two, x = Linear(64, 96).eval(), Linear(64, 32).eval(), torch.randn(5, 64)
    with torch.no_grad():
        torch.testing.assert_close(one.part(x, slice(32, 64)), one(x)[:, 32:64], rtol=1e-5, atol=rounding(terms=64))
        for layer in (one, two):
            round_weights(layer, check_precision(precision))
        assert torch.equal(one.part(x, slice(32, 64)), one(x)[:, 32:64])
        for both, alone in zip(apply_both(x, one, two), (one(x), two(x)), strict=True):
            assert torch.equal(both, alone)
        assert torch.equal(copy.deepcopy(one)(x), one(x))


@pytest.mark.parametrize(("precision", "dtype"), [("int8", torch.int8), ("bf16", torch.bfloat16)])
def test_an_embedding_keeps_its_precision(precision: str, dtype: torch.dtype) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 32)
            self.output = Softmax(32, 50, tied=self.embedding)
            self.second = Softmax(32, 50, tied=self.embedding)
            self.few = Linear(32, 2)

    model = Tied().eval()
    before = model.embedding.weight.clone()
    round_weights(model, check_precision(precision))
    assert model.output.weight.dtype == model.second.weight.dtype == dtype
    assert model.output.weight.data_ptr() == model.second.weight.data_ptr(), "rounded once"
    assert torch.equal(model.embedding.weight, before)
    assert model.few.weight.dtype == torch.float32
    assert not is_rounded(model.few)
    h, targets = torch.randn(6, 32), torch.arange(6)
    torch.testing.assert_close(model.output.total(h, targets), model.output.nll(h, targets).sum())


def test_gradients_are_refused() -> None:
    layer = Linear(64, 64).eval()
    round_weights(layer, "int8")
    with pytest.raises(ValueError, match="load it with fp32"):
        layer(torch.randn(2, 64, requires_grad=True))


def test_what_cannot_be_converted_is_named() -> None:
    with pytest.raises(ValueError, match="no matrices of products"):
        round_weights(nn.LSTM(8, 8), "int8")
    with pytest.raises(ValueError, match="did you mean 'int8'"):
        check_precision("int4")
