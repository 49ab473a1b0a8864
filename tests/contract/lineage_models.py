"""A tiny model of every system of the lineage, and inputs for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmlab.config import build
from lmlab.models import LINEAGE, find, load_class, systems_that_read
from lmlab.models.abilities import PredictsNext, require

VOCABULARY = 23
BOUNDARY = 0
SMALL: dict[str, Any] = {
    "width": 16,
    "hidden": 16,
    "cells": 20,
    "filters": [[1, 6], [2, 6], [3, 6]],
    "heads": 2,
    "layers": 2,
    "window": 24,
    "memory": 24,
    "order": 3,
    "dropout": 0.0,
    "input_dropout": 0.0,
    "hidden_dropout": 0.0,
    "embedding_dropout": 0.0,
    "weight_dropout": 0.0,
    "embedding_width": 8,
    "inner": 20,
    "tricks": "pre",
    "image": [8, 8],
    "channels": 1,
    "region_width": 7,
    "picture_width": 12,
    "picture_heads": 2,
    "joint_width": 16,
    "joint_heads": 2,
    "states": 3,
    "actions": 2,
    "discrete": True,
    "longest": 50,
}
NETWORKS = [name for name in systems_that_read("text") if name != "ngram"]
PREDICT_NEXT = [name for name, system in LINEAGE.items() if "next token" in system.does]


def make(name: str, **changes: Any) -> Any:
    """A tiny model of any system, in evaluation mode: the settings of SMALL that it has."""
    cls = load_class(name)
    smallest = next(iter(find(name).sizes.values()))
    values = {**smallest, "vocabulary": VOCABULARY, **SMALL, "boundary": BOUNDARY, **changes}
    known = {key: value for key, value in values.items() if key in cls.Config.model_fields}
    config = build(cls.Config, known, where="model")
    torch.manual_seed(0)
    if issubclass(cls, nn.Module):
        return cls(config).eval()
    stream = np.random.default_rng(0).integers(0, VOCABULARY, 400).astype(np.uint16)
    return cls.fit(stream, config=config)


def reader(name: str, **changes: Any) -> Any:
    """What of a tiny model predicts the next token: itself, or a part of it."""
    return require(make(name, **changes), PredictsNext)


def tokens(*shape: int, seed: int = 1) -> Tensor:
    """Random tokens, the boundary among them."""
    return torch.randint(0, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))
