"""Readable cells against torch's cells and against sums by hand; fused kernels against readable cells."""

from __future__ import annotations

import math
import warnings
from functools import partial

import pytest
import torch
from torch import nn

from lmlab.layers.recurrent import (
    Connections,
    ElmanLayer,
    GRULayer,
    Layer,
    LSTMLayer,
    ProjectedLSTMLayer,
    RecurrentStack,
)

LAYERS: list[type[Layer]] = [ElmanLayer, GRULayer, LSTMLayer]
TORCH = {ElmanLayer: nn.RNNCell, GRULayer: nn.GRUCell, LSTMLayer: nn.LSTMCell}


def flat(state: object) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    assert isinstance(state, tuple)
    return [tensor for part in state for tensor in flat(part)]


def random_state(layer: Layer, batch: int) -> object:
    state = layer.start(batch)
    return tuple(map(torch.randn_like, state)) if isinstance(state, tuple) else torch.randn_like(state)


@pytest.mark.parametrize("kind", LAYERS)
def test_cell_equals_torch_cell(kind: type[Layer]) -> None:
    torch.manual_seed(0)
    layer = kind(5, 7)
    reference = TORCH[kind](5, 7)
    reference.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.fused.state_dict().items()})
    x, state = torch.randn(3, 5), random_state(layer, 3)
    for ours, theirs in zip(flat(layer.cell(x, state)), flat(reference(x, state)), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", LAYERS)
def test_fused_equals_readable_with_gradients(kind: type[Layer]) -> None:
    torch.manual_seed(1)
    layer = kind(5, 7)
    x, state = torch.randn(3, 6, 5, requires_grad=True), random_state(layer, 3)
    results = []
    for read in (layer.run, layer.unroll):
        layer.zero_grad()
        y, end = read(x, state)
        (gradient,) = torch.autograd.grad(y.square().sum() + sum(t.sum() for t in flat(end)), [x], retain_graph=True)
        y.square().sum().backward()
        results.append([y, *flat(end), gradient, *[p.grad.clone() for p in layer.parameters() if p.grad is not None]])
    assert len(results[0]) >= 7
    for fused, readable in zip(*results, strict=True):
        torch.testing.assert_close(fused, readable, rtol=1e-5, atol=1e-5)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def fill(layer: Layer, W: list[float], U: list[float], b: list[float]) -> None:
    for parameter, values in zip(layer.fused.all_weights[0], (W, U, b, [0.0] * len(b)), strict=True):
        with torch.no_grad():
            parameter.copy_(torch.tensor(values).view_as(parameter))


def test_elman_by_hand() -> None:
    layer = ElmanLayer(1, 1)
    fill(layer, [0.5], [-0.3], [0.1])
    h = layer.cell(torch.tensor([[2.0]]), torch.tensor([[0.4]]))
    assert h.item() == pytest.approx(math.tanh(0.5 * 2 - 0.3 * 0.4 + 0.1))


def test_gru_by_hand() -> None:
    """In the deck's sense: u near 1 renews the state. Torch's second gate is z = 1 − u."""
    layer = GRULayer(1, 1)
    fill(layer, [0.5, 0.7, -0.2], [0.3, 0.1, 0.9], [0.0, 0.2, 0.4])
    x, h = 1.5, -0.6
    r = sigmoid(0.5 * x + 0.3 * h)
    u = 1 - sigmoid(0.7 * x + 0.1 * h + 0.2)
    proposal = math.tanh(-0.2 * x + 0.4 + r * 0.9 * h)
    actual = layer.cell(torch.tensor([[x]]), torch.tensor([[h]]))
    assert actual.item() == pytest.approx((1 - u) * h + u * proposal, rel=1e-5)


def test_lstm_by_hand() -> None:
    layer = LSTMLayer(1, 1)
    fill(layer, [0.5, 0.7, -0.2, 0.3], [0.3, 0.1, 0.9, -0.5], [0.0, 1.0, 0.4, 0.2])
    x, h, c = 1.5, -0.6, 0.8
    i, f = sigmoid(0.5 * x + 0.3 * h), sigmoid(0.7 * x + 0.1 * h + 1.0)
    g, o = math.tanh(-0.2 * x + 0.9 * h + 0.4), sigmoid(0.3 * x - 0.5 * h + 0.2)
    memory = f * c + i * g
    new_h, new_c = layer.cell(torch.tensor([[x]]), (torch.tensor([[h]]), torch.tensor([[c]])))
    assert new_c.item() == pytest.approx(memory, rel=1e-5)
    assert new_h.item() == pytest.approx(o * math.tanh(memory), rel=1e-5)


def test_forget_gate_starts_open() -> None:
    _, _, b, b_state = LSTMLayer(3, 4).fused.all_weights[0]
    bias = b + b_state
    assert torch.equal(bias[4:8], torch.ones(4))
    assert bias[:4].abs().max() <= 1  # the other gates are uniform within ± 2 / √H
    assert not torch.equal(bias[:4], torch.ones(4))


@pytest.mark.parametrize("kind", LAYERS)
def test_plain_stack_equals_torch_stack(kind: type[Layer]) -> None:
    """Layers on top of each other are torch's own num_layers."""
    torch.manual_seed(2)
    stack = RecurrentStack(kind, width=5, hidden=7, layers=3)
    reference = kind.kernel(5, 7, num_layers=3, batch_first=True)
    renamed = {}
    for number, layer in enumerate(stack.layers):
        for name, value in layer.fused.state_dict().items():
            renamed[name.replace("_l0", f"_l{number}")] = value
    reference.load_state_dict(renamed)
    x = torch.randn(2, 4, 5)
    (*_, y), ends = stack(x, stack.start(2))
    expected, end = reference(x)
    torch.testing.assert_close(y, expected)
    for number, state in enumerate(ends):
        for ours, theirs in zip(flat(state), flat(end), strict=True):
            torch.testing.assert_close(ours, theirs[number])


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("connections", ["residual", "highway", "dense"])
def test_connections_follow_their_equations(kind: type[Layer], connections: Connections) -> None:
    torch.manual_seed(3)
    stack = RecurrentStack(kind, width=5, hidden=7, layers=3, connections=connections).eval()
    x = torch.randn(2, 4, 5)
    (*_, actual), _ = stack(x, stack.start(2))
    first, second, third = stack.layers
    h1, _ = first.unroll(x, first.start(2))
    if connections == "dense":
        h2, _ = second.unroll(torch.cat([x, h1], -1), second.start(2))
        expected, _ = third.unroll(torch.cat([x, h1, h2], -1), third.start(2))
    else:
        h2, expected = h1, h1
        for number, layer in enumerate((second, third)):
            below = expected
            f, _ = layer.unroll(below, layer.start(2))
            if connections == "residual":
                expected = below + f
            else:
                t = torch.sigmoid(stack.gates[number](below))
                expected = t * f + (1 - t) * below
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_dropout_is_between_layers_only_and_only_in_training() -> None:
    torch.manual_seed(4)
    one = RecurrentStack(ElmanLayer, width=5, hidden=7, layers=1, dropout=0.5)
    two = RecurrentStack(ElmanLayer, width=5, hidden=7, layers=2, dropout=0.5)
    x = torch.randn(2, 4, 5)
    assert torch.equal(one(x, one.start(2))[0][-1], one(x, one.start(2))[0][-1])
    assert not torch.equal(two(x, two.start(2))[0][-1], two(x, two.start(2))[0][-1])
    two.eval()
    assert torch.equal(two(x, two.start(2))[0][-1], two(x, two.start(2))[0][-1])


@pytest.mark.parametrize(("kind", "gates"), [(ElmanLayer, 1), (GRULayer, 3), (LSTMLayer, 4)])
def test_operations_per_token(kind: type[Layer], gates: int) -> None:
    stack = RecurrentStack(kind, width=5, hidden=7, layers=2)
    assert stack.flops() == 2 * gates * (7 * (5 + 7) + 7 * (7 + 7))
    dense = RecurrentStack(kind, width=5, hidden=7, layers=2, connections="dense")
    assert dense.flops() == 2 * gates * (7 * (5 + 7) + 7 * (12 + 7))


@pytest.mark.parametrize("start", ["zeros", "random"])
def test_projected_layer_equals_torch(start: str) -> None:
    """torch's own LSTM with a projection, over the same parameters: outputs, state and gradients."""
    torch.manual_seed(2)
    layer = ProjectedLSTMLayer(5, 7, projection=4)
    x = torch.randn(3, 6, 5, requires_grad=True)
    h, c = layer.start(3) if start == "zeros" else random_state(layer, 3)  # type: ignore[misc]
    h, c = h.requires_grad_(), c.requires_grad_()
    wanted = [x, h, c, *layer.parameters()]
    y, (h_end, c_end) = layer.run(x, (h, c))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that oneDNN has no such kernel
        their_y, (their_h, their_c) = layer.fused(x, (h[None], c[None]))
    found = [y, h_end, c_end]
    expected = [their_y, their_h[0], their_c[0]]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    weights = [torch.randn_like(each) for each in found]
    gradients = [
        torch.autograd.grad(sum((w * t).sum() for w, t in zip(weights, each, strict=True)), wanted)
        for each in (found, expected)
    ]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_projected_kernel_equals_its_cells_where_values_are_clipped() -> None:
    """In double precision: the gradients that were worked out by hand are those that torch finds."""
    torch.manual_seed(4)
    layer = ProjectedLSTMLayer(5, 7, projection=4, clip=0.3).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.8)
    x, state = torch.randn(3, 9, 5, dtype=torch.float64, requires_grad=True), random_state(layer, 3)
    results = []
    for read in (layer.run, layer.unroll):
        y, (h, c) = read(x, state)
        loss = (y * torch.arange(y.numel()).view_as(y).sin()).sum() + h.square().sum() + c.sum()
        results.append([y, h, c, *torch.autograd.grad(loss, [x, *layer.parameters()])])
    clipped = (results[1][0].abs() == 0.3).double().mean()
    assert 0.05 < clipped < 0.95
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


def test_projected_layer_in_a_stack() -> None:
    stack = RecurrentStack(
        partial(ProjectedLSTMLayer, projection=4), width=5, hidden=7, output=4, layers=3, connections="residual"
    )
    (*_, y), states = stack(torch.randn(2, 6, 5), stack.start(2))
    assert y.shape == (2, 6, 4)
    assert [tuple(part.shape) for part in states[0]] == [(2, 4), (2, 7)]
