"""The affine map gives the same however many vectors there are, with weights prepared or not."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmlab.layers.linear import FEW_PREPARED, Linear, _has_onednn, prepare
from lmlab.layers.softmax import Softmax

onednn = pytest.mark.skipif(not _has_onednn(), reason="this PyTorch has no oneDNN")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prepared", [False, pytest.param(True, marks=onednn)])
@pytest.mark.parametrize("shape", [(1, 24), (5, 1, 24), (2, 16, 24), (33, 24), (FEW_PREPARED + 1, 24), (2, 3, 4, 24)])
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
