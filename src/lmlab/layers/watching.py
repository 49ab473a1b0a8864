"""Looking inside a model: activations by name (`watching`), and the vectors of every layer (`watching_layers`).

The same forward pass gives them. Watching holds for the thread (or task) that entered the block and for no other, so
requests that share a model may watch it separately. Attention computes its weights explicitly only where its
`probabilities` are watched. Outside of such a block it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from lmlab.config import suggest

Activations = dict[str, list[Tensor]]
INPUT = ":input"


class _Watch:
    """One block of `watching`: the modules that it looks at."""

    def __init__(self, modules: dict[str, nn.Module]) -> None:
        self.modules = modules
        self.seen: Activations = {name: [] for name in modules}


_WATCHES: ContextVar[tuple[_Watch, ...]] = ContextVar("watches", default=())
_LAYERS: ContextVar[list[Tensor] | None] = ContextVar("layers", default=None)


@contextmanager
def watching(model: nn.Module, *names: str) -> Iterator[Activations]:
    """By name, what these modules of a model give while the block runs, one tensor for each call.

    Names are those of `model.named_modules()`, such as "blocks.0" or "blocks.0.attention.probabilities", which are the
    attention weights [B, H, T, S]. With ":input" after the name it is what the module is given: "blocks.0.norm:input".
    Padded texts are worked on as rows [B, T, ·] meanwhile.
    """
    known = dict(model.named_modules())
    for name in names:
        if name.removesuffix(INPUT) not in known:
            raise ValueError(f"the model has no part {name!r}{suggest(name, known)}")
    watch = _Watch({name: known[name.removesuffix(INPUT)] for name in names})
    with ExitStack() as stack:
        for name, module in watch.modules.items():

            def keep(module: nn.Module, inputs: tuple[object, ...], output: object, name: str = name) -> None:
                if watch in _WATCHES.get():  # and not in another thread
                    output = inputs if name.endswith(INPUT) else output
                    first = output[0] if isinstance(output, tuple) else output
                    first = first[-1] if isinstance(first, list) else first  # of a stack, the top layer's
                    assert isinstance(first, Tensor)
                    watch.seen[name].append(first)

            stack.callback(module.register_forward_hook(keep).remove)
        token = _WATCHES.set((*_WATCHES.get(), watch))
        try:
            yield watch.seen
        finally:
            _WATCHES.reset(token)


@contextmanager
def watching_layers(*, when: bool = True) -> Iterator[list[Tensor]]:
    """The vectors [B, T, D] of every layer of a model that is called in this block, with gradients.

    First the input of the first block, then the output of each; the last is what the model predicts from. With `when`
    False the block watches nothing, and the list stays empty.
    """
    layers: list[Tensor] = []
    token = _LAYERS.set(layers if when else None)
    try:
        yield layers
    finally:
        _LAYERS.reset(token)


def record_layer(*vectors: Tensor, unpack: Callable[[Tensor], Tensor] | None = None) -> None:
    """Give the vectors of a layer, or of several, to `watching_layers`; `unpack` makes rows [B, T, D] of them first."""
    layers = _LAYERS.get() if layers_watched() else None
    if layers is not None:
        layers += vectors if unpack is None else map(unpack, vectors)


def layers_watched() -> bool:
    """Whether the vectors of all layers are wanted here, so that no layer may take a shortcut."""
    return not torch.compiler.is_compiling() and _LAYERS.get() is not None


@contextmanager
def unwatched() -> Iterator[None]:
    """In this block nothing is watched: what a backward pass computes again is not recorded twice."""
    token, layers = _WATCHES.set(()), _LAYERS.set(None)
    try:
        yield
    finally:
        _WATCHES.reset(token)
        _LAYERS.reset(layers)


def is_watched(module: nn.Module | None = None) -> bool:
    """Whether the output of this module is watched here, or without one that of any module."""
    if torch.compiler.is_compiling():
        return False
    watches = _WATCHES.get()
    if module is None:
        return bool(watches)
    return any(module is each for watch in watches for each in watch.modules.values())
