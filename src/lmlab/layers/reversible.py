"""Reversible layers: the inputs of a layer follow from its outputs, so activations are stored once, whatever the depth.

    y₁ = x₁ + F(x₂),  y₂ = x₂ + G(y₁)   and back:   x₂ = y₂ − G(y₁),  x₁ = y₁ − F(x₂)

Gomez et al. 2017 (RevNet); Kitaev et al. 2020, section 3, with F attention and G the feed-forward net. The backward
pass undoes layer by layer, and computes each once more with the random numbers of the first time, so that dropout drops
the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmlab.layers.watching import unwatched


class ReversibleLayer(Protocol):
    """What is stacked; `f` is also given what of its layer must stay the same when it is computed again."""

    def f(self, x: Tensor, kept: Any) -> Tensor: ...

    def g(self, y: Tensor) -> Tensor: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


def run_reversible(
    layers: Sequence[ReversibleLayer], x: tuple[Tensor, Tensor], kept: Sequence[Any], *, piece: int
) -> tuple[Tensor, Tensor]:
    """x₁, x₂ [B, T, D] through all layers, each with its own of `kept`; G takes `piece` tokens at a time."""
    stack = _Stack(len(layers))
    for number, (layer, mine) in enumerate(zip(layers, kept, strict=True), 1):
        learnt = [each for each in layer.parameters() if each.requires_grad]
        x = _Reversible.apply(layer, mine, piece, stack, number, *x, *learnt)  # type: ignore[no-untyped-call]
    return x


def in_pieces(layer: ReversibleLayer, y: Tensor, piece: int) -> Tensor:
    """G of y [B, T, D], `piece` tokens at a time: it works on each token alone, and its inner vectors are wide."""
    if y.shape[1] <= piece:
        return layer.g(y)
    return torch.cat([layer.g(part) for part in torch.split(y, piece, 1)], 1)


class _Randomness:
    """The states of the random generators, to be restored later, and the autocast precision."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.half = torch.get_autocast_dtype(device.type) if _narrows(device) else None

    @contextmanager
    def again(self) -> Iterator[None]:
        with torch.random.fork_rng([self.device] if self.cuda is not None else []):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            with nullcontext() if self.half is None else torch.autocast(self.device.type, dtype=self.half):
                yield


def _narrows(device: torch.device) -> bool:
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


@dataclass
class _Stack:
    """Layers on top of each other: one that is undone leaves its inputs, the outputs of the layer below it, here."""

    layers: int
    outputs: tuple[Tensor, ...] = ()


class _Reversible(torch.autograd.Function):
    """The layer with a number, from 1 on; only the last of a stack keeps its outputs."""

    @staticmethod
    def forward(
        ctx: Any,
        layer: ReversibleLayer,
        kept: Any,
        piece: int,
        stack: _Stack,
        number: int,
        x1: Tensor,
        x2: Tensor,
        *learnt: nn.Parameter,
    ) -> tuple[Tensor, Tensor]:
        ctx.layer, ctx.kept, ctx.piece, ctx.stack, ctx.number, ctx.learnt = layer, kept, piece, stack, number, learnt
        ctx.before = _Randomness(x1.device)
        y1 = x1 + layer.f(x2, kept)
        ctx.between = _Randomness(x1.device)
        y2 = x2 + in_pieces(layer, y1, piece)
        if number == stack.layers:
            ctx.save_for_backward(y1, y2)
        return y1, y2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d1: Tensor, d2: Tensor) -> tuple[Tensor | None, ...]:
        layer, stack, learnt = ctx.layer, ctx.stack, ctx.learnt
        y1, y2 = ctx.saved_tensors or stack.outputs
        gradients: dict[nn.Parameter, Tensor] = {}
        undone, pieces = [], []
        with unwatched():
            with ctx.between.again():
                for y, d in zip(torch.split(y1, ctx.piece, 1), torch.split(d2, ctx.piece, 1), strict=True):
                    value, change = _again(layer.g, y, d, learnt, gradients)
                    undone.append(value)
                    pieces.append(change)
            x2 = y2 - torch.cat(undone, 1)
            d1 = d1 + torch.cat(pieces, 1)
            with ctx.before.again():
                value, change = _again(lambda x: layer.f(x, ctx.kept), x2, d1, learnt, gradients)
        stack.outputs = (y1 - value, x2) if ctx.number > 1 else ()
        return None, None, None, None, None, d1, d2 + change, *(gradients.get(each) for each in learnt)


def _again(
    function: Any, x: Tensor, d: Tensor, weights: Sequence[nn.Parameter], gradients: dict[nn.Parameter, Tensor]
) -> tuple[Tensor, Tensor]:
    """The function of x once more, and the gradient of x; the gradients of the weights are added to those there are."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = function(x)
    d_x, *d_weights = torch.autograd.grad(y, (x, *weights), d.to(y.dtype), allow_unused=True)
    for weight, change in zip(weights, d_weights, strict=True):
        if change is not None:
            gradients[weight] = gradients[weight] + change if weight in gradients else change
    return y.detach(), torch.zeros_like(x) if d_x is None else d_x
