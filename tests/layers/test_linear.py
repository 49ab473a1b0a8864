"""The affine map gives the same however many vectors there are, with weights prepared or not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmlab.layers.kernels.calibration import Thresholds
from lmlab.layers.kernels.linear import Linear, _has_onednn, prepare
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
