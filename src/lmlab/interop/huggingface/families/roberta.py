"""RoBERTa (`roberta`) and XLM-R (`xlm-roberta`), which is the same network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lmlab.interop.huggingface.families.bert import ABSOLUTE, ENCODER_SETTINGS, OLD_NAMES, encoder
from lmlab.interop.huggingface.table import (
    SENTENCES,
    Adapted,
    Architecture,
    Family,
    OptionalPart,
    Setting,
    Weight,
    linear,
    placed_heads,
    pooled_head,
)

if TYPE_CHECKING:
    from torch import Tensor

POSITIONS = "positions.weight"


class PositionsAfterPadding:
    """They number positions from one after the padding token's number, and skip that token wherever it stands.

    So their padding must be a token that stands in no text: our tokenizer's, and its number decides how many idle rows
    the table begins with. Ours are kept in `lmlab.json`, to have the run back bit by bit.
    """

    def write(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], *, pad: int | None) -> Adapted:
        offset, table = values["offset"], tensors[POSITIONS]
        if pad is None or pad + 1 == offset:
            return Adapted(values, tensors, None)
        idle = table.new_zeros(pad + 1, table.shape[1])
        undo = {"offset": offset, "idle": table[:offset].tolist()}
        rebased = table.new_zeros(pad + 1 + len(table) - offset, table.shape[1])
        rebased[len(idle) :] = table[offset:]
        return Adapted({**values, "offset": pad + 1}, {**tensors, POSITIONS: rebased}, undo)

    def read(self, adapted: Adapted) -> tuple[dict[str, Any], dict[str, Tensor]]:
        values, tensors, undo = adapted
        assert undo is not None
        table = tensors[POSITIONS][values["offset"] :]
        restored = table.new_zeros(undo["offset"] + len(table), table.shape[1])
        restored[undo["offset"] :] = table
        if undo["offset"]:
            restored[: undo["offset"]] = restored.new_tensor(undo["idle"])
        return {**values, "offset": undo["offset"]}, {**tensors, POSITIONS: restored}


ROBERTA = Family(
    kind="roberta",
    model_type="roberta",
    prefix="roberta.",
    architectures=(
        Architecture("RobertaForMaskedLM", {"head": True}),
        Architecture("RobertaModel", {"head": False}, prefixed=False),
    ),
    settings=(
        *ENCODER_SETTINGS,
        Setting("offset", "pad_token_id", plus=-1),
        Setting("window", "max_position_embeddings", plus="offset"),
        Setting("gelu", "hidden_act", words={"gelu": "exact", "gelu_python": "exact"}, default="gelu"),
    ),
    options=(ABSOLUTE,),
    weights=(
        *encoder("", "roberta."),
        *linear("pooler", "roberta.pooler.dense"),
        *linear("output.transform", "lm_head.dense"),
        *linear("output.norm", "lm_head.layer_norm"),
        Weight("output.softmax.bias", "lm_head.bias"),
    ),
    parts=(OptionalPart("pooler", "roberta.pooler.dense.weight"), OptionalPart("head", "lm_head.dense.weight")),
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    ignored=(r"roberta\.embeddings\.position_ids", r"roberta\.embeddings\.token_type_ids"),
    renamed=OLD_NAMES,
    fixed={"direction": "both", "pairs": False, "gelu": "exact"},
    specials=("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    template=("cls $A sep", "cls $A sep sep $B sep"),
    adaptation=PositionsAfterPadding(),
    heads=(
        pooled_head(
            "RobertaForSequenceClassification",
            SENTENCES,
            dense="classifier.dense",
            out="classifier.out_proj",
            dropout="classifier_dropout",
        ),
        pooled_head(
            "RobertaForMultipleChoice",
            ("choice",),
            dense="roberta.pooler.dense",
            out="classifier",
            dropout="hidden_dropout_prob",
        ),
        *placed_heads("Roberta"),
    ),
    bare={"head": False, "pooler": False},
)

XLM_ROBERTA = replace(
    ROBERTA,
    kind="xlm-r",
    model_type="xlm-roberta",
    architectures=tuple(
        replace(architecture, name=f"XLM{architecture.name}") for architecture in ROBERTA.architectures
    ),
    heads=tuple(replace(head, name=f"XLM{head.name}") for head in ROBERTA.heads),
)
