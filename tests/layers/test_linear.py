"""The affine map gives the same however many vectors there are, with weights prepared or not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmlab.layers.kernels import training_linear
from lmlab.layers.kernels.calibration import Thresholds
from lmlab.layers.kernels.linear import Linear, _has_onednn, prepare
from lmlab.layers.kernels.training_linear import cached_casts, cast_weight
from lmlab.layers.softmax import Softmax

MORE = Thresholds().few_prepared + 1
onednn = pytest.mark.skipif(not _has_onednn(), reason="this PyTorch has no oneDNN")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prepared", [False, pytest.param(True, marks=onednn)])
@pytest.mark.parametrize("shape", [(1, 24), (5, 1, 24), (2, 16, 24), (33, 24), (MORE, 24), (2, 3, 4, 24)])
def test_is_f_linear(shape: tuple[int, ...], prepared: bool, bias: bool) -> None:
    layer = Linear(24, 40, bias=bias).eval()
    if prepared:
        prepare(layer)
        assert layer.prepared is not None
    x = torch.randn(shape)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), atol=1e-5, rtol=1e-5)


def test_a_large_weight_and_one_vector() -> None:
    layer = Linear(1024, 512)
    x = torch.randn(1, 1024)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), atol=1e-4, rtol=1e-4)


@onednn
def test_a_changed_weight_is_not_taken_for_the_prepared_one() -> None:
    layer = Linear(24, 40).eval()
    prepare(layer)
    x = torch.randn(4, 24)
    layer(x).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), atol=1e-5, rtol=1e-5)
        before = layer.prepared
        prepare(layer)
        assert layer.prepared is not before
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), atol=1e-5, rtol=1e-5)
        kept = layer.prepared
        prepare(layer)
        assert layer.prepared is kept, "nothing changed"


@onednn
@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.to("meta"),
        lambda layer: layer.double(),
        lambda layer: layer.bfloat16(),
        lambda layer: setattr(layer.weight, "data", torch.randn(24, 24)),
        lambda layer: setattr(layer.weight, "data", layer.weight.data.t()),
    ],
    ids=["device", "double", "bfloat16", "storage", "transposed"],
)
def test_a_weight_that_was_moved_is_not_taken_for_the_prepared_one(change: Callable[[Linear], object]) -> None:
    layer = Linear(24, 24).eval()
    layer.weight = nn.Parameter(torch.randn(24, 24))  # of version 0, as a moved one may be
    prepare(layer)
    assert layer.prepared is not None
    assert layer.prepared.fits(layer.weight)
    version = layer.weight._version
    change(layer)
    assert layer.weight._version == version, "or this test shows nothing"
    assert not layer.prepared.fits(layer.weight)


@onednn
def test_a_replaced_weight_is_the_one_that_is_multiplied() -> None:
    layer = Linear(24, 40).eval()
    prepare(layer)
    x = torch.randn(4, 24)
    with torch.no_grad():
        layer(x)
        layer.weight.data = torch.randn(40, 24)
        expected = F.linear(x, layer.weight, layer.bias)
        torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)
        prepare(layer)
        torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)
        other = {"weight": torch.randn(40, 24), "bias": torch.zeros(40)}
        called = torch.func.functional_call(layer, other, (x,))
        torch.testing.assert_close(called, F.linear(x, other["weight"]), atol=1e-5, rtol=1e-5)
        moved = layer.double()(x.double())
        torch.testing.assert_close(moved.float(), expected, atol=1e-5, rtol=1e-5)


@onednn
def test_copies_begin_unprepared_and_nothing_more_is_saved() -> None:
    model = nn.Sequential(Linear(24, 40), Softmax(40, 7)).eval()
    names = set(model.state_dict())
    prepare(model)
    assert all(part.prepared is not None for part in model)
    assert set(model.state_dict()) == names
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(part.prepared is None for part in other)
        assert torch.equal(other[0].weight, model[0].weight)
    with torch.no_grad():
        h = torch.randn(3, 40)
        expected = F.linear(h, model[1].weight, model[1].bias)
        torch.testing.assert_close(model[1].logits(h), expected, atol=1e-5, rtol=1e-5)


def test_what_is_left_alone() -> None:
    learning, double = Linear(24, 40).train(), Linear(24, 40).double().eval()
    for model in (learning, double, object()):
        prepare(model)
    assert learning.prepared is None
    assert double.prepared is None


@onednn
def test_weights_that_moved_are_not_prepared_any_more() -> None:
    """`model.to(...)` puts other memory behind the same parameter, and its version does not tell."""
    layer = Linear(24, 40).eval()
    prepare(layer)
    assert layer.prepared is not None
    assert layer.prepared.fits(layer.weight)
    layer.weight.data = 2 * layer.weight.data
    assert not layer.prepared.fits(layer.weight)
    with torch.no_grad():
        x = torch.randn(3, 24)
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_f_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large enough for oneDNN in fp32, whatever the CPU; gradients arrive for what needs them."""
    monkeypatch.setattr(training_linear, "uses_onednn", _has_onednn)
    monkeypatch.setattr(training_linear, "SMALL", 0)
    layer, x = Linear(24, 40), torch.randn(5, 7, 24, requires_grad=True)
    upstream = torch.randn(5, 7, 40)
    plain = F.linear(x, layer.weight, layer.bias)
    expected = torch.autograd.grad(plain, (x, layer.weight, layer.bias), upstream)
    y = layer(x)
    torch.testing.assert_close(y, plain, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(torch.autograd.grad(y, (x, layer.weight, layer.bias), upstream), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    layer.weight.requires_grad_(False)
    layer(x).backward(upstream)
    assert layer.weight.grad is None
    torch.testing.assert_close(x.grad, expected[0], atol=1e-5, rtol=1e-5)


def test_in_bf16_products_are_near_and_gradients_of_weights_are_fp32() -> None:
    layer, x = Linear(24, 40), torch.randn(33, 24)
    expected = F.linear(x, layer.weight, layer.bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, atol=0.03, rtol=0.02)
    (d_weight,) = torch.autograd.grad(expected.sum(), layer.weight)
    y.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    torch.testing.assert_close(layer.weight.grad, d_weight, atol=0.1, rtol=0.02)


def test_a_weight_is_cast_once_within_the_block_and_anew_after_it() -> None:
    layer = Linear(24, 40)
    with cached_casts():
        first = cast_weight(layer.weight, torch.bfloat16)
        assert cast_weight(layer.weight, torch.bfloat16) is first
        assert cast_weight(layer.weight[:3], torch.bfloat16).shape == (3, 24)  # a part is not kept
    with torch.no_grad():
        layer.weight.add_(1)
    assert not torch.equal(cast_weight(layer.weight, torch.bfloat16), first)
    with cached_casts():
        torch.testing.assert_close(cast_weight(layer.weight, torch.bfloat16), layer.weight.detach().bfloat16())
