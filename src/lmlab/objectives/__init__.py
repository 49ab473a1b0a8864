"""Pre-training variants: each objective makes batches and computes the loss. The table imports no objective."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lmlab.config import build, suggest

if TYPE_CHECKING:
    from lmlab.data.corpora.corpus import Corpus, Processor
    from lmlab.objectives.objective import Objective
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame
    from lmlab.tokenizers.processors.sequences import SequenceTokenizer

OBJECTIVES: dict[str, str] = {
    "causal": "lmlab.objectives.causal:Causal",
    "bidirectional": "lmlab.objectives.bidirectional:Bidirectional",
    "masked": "lmlab.objectives.masked:Masked",
    "permutation": "lmlab.objectives.permutation:Permutation",
    "replaced": "lmlab.objectives.replaced_tokens:Replaced",
    "seq2seq": "lmlab.objectives.seq2seq:Seq2Seq",
    "transcription": "lmlab.objectives.transcription:Transcription",
    "captioning": "lmlab.objectives.captioning:Captioning",
    "denoising": "lmlab.objectives.denoising:Denoising",
    "contrastive": "lmlab.objectives.contrastive:Contrastive",
    "masked_captions": "lmlab.objectives.masked_captions:MaskedCaptions",
    "instructions": "lmlab.objectives.instructions:Instructions",
    "actions": "lmlab.objectives.actions:Actions",
    "negative_sampling": "lmlab.objectives.negative_sampling:NegativeSampling",
}

TASKS: dict[str, str] = {
    "classification": "lmlab.tasks.classification:Classification",
    "regression": "lmlab.tasks.regression:Regression",
    "choice": "lmlab.tasks.choice:Choice",
    "tagging": "lmlab.tasks.tagging:Tagging",
    "spans": "lmlab.tasks.spans:Spans",
    "picture_classification": "lmlab.tasks.pictures:PictureClassification",
    "picture_texts": "lmlab.tasks.picture_texts:PictureTexts",
    "visual_questions": "lmlab.tasks.visual_questions:VisualQuestions",
}
"""Objectives over labelled examples: any model that has vectors learns them (lmlab finetune)."""


def load_objective(kind: str) -> Any:
    """The class of the objective called `kind`, imported now; a ValueError names the nearest one."""
    table = {**OBJECTIVES, **TASKS}
    if kind not in table:
        raise ValueError(f"unknown objective {kind!r}{suggest(kind, OBJECTIVES)}")
    module, _, attribute = table[kind].partition(":")
    return getattr(importlib.import_module(module), attribute)


def create_objective(
    settings: Mapping[str, Any],
    tokenizer: Tokenizer | SequenceTokenizer | None,
    frame: Frame | None,
    processor: Processor | None = None,
) -> Objective:
    """Create an objective from its settings, which include `kind`, for a tokenizer and a frame.

    Both are None where no tokens are read; tokens that are not text have no frame. `processor` is that of pictures or
    sounds.
    """
    from lmlab.objectives.objective import ReadsMedia

    values = dict(settings)
    kind = str(values.pop("kind"))
    cls = load_objective(kind)
    objective: Objective = cls(build(cls.Config, values, where="objective"), tokenizer, frame)
    if isinstance(objective, ReadsMedia):
        if processor is None:
            raise ValueError(f"{kind} needs the processor of its data, and there is no processor.json")
        objective.process_by(processor)
    return objective


def complete_settings(settings: Mapping[str, Any], corpus: Corpus) -> dict[str, Any]:
    """The settings of an objective with those that only the data know."""
    values = dict(settings)
    cls = load_objective(str(values.pop("kind")))
    found: dict[str, Any] = cls.settings_from_corpus(build(cls.Config, values, where="objective"), corpus)
    return {**settings, **found}
