"""ELECTRA (`electra`): generator and discriminator are two models there, and two folders where a run has both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmlab.interop.huggingface.families.bert import ABSOLUTE, ENCODER_SETTINGS, OLD_NAMES, TEMPLATE, encoder
from lmlab.interop.huggingface.table import (
    SENTENCES,
    Architecture,
    Family,
    Only,
    OptionalPart,
    Setting,
    Weight,
    linear,
    placed_heads,
    pooled_head,
)


def fraction(ours: Mapping[str, Any]) -> float:
    """The size of the part that is written, against the discriminator's."""
    return float(ours["generator"]) if ours["parts"] == "generator" else 1.0


def inner(ours: Mapping[str, Any]) -> int:
    units: int = 4 * ours["width"] if ours["inner"] is None else ours["inner"]
    return round(fraction(ours) * units)


def folders(ours: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    if ours["parts"] == "both":
        return {"": {"parts": "discriminator"}, "generator": {"parts": "generator"}}
    return {"": {}}


SIZED = (
    Setting("width", "hidden_size", written=lambda ours: max(1, round(fraction(ours) * ours["width"]))),
    Setting("heads", "num_attention_heads", written=lambda ours: max(1, round(fraction(ours) * ours["heads"]))),
    Setting("inner", "intermediate_size", written=inner),
    Setting("embedding_width", "embedding_size", written=lambda ours: ours["embedding_width"] or ours["width"]),
)

SUMMARY = (
    Only("summary_type", ("first",)),
    Only("summary_use_proj", (True,)),
    Only("summary_activation", ("gelu",)),
    Only("summary_proj_to_labels", (False,)),
)
"""What choices are read by: their summary of a text can be made in other ways."""

ELECTRA = Family(
    kind="electra",
    model_type="electra",
    prefix="electra.",
    architectures=(
        Architecture("ElectraForPreTraining", {"parts": "discriminator", "head": True}),
        Architecture("ElectraForMaskedLM", {"parts": "generator", "head": True}),
        Architecture("ElectraModel", {"head": False}, prefixed=False),
    ),
    settings=(
        *SIZED,
        *(setting for setting in ENCODER_SETTINGS if setting.ours not in {sized.ours for sized in SIZED}),
        Setting("window", "max_position_embeddings"),
        Setting("gelu", "hidden_act", words={"gelu": "exact", "gelu_python": "exact"}, default="gelu"),
    ),
    options=(ABSOLUTE,),
    weights=(
        *encoder("discriminator.", "electra."),
        *linear("discriminator.projection", "electra.embeddings_project"),
        *linear("discriminator.detector", "discriminator_predictions.dense"),
        *linear("discriminator.detector_output", "discriminator_predictions.dense_prediction"),
        *encoder("generator.", "electra."),
        *linear("generator.projection", "electra.embeddings_project"),
        *linear("generator.output.transform", "generator_predictions.dense"),
        *linear("generator.output.norm", "generator_predictions.LayerNorm"),
        Weight("generator.output.softmax.bias", "generator_lm_head.bias"),
    ),
    parts=(
        OptionalPart("parts", "generator_predictions.dense.weight", present="generator", absent="discriminator"),
        OptionalPart("head", ("generator_predictions.dense.weight", "discriminator_predictions.dense.weight")),
    ),
    copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    ignored=(r"electra\.embeddings\.position_ids", r"electra\.embeddings\.token_type_ids"),
    renamed=OLD_NAMES,
    fixed={"direction": "both"},
    assumed={"generator": 1.0},
    specials=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    template=TEMPLATE,
    folders=folders,
    heads=(
        pooled_head(
            "ElectraForSequenceClassification",
            SENTENCES,
            dense="classifier.dense",
            out="classifier.out_proj",
            activation="gelu",
            dropout="classifier_dropout",
        ),
        pooled_head(
            "ElectraForMultipleChoice",
            ("choice",),
            dense="sequence_summary.summary",
            out="classifier",
            activation="gelu",
            dropout="summary_last_dropout",
            options=SUMMARY,
        ),
        *placed_heads("Electra"),
    ),
    bare={"head": False},
)
