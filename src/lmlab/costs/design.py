"""What the sum on paper needs to know of a model: numbers that hold before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lmlab.config import suggest
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.costs.shapes import PUBLISHED, SHAPES, Published
from lmlab.models import LINEAGE, create, load_class
from lmlab.models.model import Model, detach_state

VOCABULARY = 4096
"""That of lmlab's default tokenizer, bpe:4096."""
VOCABULARIES = {"gpt": 40478, "gpt2": 50257, "transformer-xl": 267735}
"""Those of the published sizes; of Transformer-XL's on WikiText-103."""
OWN_SIZES = ("tiny", "small", "base")
"""Presets that every file has and no paper."""
SEGMENT = 64
"""Tokens in a row of a model without a window, as in training by default."""


class Design(NamedTuple):
    """A model as far as its costs go."""

    name: str
    size: str
    basis: str  # where the numbers come from
    parameters: Parameters
    thrown_away: int  # parameters that only training needs: prediction heads, ELECTRA's generator
    block: int  # parameters of the largest block, what FSDP gathers at a time
    vocabulary: int
    window: int  # tokens in a row
    mean_window: int  # tokens in the mean row of training, for the FLOPs
    predicted: float  # share of the tokens at which scores over the vocabulary are computed
    forward_flops: float  # per token
    activations: Callable[[int], float]  # rows -> bytes that wait for the backward pass, in fp32; scores left out
    unit: str  # what is counted as one token
    published: Published | None


def describe(
    name: str,
    *,
    size: str | None = None,
    settings: Mapping[str, Any] | None = None,
    vocabulary: int | None = None,
    window: int | None = None,
) -> Design:
    """A system of the lineage from its own file, or a published one that has no file yet from its shape."""
    if name in LINEAGE and (size is None or size in load_class(name).SIZES or name not in SHAPES):
        return _from_file(name, size, dict(settings or {}), vocabulary, window)
    if name in SHAPES:
        return _from_shape(name, size, dict(settings or {}), vocabulary, window)
    raise ValueError(f"unknown system {name!r}{suggest(name, [*LINEAGE, *SHAPES])}")


def _from_file(
    name: str, size: str | None, settings: dict[str, Any], vocabulary: int | None, window: int | None
) -> Design:
    """Build the model on torch's meta device, which computes shapes but neither stores nor calculates anything."""
    cls = load_class(name)
    if not issubclass(cls, nn.Module):
        raise ValueError(
            f"{name} is counted, not trained: its parameters are the different n-grams of the text, which no sum on "
            f"paper knows, and one pass takes seconds; try it: lmlab train {name} TEXT -o RUN"
        )
    size = size or ("small" if "small" in cls.SIZES else next(iter(cls.SIZES)))
    if vocabulary is None:
        vocabulary = settings.get("vocabulary") or (
            VOCABULARY if size in OWN_SIZES else VOCABULARIES.get(name, VOCABULARY)
        )
    with torch.device("meta"):
        model = create(name, {**settings, "vocabulary": vocabulary}, size=size).train()
    window = min(window or model.window or SEGMENT, model.window or window or SEGMENT)
    blocks = [sum(p.numel() for p in block.parameters()) for block in getattr(model, "blocks", [])]
    parameters = count_parameters(model)
    return Design(
        name=name,
        size=size,
        basis=f"counted on models/{LINEAGE[name].where.split(':')[0].rsplit('.', 1)[-1]}.py",
        parameters=parameters,
        thrown_away=0,
        block=max(blocks, default=parameters.total),
        vocabulary=vocabulary,
        window=window,
        mean_window=window,
        predicted=1.0,
        forward_flops=model.flops(window),
        activations=_Activations(model, window),
        unit="token",
        published=_published(name, size, parameters.total) if not settings else None,
    )


class _Activations:
    """Bytes by rows: some are there once and the others for each row, so two passes tell them all."""

    def __init__(self, model: Model, window: int) -> None:
        self._model, self._window = model, window

    def __call__(self, rows: int) -> float:
        one, two = self._measured
        return one + (rows - 1) * (two - one)

    @cached_property
    def _measured(self) -> tuple[float, float]:
        return _saved_bytes(self._model, 1, self._window), _saved_bytes(self._model, 2, self._window)


def _saved_bytes(model: Model, rows: int, window: int) -> float:
    """Bytes of what autograd keeps of one forward pass, each storage once, the weights left out.

    A memory is filled first. The T x T weights of a windowed model are left out: its fused attention does not keep them
    (on torch's meta device there is no fused one).
    """
    known = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    tokens = torch.zeros(rows, window, dtype=torch.long, device="meta")
    state = model.start(rows) if model.carries else None
    for _ in range(math.ceil(getattr(model.config, "memory", 0) / window)):
        state = detach_state(model(tokens, state=state).state)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(tokens, state=state)
    fused = model.window is not None
    return float(
        sum(
            tensor.untyped_storage().nbytes()
            for key, tensor in kept.items()
            if key not in known and not (fused and tensor.ndim > 2 and tensor.shape[-2:] == (window, window))
        )
    )


def _from_shape(
    name: str, size: str | None, settings: dict[str, Any], vocabulary: int | None, window: int | None
) -> Design:
    sizes = SHAPES[name]
    size = size or next(iter(sizes))
    if size not in sizes:
        raise ValueError(f"unknown size {size!r} of {name}{suggest(size, sizes)}")
    if vocabulary is not None:
        settings["vocabulary"] = vocabulary
    shape = sizes[size].changed(settings)
    length = window or shape.window
    mean = window or shape.mean_window
    return Design(
        name=name,
        size=size,
        basis=f"formulas over the shape in {shape.source}",
        parameters=shape.parameters(),
        thrown_away=shape.thrown_away(),
        block=shape.block(),
        vocabulary=shape.vocabulary,
        window=length,
        mean_window=mean,
        predicted=shape.predicted,
        forward_flops=shape.forward_flops(mean),
        activations=lambda rows: rows * shape.activation_bytes(length),
        unit=shape.unit,
        published=_published(name, size, shape.parameters().total) if not settings else None,
    )


def _published(name: str, size: str, parameters: int) -> Published | None:
    """What was published of this size; nothing, if a file has come to use the size's name for something else."""
    found = PUBLISHED.get((name, size))
    return found if found is not None and abs(parameters / found.parameters - 1) < 0.15 else None
