"""Pre-training variants: an objective makes blanks, the model fills them. The table imports no objective."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lmlab.config import build, suggest

if TYPE_CHECKING:
    from lmlab.objectives.objective import Objective
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame

OBJECTIVES: dict[str, str] = {
    "causal": "lmlab.objectives.causal:Causal",
    "bidirectional": "lmlab.objectives.bidirectional:Bidirectional",
    "masked": "lmlab.objectives.masked:Masked",
    "permutation": "lmlab.objectives.permutation:Permutation",
    "replaced": "lmlab.objectives.replaced_tokens:Replaced",
    "seq2seq": "lmlab.objectives.seq2seq:Seq2Seq",
    "denoising": "lmlab.objectives.denoising:Denoising",
    "negative_sampling": "lmlab.objectives.negative_sampling:NegativeSampling",
}

TASKS: dict[str, str] = {
    "classification": "lmlab.tasks.classification:Classification",
    "regression": "lmlab.tasks.regression:Regression",
    "choice": "lmlab.tasks.choice:Choice",
    "tagging": "lmlab.tasks.tagging:Tagging",
    "spans": "lmlab.tasks.spans:Spans",
}
"""Objectives over labelled examples: any model that has vectors learns them (lmlab finetune)."""


def load_objective(kind: str) -> Any:
    """The class of the objective called `kind`, imported now; a ValueError names the nearest one."""
    table = {**OBJECTIVES, **TASKS}
    if kind not in table:
        raise ValueError(f"unknown objective {kind!r}{suggest(kind, OBJECTIVES)}")
    module, _, attribute = table[kind].partition(":")
    return getattr(importlib.import_module(module), attribute)


def create_objective(settings: Mapping[str, Any], tokenizer: Tokenizer | None, frame: Frame | None) -> Objective:
    """An objective from its settings, of which `kind` is one, for texts of a tokenizer in the frame of a model.

    Both are None where no text is read.
    """
    values = dict(settings)
    cls = load_objective(str(values.pop("kind")))
    objective: Objective = cls(build(cls.Config, values, where="objective"), tokenizer, frame)
    return objective
