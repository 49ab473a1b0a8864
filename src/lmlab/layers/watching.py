"""Looking inside a model: in the block of `watching`, named parts of it show what they give.

It holds for the thread (or task) that entered the block and for nobody else, so a model that answers several at once
can be watched by one of them. Attention computes its weights in the open only where its `probabilities` are watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from lmlab.config import suggest

Seen = dict[str, list[Tensor]]


class _Watch:
    """One block of `watching`: the modules that it looks at."""

    def __init__(self, modules: dict[str, nn.Module]) -> None:
        self.modules = modules
        self.seen: Seen = {name: [] for name in modules}


_WATCHES: ContextVar[tuple[_Watch, ...]] = ContextVar("watches", default=())


@contextmanager
def watching(model: nn.Module, *names: str) -> Iterator[Seen]:
    """By name, what these modules of a model give while the block runs, one tensor for each call.

    Names are those of `model.named_modules()`, such as "blocks.0" or "blocks.0.attention.probabilities", which are the
    attention weights [B, H, T, S]. Padded texts are worked on as rows [B, T, ·] meanwhile.
    """
    known = dict(model.named_modules())
    for name in names:
        if name not in known:
            raise ValueError(f"the model has no part {name!r}{suggest(name, known)}")
    watch = _Watch({name: known[name] for name in names})
    with ExitStack() as stack:
        for name, module in watch.modules.items():

            def keep(module: nn.Module, inputs: object, output: object, name: str = name) -> None:
                if watch in _WATCHES.get():  # and not in another thread
                    first = output[0] if isinstance(output, tuple) else output
                    assert isinstance(first, Tensor)
                    watch.seen[name].append(first)

            stack.callback(module.register_forward_hook(keep).remove)
        token = _WATCHES.set((*_WATCHES.get(), watch))
        try:
            yield watch.seen
        finally:
            _WATCHES.reset(token)


@contextmanager
def unwatched() -> Iterator[None]:
    """In this block nobody watches: what a backward pass computes once more is not seen twice."""
    token = _WATCHES.set(())
    try:
        yield
    finally:
        _WATCHES.reset(token)


def is_watched(module: nn.Module | None = None) -> bool:
    """Whether somebody is watching here: this module, or without one anything at all."""
    if torch.compiler.is_compiling():
        return False
    watches = _WATCHES.get()
    if module is None:
        return bool(watches)
    return any(module is each for watch in watches for each in watch.modules.values())
