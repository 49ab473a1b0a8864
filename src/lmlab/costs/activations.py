"""Activation memory: the bytes that autograd saves for the backward pass, measured on torch's meta device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from lmlab.layers.recurrent import Layer
from lmlab.models.abilities import (
    Detects,
    FillsInOrder,
    FillsMasks,
    MatchesPictures,
    WritesTarget,
    ability,
    require,
)
from lmlab.models.model import Filler, Model
from lmlab.models.states import detach_state

SHORT = (2, 4, 8)
"""Tokens in the short rows from which the memory of a recurrent net is estimated."""


class Activations:
    """Activation memory in bytes as a function of the batch size.

    It is linear in the number of rows, so two forward passes are enough. `model` is on torch's meta device;
    `predicted` is the fraction of the tokens at which scores are computed.
    """

    def __init__(self, model: Model, window: int, *, predicted: float) -> None:
        self._model, self._window, self._predicted = model, window, predicted

    def __call__(self, rows: int) -> float:
        one, two = self._measured
        return one + (rows - 1) * (two - one)

    @cached_property
    def _measured(self) -> tuple[float, float]:
        return self._at(1), self._at(2)

    def _at(self, rows: int) -> float:
        """Activation memory of a batch; for recurrent nets extrapolated from short rows.

        On the meta device recurrent nets run slowly, step by step. Their memory grows with the length, and with its
        square if there is attention.
        """
        recurrent = any(isinstance(module, Layer) for module in self._model.modules())
        if not recurrent or self._window <= SHORT[-1]:
            return self._kept(rows, self._window)
        curve = np.polyfit(SHORT, [self._kept(rows, length) for length in SHORT], 2)
        return float(np.polyval(curve, self._window))

    def _kept(self, rows: int, window: int) -> float:
        """Bytes that autograd saves in one forward pass, each storage once, without weights and vocabulary scores.

        A model with a memory gets it filled first.
        """
        model = self._model
        known = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        kept: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            kept.setdefault(tensor.untyped_storage()._cdata, tensor)
            return tensor

        inputs = model.blank_inputs(rows, window)
        state = cast(Any, model).start(rows) if model.stateful else None
        for _ in range(math.ceil(getattr(model.config, "memory", 0) / window)):
            state = detach_state(model(**inputs, state=state).state)
        with saved_tensors_hooks(keep, lambda tensor: tensor), _FusedAttention(keep):
            if (matcher := ability(model, MatchesPictures)) is not None:
                matcher.embed_pictures(**inputs)
                matcher.embed_texts(torch.zeros(rows, window, dtype=torch.long, device=model.device))
            elif ability(model, WritesTarget) is not None and model.main_input == "source":
                model(**inputs, source=inputs["tokens"])
            elif ability(model, FillsMasks) is not None:
                fill_masks(model, inputs["tokens"], masks=max(1, round(self._predicted * window)))
            else:
                model(**inputs, state=state)
        return float(sum(tensor.untyped_storage().nbytes() for key, tensor in kept.items() if key not in known))


def fill_masks(model: Model, tokens: Tensor, *, masks: int) -> None:
    """A forward pass of pre-training over tokens [B, T], up to the vectors from which the scores are computed."""
    filler = require(model, FillsMasks)
    assert isinstance(filler, Filler)
    if isinstance(filler, FillsInOrder):  # its output layer saves nothing more
        positions = torch.arange(masks, device=tokens.device).expand(len(tokens), -1)
        filler.read(tokens=tokens, at=positions)
        return
    cast(Any, filler.head)(filler.read(tokens=tokens)[:, :masks])
    if (detector := ability(model, Detects)) is not None:
        detector.detect(tokens=tokens)


class _FusedAttention(TorchFunctionMode):
    """Count what fused attention saves: queries, keys, values and the result, not the T x T weights.

    The meta device has no fused kernel.
    """

    def __init__(self, keep: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._keep = keep

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            z = func(*args, **(kwargs or {}))
        for tensor in (*args[:3], z) if torch.is_grad_enabled() else ():  # reversible layers save nothing
            self._keep(tensor)
        return z
