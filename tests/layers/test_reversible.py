"""Reversible layers against ordinary back-propagation: the same gradients and masks, and nothing kept for depth."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmlab.layers.dropout import Dropout
from lmlab.layers.reversible import in_pieces, run_reversible
from lmlab.layers.watching import watching
from tolerances import rounding


class Layer(nn.Module):
    """Two small nets with dropout; counts how often F is computed."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        self.calls = 0

    def f(self, x: Tensor, kept: Any) -> Tensor:
        self.calls += 1
        kept.append(len(x))
        y: Tensor = self.dropout(self.first(x).tanh())
        return y

    def g(self, y: Tensor) -> Tensor:
        z: Tensor = self.dropout(self.second(y).tanh())
        return z


def plain(layers: list[Layer], x1: Tensor, x2: Tensor, piece: int) -> tuple[Tensor, Tensor]:
    for layer in layers:
        x1 = x1 + layer.f(x2, [])
        x2 = x2 + in_pieces(layer, x1, piece)
    return x1, x2


@pytest.mark.parametrize("piece", [3, 100])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradients_are_those_of_back_propagation(dropout: float, piece: int) -> None:
    torch.manual_seed(0)
    layers = [Layer(6, dropout).double() for _ in range(5)]
    x = torch.randn(2, 10, 6, dtype=torch.double)
    results = []
    for way in ("plain", "reversible"):
        torch.manual_seed(7)
        a, b = x.clone().requires_grad_(), (2 * x).requires_grad_()
        kept: list[Any] = [[] for _ in layers]
        if way == "plain":
            y1, y2 = plain(layers, a, b, piece)
        else:
            y1, y2 = run_reversible(layers, (a, b), kept, piece=piece)
        after = torch.rand(3)
        inputs = [a, b, *(each for layer in layers for each in layer.parameters())]
        results.append((y1.detach(), y2.detach(), *torch.autograd.grad((y1.sin() * y2).sum(), inputs)))
        drawn = torch.rand(3)
        assert not torch.equal(after, drawn), "the generator goes on where it was"
    tolerance = rounding(terms=60, depth=20, dtype=torch.double)
    for mine, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, expected, atol=tolerance * 10, rtol=tolerance * 10)


def test_a_backward_pass_leaves_the_random_numbers_as_they_were() -> None:
    layers = [Layer(4, 0.5) for _ in range(3)]
    x = torch.randn(1, 5, 4, requires_grad=True)
    y1, y2 = run_reversible(layers, (x, x), [[], [], []], piece=10)
    before = torch.get_rng_state()
    (y1 + y2).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_graph_that_is_kept_gives_its_gradients_again() -> None:
    layers = [Layer(4, 0.5) for _ in range(3)]
    x = torch.randn(1, 5, 4, requires_grad=True)
    y1, y2 = run_reversible(layers, (x, x), [[], [], []], piece=2)
    first, second = (torch.autograd.grad((y1 * y2).sum(), x, retain_graph=True) for _ in range(2))
    assert torch.equal(first[0], second[0])


def test_gradients_of_a_layer_are_handed_over_when_it_is_undone() -> None:
    """So that none are held twice where gradients of several passes are added up."""
    layers = [Layer(4, 0.0) for _ in range(3)]
    x = torch.randn(1, 5, 4, requires_grad=True)
    seen: list[int] = []  # -1: the lowest layer is computed again
    for i, layer in enumerate(layers):
        layer.first.weight.register_post_accumulate_grad_hook(lambda _, i=i: seen.append(i))  # type: ignore[misc]
    layers[0].first.register_forward_pre_hook(lambda *_: seen.append(-1))
    y1, y2 = run_reversible(layers, (x, x), [[], [], []], piece=10)
    seen.clear()
    (y1 + y2).sum().backward()
    assert seen == [2, 1, -1, 0]


def saved_bytes(depth: int, *, reversible: bool) -> int:
    """How many bytes autograd keeps between the passes."""
    total = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal total
        if not isinstance(tensor, nn.Parameter) and tensor.dim() == 3:
            total += tensor.numel() * tensor.element_size()
        return tensor

    layers = [Layer(8, 0.1) for _ in range(depth)]
    x = torch.randn(2, 50, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        if reversible:
            run_reversible(layers, (x, x), [[] for _ in layers], piece=100)
        else:
            plain(layers, x, x, 100)
    return total


def test_activations_are_stored_once_whatever_the_depth() -> None:
    once = 2 * 2 * 50 * 8 * 4  # y₁ and y₂
    assert saved_bytes(2, reversible=True) == saved_bytes(24, reversible=True) == once
    assert saved_bytes(24, reversible=False) > 11 * saved_bytes(2, reversible=False)


def test_watching_does_not_record_a_layer_twice() -> None:
    layers = nn.ModuleList(Layer(4, 0.0) for _ in range(3))
    x = torch.randn(1, 5, 4, requires_grad=True)
    with watching(layers, "0.first", "2.second") as seen:
        y1, y2 = run_reversible(list(layers), (x, x), [[], [], []], piece=10)  # type: ignore[arg-type]
        (y1 + y2).sum().backward()
        assert {name: len(shown) for name, shown in seen.items()} == {"0.first": 1, "2.second": 1}
        layers[0].first(x)
    assert len(seen["0.first"]) == 2, "afterwards it is watched again"
    assert [layer.calls for layer in layers] == [2, 2, 2]


def test_frozen_weights_are_left_alone() -> None:
    layers = [Layer(4, 0.0) for _ in range(2)]
    for weight in layers[0].parameters():
        weight.requires_grad_(False)
    x = torch.randn(1, 5, 4, requires_grad=True)
    y1, y2 = run_reversible(layers, (x, x), [[], []], piece=10)
    (y1 + y2).sum().backward()
    assert all(weight.grad is None for weight in layers[0].parameters())
    assert all(weight.grad is not None for weight in layers[1].parameters())
    assert x.grad is not None
