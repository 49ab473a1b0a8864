"""Finding and making models by name. Nothing heavy is imported before a class is needed.

A model's file has what differs from its ancestor: the forward pass of GPT-2 and LLaMA is `GPT.forward` in gpt.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lmlab.messages import suggest
from lmlab.models.defaults import ARCHITECTURES as ARCHITECTURES
from lmlab.models.defaults import LEFT_TO_RIGHT, SENTENCES
from lmlab.models.defaults import LINEAGE as LINEAGE
from lmlab.models.defaults import System as System

if TYPE_CHECKING:
    from lmlab.models.model import Model
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame


def find(name: str) -> System:
    """The system, or the network trained from scratch, called `name`; a ValueError names the nearest system."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if name not in LINEAGE:
        raise ValueError(f"unknown model {name!r}{suggest(name, LINEAGE)}")
    return LINEAGE[name]


def lineage_number(name: str) -> int:
    """The position of a system in the lineage, from 0 on; its end for other names."""
    return list(LINEAGE).index(name) if name in LINEAGE else len(LINEAGE)


def systems_that_read(kind: str) -> list[str]:
    """The names of the systems that learn from a kind of data (`text`, `images`), in the order of the years."""
    return [name for name, system in LINEAGE.items() if kind in system.reads]


def system_of(model: object) -> System | None:
    """The first row of the lineage for the class of a model, or for the class that it is derived from; None: no row.

    A class may be given in place of a model.
    """
    rows = {row.where: row for row in reversed((*LINEAGE.values(), *ARCHITECTURES.values()))}
    classes = (model if isinstance(model, type) else type(model)).__mro__
    return next((rows[where] for cls in classes if (where := f"{cls.__module__}:{cls.__qualname__}") in rows), None)


def name_of(model: object) -> str:
    """The name of a model in the lineage; for a class without a row, the name of the class.

    An object that shows another model has it as `viewed`.
    """
    model = getattr(model, "viewed", model)
    system = system_of(model)
    return type(model).__name__ if system is None else system.name


def frame_of(
    model: object, tokenizer: Tokenizer, source_tokenizer: Tokenizer | None = None, *, backwards: bool = False
) -> Frame:
    """The frame that a model's system has by default; its config may have a `start` of its own.

    Without a row in the lineage, as for a part of a model, it is the frame of BERT or the one of GPT.
    """
    from lmlab.models.model import EncoderModel
    from lmlab.tokenizers.frames import make_frame

    system = system_of(model)
    usual = SENTENCES if isinstance(model, EncoderModel) else LEFT_TO_RIGHT
    templates = usual if system is None else system.frame
    start: int | None = getattr(getattr(model, "config", None), "start", None)
    return make_frame(templates, tokenizer, source_tokenizer, start=start, backwards=backwards)


def load_class(name: str) -> Any:
    """The class of the system called `name`, imported now."""
    module, _, attribute = find(name).where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def create(name: str, values: Mapping[str, Any], *, size: str | None = None) -> Model:
    """A new model: the preset `size`, then `values` over it."""
    from lmlab.config import build

    cls = load_class(name)
    preset = find(name).preset(size) if size is not None else {}
    model: Model = cls(build(cls.Config, {**preset, **values}, where="model"))
    return model


def outline(name: str, values: Mapping[str, Any]) -> Model:
    """The model with these settings on torch's meta device: shapes and abilities, without memory for its weights.

    What only the data know, such as the size of a vocabulary, need not be given.
    """
    import torch

    with torch.device("meta"):
        return create(name, {**load_class(name).Config.PLACEHOLDERS, **values})
