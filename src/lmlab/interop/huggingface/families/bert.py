"""BERT (`bert`), also the multilingual one, and encoders without a head such as MiniLM's."""

from __future__ import annotations

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

GELU = {"gelu": "exact", "gelu_python": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}

ENCODER_SETTINGS = (
    Setting("vocabulary", "vocab_size"),
    Setting("width", "hidden_size"),
    Setting("heads", "num_attention_heads"),
    Setting("layers", "num_hidden_layers"),
    Setting("segments", "type_vocab_size"),
    Setting("dropout", "hidden_dropout_prob", default=0.1),
    Setting(
        "inner",
        "intermediate_size",
        written=lambda ours: 4 * ours["width"] if ours["inner"] is None else ours["inner"],
    ),
    Setting(
        "attention_dropout",
        "attention_probs_dropout_prob",
        default=0.1,
        written=lambda ours: ours["dropout"] if ours["attention_dropout"] is None else ours["attention_dropout"],
    ),
    Setting("epsilon", "layer_norm_eps", default=1e-12),
)
"""What the encoders that descend from BERT have in common."""

ABSOLUTE = Only("position_embedding_type", ("absolute",))
OLD_NAMES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
TEMPLATE = ("cls $A sep", "cls $A sep $B:1 sep:1")


def encoder(ours: str, prefix: str) -> tuple[Weight, ...]:
    """The rows of embeddings and blocks, for a body of ours and theirs."""
    layer = f"{prefix}encoder.layer.{{}}."
    return (
        Weight(f"{ours}embedding.weight", f"{prefix}embeddings.word_embeddings.weight"),
        Weight(f"{ours}positions.weight", f"{prefix}embeddings.position_embeddings.weight"),
        Weight(f"{ours}segments.weight", f"{prefix}embeddings.token_type_embeddings.weight"),
        *linear(f"{ours}embedding_norm", f"{prefix}embeddings.LayerNorm"),
        *fused(
            f"{ours}blocks.{{}}.attention.query_key_value",
            *(f"{layer}attention.self.{name}" for name in ("query", "key", "value")),
        ),
        *linear(f"{ours}blocks.{{}}.attention.projection", f"{layer}attention.output.dense"),
        *linear(f"{ours}blocks.{{}}.attention_norm", f"{layer}attention.output.LayerNorm"),
        *linear(f"{ours}blocks.{{}}.feed_forward.expand", f"{layer}intermediate.dense"),
        *linear(f"{ours}blocks.{{}}.feed_forward.contract", f"{layer}output.dense"),
        *linear(f"{ours}blocks.{{}}.feed_forward_norm", f"{layer}output.LayerNorm"),
    )


BERT = Family(
    kind="bert",
    also=("mbert",),
    model_type="bert",
    prefix="bert.",
    architectures=(
        Architecture("BertForPreTraining", {"head": True, "pairs": True, "pooler": True}),
        Architecture("BertForMaskedLM", {"head": True, "pairs": False}),
        Architecture("BertForNextSentencePrediction", {"head": False, "pairs": True, "pooler": True}),
        Architecture("BertModel", {"head": False, "pairs": False}, prefixed=False),
    ),
    settings=(
        *ENCODER_SETTINGS,
        Setting("window", "max_position_embeddings"),
        Setting("gelu", "hidden_act", words=GELU, default="gelu"),
    ),
    options=(ABSOLUTE,),
    weights=(
        *encoder("", "bert."),
        *linear("pooler", "bert.pooler.dense"),
        *linear("pair", "cls.seq_relationship"),
        *linear("output.transform", "cls.predictions.transform.dense"),
        *linear("output.norm", "cls.predictions.transform.LayerNorm"),
        Weight("output.softmax.bias", "cls.predictions.bias"),
    ),
    parts=(
        OptionalPart("pooler", "bert.pooler.dense.weight"),
        OptionalPart("pairs", "cls.seq_relationship.weight"),
        OptionalPart("head", "cls.predictions.transform.dense.weight"),
    ),
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignored=(r"bert\.embeddings\.position_ids", r"bert\.embeddings\.token_type_ids"),
    renamed=OLD_NAMES,
    fixed={"direction": "both"},
    specials=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    template=TEMPLATE,
    heads=(
        pooled_head(
            "BertForSequenceClassification",
            SENTENCES,
            dense="bert.pooler.dense",
            out="classifier",
            dropout="classifier_dropout",
        ),
        pooled_head(
            "BertForMultipleChoice",
            ("choice",),
            dense="bert.pooler.dense",
            out="classifier",
            dropout="classifier_dropout",
        ),
        *placed_heads("Bert"),
    ),
    bare={"head": False, "pairs": False, "pooler": False},
)
