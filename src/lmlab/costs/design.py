"""Designs: the numbers about a model that a cost estimate needs, all known before training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from lmlab.config import build, suggest
from lmlab.costs.activations import Activations
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.costs.published import PUBLISHED, PublishedSize
from lmlab.costs.shapes import SHAPES
from lmlab.models import LINEAGE, create, find, load_class
from lmlab.models.abilities import MatchesPictures, Transcribes, WritesTarget, ability
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives import load_objective
from lmlab.tokenizers import parse

SEGMENT = 64
"""Tokens in a row of a model without a window, as in training by default."""
SENTENCE = 30
"""Mean tokens per sentence for translators, about as in WMT."""
BYTES = 257
"""Tokens of a tokenizer of bytes: all bytes, and the boundary."""
MANY_LAYERS = 64
"""Models with more layers are extrapolated from a few layers: building a million of them would take minutes."""
FEW_LAYERS = (3, 4)
FROM_DATA = ("image", "channels", "region_width", "states", "actions", "discrete", "longest")
"""Settings that the data give; without data usual ones (`Config.PLACEHOLDERS`): 224 × 224 pixels in colour, 2048 …"""
WORDS = 10_000
"""The vocabulary of a tokenizer that has all words of its text."""
BARE = {"head": False, "pairs": False, "parts": "discriminator"}
"""Encoder settings for the model that remains after pre-training: without heads and without ELECTRA's generator."""


class Design(NamedTuple):
    """The properties of a model that determine its cost."""

    name: str
    size: str
    basis: str  # where the numbers come from
    settings: dict[str, Any] | None  # settings of the model; None if lmlab does not implement it
    parameters: Parameters
    pretraining_only: int  # parameters that only training needs: prediction heads, ELECTRA's generator
    block: int  # parameters of the largest block, which FSDP gathers at once
    vocabulary: int
    window: int  # tokens in a row
    mean_window: int  # tokens in the mean row of training, for the FLOPs
    predicted: float  # fraction of the tokens at which scores over the vocabulary are computed
    forward_flops: float  # per token
    backward_flops: float  # of the backward pass, per token; twice the forward pass, more if layers are recomputed
    activations: Callable[[int], float]  # rows -> bytes saved for the backward pass, in fp32, without scores
    unit: str  # what is counted as one token
    published: PublishedSize | None

    @property
    def training_flops(self) -> float:
        """Per token, of the forward and backward pass."""
        return self.forward_flops + self.backward_flops


def describe(
    name: str,
    *,
    size: str | None = None,
    settings: Mapping[str, Any] | None = None,
    vocabulary: int | None = None,
    window: int | None = None,
) -> Design:
    """Describe a model that lmlab implements, or a published one by its shape."""
    if name in LINEAGE:
        return _from_file(name, size, dict(settings or {}), vocabulary, window)
    if name in SHAPES:
        return _from_shape(name, size, dict(settings or {}), vocabulary, window)
    raise ValueError(f"unknown model {name!r}{suggest(name, [*LINEAGE, *SHAPES])}")


def _from_file(
    name: str, size: str | None, settings: dict[str, Any], vocabulary: int | None, window: int | None
) -> Design:
    """Build the model on torch's meta device, which computes shapes only, without memory or time."""
    cls = load_class(name)
    for deep in ("layers", "decoder_layers"):
        layers = settings.get(deep)
        if deep in cls.Config.model_fields and isinstance(layers, int) and layers > MANY_LAYERS:
            few, more = (_from_file(name, size, {**settings, deep: n}, vocabulary, window) for n in FEW_LAYERS)
            return _deepened(few, more, (layers - FEW_LAYERS[0]) // (FEW_LAYERS[1] - FEW_LAYERS[0]), {deep: layers})
    if find(name).trained_by == "counting":
        raise ValueError(
            f"{name}: the cost of an n-gram model cannot be computed in advance, because its parameters are the "
            f"distinct n-grams of the text; counting takes seconds, so try it: lmlab train {name} TEXT -o RUN"
        )
    if settings.get("parts", "both") != "both":
        raise ValueError(
            f"model.parts = {settings['parts']!r}: {name} is pre-trained with both parts; omit this setting"
        )
    system = find(name)
    size = size or system.default_size
    paper = PUBLISHED.get((name, size))
    known = _vocabularies(cls, system.tokenizer, paper, settings, vocabulary)
    known |= {key: value for key, value in cls.Config.PLACEHOLDERS.items() if key in FROM_DATA and key not in settings}
    with torch.device("meta"):
        model = create(name, {**settings, **known}, size=size).train()
        bare = {key: value for key, value in BARE.items() if key in cls.Config.model_fields}
        left = create(name, {**settings, **known, **bare}, size=size) if bare else model
    length = min(window or model.window or SEGMENT, model.window or window or SEGMENT)
    mean = length
    if system.objective["kind"] == "seq2seq":
        mean = min(length, SENTENCE)
    elif window is None and paper is not None and paper.mean_window is not None:
        mean = paper.mean_window
    predicted = 0.0 if ability(model, MatchesPictures) is not None else _predicted(system.objective)
    parameters = count_parameters(left)
    as_published = paper is not None and not settings and known.get("vocabulary", 0) == paper.vocabulary
    return Design(
        name=name,
        size=size,
        basis=f"counted on models/{LINEAGE[name].where.split(':')[0].rsplit('.', 1)[-1]}.py",
        settings={**settings, **known},
        parameters=parameters,
        pretraining_only=count_parameters(model).total - parameters.total,
        block=max(_blocks(model), default=parameters.total),
        vocabulary=known.get("vocabulary", 0),
        window=length,
        mean_window=mean,
        predicted=predicted,
        forward_flops=model.pretraining_flops(mean, predicted=predicted),
        backward_flops=_backward_flops(model, mean, predicted),
        activations=Activations(model, length, predicted=predicted),
        unit=_unit(model),
        published=paper if as_published else None,
    )


def _unit(model: Model) -> str:
    """What is counted as one token."""
    if "vocabulary" not in type(model).Config.model_fields:
        return "picture" if model.main_input == "pixels" else "step of an episode"
    if ability(model, MatchesPictures) is not None:
        return "pair of a picture and a text"
    if model.main_input == "pixels":
        return "picture with its text"
    if ability(model, Transcribes) is not None:
        return "token with its share of a whole window of sound"
    return "token" if ability(model, WritesTarget) is None else "pair of a source and a target token"


def _deepened(few: Design, more: Design, steps: int, settings: dict[str, int]) -> Design:
    """Extrapolate a deep design from two shallow ones: each further layer adds the same to every number."""

    def grown(one: float, two: float) -> float:
        return one + steps * (two - one)

    return few._replace(
        settings={**(few.settings or {}), **settings},
        parameters=Parameters(*(int(grown(a, b)) for a, b in zip(few.parameters, more.parameters, strict=True))),
        pretraining_only=int(grown(few.pretraining_only, more.pretraining_only)),
        block=max(few.block, more.block),
        forward_flops=grown(few.forward_flops, more.forward_flops),
        backward_flops=grown(few.backward_flops, more.backward_flops),
        activations=lambda rows: grown(few.activations(rows), more.activations(rows)),
    )


def _vocabularies(
    cls: type[Model], tokenizer: str | None, paper: PublishedSize | None, settings: Mapping[str, Any], given: int | None
) -> dict[str, Any]:
    """The vocabulary size: given, published, or of the default tokenizer; none for models without tokens."""
    if "vocabulary" not in cls.Config.model_fields:
        return {}
    found = given or settings.get("vocabulary")
    if found is not None:
        return {"vocabulary": found}
    if paper is None:
        assert tokenizer is not None, f"{cls.__name__} has a vocabulary, but no tokenizer"
        return {"vocabulary": BYTES if parse(tokenizer).kind == "bytes" else parse(tokenizer).size or WORDS}
    known: dict[str, Any] = {"vocabulary": paper.vocabulary}
    if paper.source_vocabulary is not None and "source_vocabulary" not in settings:
        known["source_vocabulary"] = paper.source_vocabulary
    return known


def _predicted(objective: Mapping[str, Any]) -> float:
    """The fraction of the tokens that are predicted: all, or those that the objective masks."""
    values = dict(objective)
    config = build(load_objective(values.pop("kind")).Config, values, where="objective")
    return float(getattr(config, "masking_rate", 1.0))


def _blocks(model: Model) -> list[int]:
    """The parameters of each block, of every stack that the model has."""
    found = [getattr(module, "blocks", None) for module in model.modules()]
    stacks = [stack for stack in found if isinstance(stack, nn.ModuleList)]
    return [sum(weight.numel() for weight in block.parameters()) for stack in stacks for block in stack]


def _backward_flops(model: Model, window: int, predicted: float) -> float:
    """Per token, of pre-training."""
    again = (model.training_passes(window) - PASSES) * model.body_flops(window, memory_length=model.memory)
    return (PASSES - 1) * model.pretraining_flops(window, predicted=predicted) + again


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
    return Design(
        name=name,
        size=size,
        basis=f"formulas over the shape in {shape.source}",
        settings=None,
        parameters=shape.parameters(),
        pretraining_only=0,
        block=shape.block,
        vocabulary=shape.vocabulary,
        window=length,
        mean_window=length,
        predicted=1.0,
        forward_flops=shape.forward_flops(length),
        backward_flops=(PASSES - 1) * shape.forward_flops(length),
        activations=lambda rows: rows * shape.activation_bytes(length),
        unit="token",
        published=PUBLISHED[name, size] if shape == sizes[size] else None,
    )
