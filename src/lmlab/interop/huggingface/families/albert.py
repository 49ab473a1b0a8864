"""ALBERT (`albert`): one block for all layers, as published."""

from __future__ import annotations

from lmlab.interop.huggingface.families.bert import ABSOLUTE, ENCODER_SETTINGS, GELU, OLD_NAMES, TEMPLATE
from lmlab.interop.huggingface.table import (
    SENTENCES,
    Architecture,
    Family,
    Only,
    OptionalPart,
    Setting,
    Weight,
    fused,
    linear,
    placed_heads,
    pooled_head,
)

BLOCK = "albert.encoder.albert_layer_groups.{}.albert_layers.0."

ALBERT = Family(
    kind="albert",
    model_type="albert",
    prefix="albert.",
    architectures=(
        Architecture("AlbertForPreTraining", {"head": True, "pairs": True, "pooler": True}),
        Architecture("AlbertForMaskedLM", {"head": True, "pairs": False}),
        Architecture("AlbertModel", {"head": False, "pairs": False}, prefixed=False),
    ),
    settings=(
        *ENCODER_SETTINGS,
        Setting("embedding_width", "embedding_size"),
        Setting("window", "max_position_embeddings"),
        Setting("gelu", "hidden_act", words=GELU, default="gelu_new"),
    ),
    options=(ABSOLUTE, Only("num_hidden_groups", (1,)), Only("inner_group_num", (1,))),
    weights=(
        Weight("embedding.weight", "albert.embeddings.word_embeddings.weight"),
        Weight("positions.weight", "albert.embeddings.position_embeddings.weight"),
        Weight("segments.weight", "albert.embeddings.token_type_embeddings.weight"),
        *linear("embedding_norm", "albert.embeddings.LayerNorm"),
        *linear("projection", "albert.encoder.embedding_hidden_mapping_in"),
        *fused(
            "blocks.{}.attention.query_key_value",
            *(f"{BLOCK}attention.{name}" for name in ("query", "key", "value")),
        ),
        *linear("blocks.{}.attention.projection", f"{BLOCK}attention.dense"),
        *linear("blocks.{}.attention_norm", f"{BLOCK}attention.LayerNorm"),
        *linear("blocks.{}.feed_forward.expand", f"{BLOCK}ffn"),
        *linear("blocks.{}.feed_forward.contract", f"{BLOCK}ffn_output"),
        *linear("blocks.{}.feed_forward_norm", f"{BLOCK}full_layer_layer_norm"),
        *linear("pooler", "albert.pooler"),
        *linear("pair", "sop_classifier.classifier"),
        *linear("output.transform", "predictions.dense"),
        *linear("output.norm", "predictions.LayerNorm"),
        Weight("output.softmax.bias", "predictions.bias"),
    ),
    parts=(
        OptionalPart("pooler", "albert.pooler.weight"),
        OptionalPart("pairs", "sop_classifier.classifier.weight"),
        OptionalPart("head", "predictions.dense.weight"),
    ),
    copies={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    ignored=(r"albert\.embeddings\.position_ids", r"albert\.embeddings\.token_type_ids"),
    renamed=OLD_NAMES,
    fixed={"direction": "both"},
    specials=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    template=TEMPLATE,
    sentencepiece={"lowercase": True, "strip_accents": True, "quotes": True},
    heads=(
        pooled_head(
            "AlbertForSequenceClassification",
            SENTENCES,
            dense="albert.pooler",
            out="classifier",
            dropout="classifier_dropout_prob",
        ),
        pooled_head(
            "AlbertForMultipleChoice",
            ("choice",),
            dense="albert.pooler",
            out="classifier",
            dropout="classifier_dropout_prob",
        ),
        *placed_heads("Albert", dropout="classifier_dropout_prob"),
    ),
    bare={"head": False, "pairs": False, "pooler": False},
)
