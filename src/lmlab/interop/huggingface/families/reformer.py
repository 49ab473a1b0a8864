"""Reformer (`reformer`), whose attention in `transformers` is that of the released weights: to chunks of a sorted text.

Hashes are the same on both sides where `hash_seed` is set. Their checkpoints have an `lm_head.bias` that today's
version does not add to the scores; it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmlab.interop.huggingface.table import Architecture, Family, Only, OptionalPart, Setting, Weight, linear
from lmlab.interop.huggingface.transforms import Fused, Squeezed, WithZeros
from lmlab.models.reformer import ReformerConfig

LAYER = "reformer.encoder.layers.{}"


def _settings(values: Mapping[str, Any]) -> ReformerConfig:
    return ReformerConfig(**values)


def _buckets(values: Mapping[str, Any]) -> int | list[int]:
    factors = _settings(values).factors
    return factors[0] if len(factors) == 1 else factors


REFORMER = Family(
    kind="reformer",
    model_type="reformer",
    prefix="reformer.",
    architectures=(
        Architecture("ReformerModelWithLMHead", {"predicts": True}),
        Architecture("ReformerModel", {"predicts": False}, prefixed=False),
    ),
    settings=(
        Setting("vocabulary", "vocab_size"),
        Setting("width", "hidden_size", default=256),
        Setting("heads", "num_attention_heads", default=12),
        Setting("head_width", "attention_head_size", default=64, written=lambda v: _settings(v).width_of_head),
        Setting("attention", "attn_layers", default=["local", "lsh"] * 3, written=lambda v: _settings(v).kinds),
        Setting("layers", "num_hidden_layers"),
        Setting("inner", "feed_forward_size", default=512),
        Setting("window", "max_position_embeddings", default=4096),
        Setting("chunk", "lsh_attn_chunk_length", default=64),
        Setting("local_chunk", "local_attn_chunk_length", default=64),
        Setting("hashes", "num_hashes", default=1),
        Setting("buckets", "num_buckets", default=None, written=_buckets),
        Setting("hash_seed", "hash_seed", default=None),
        Setting("positions", "axial_pos_embds", default=True, words={True: "axial", False: "learned"}),
        Setting("axial_shape", "axial_pos_shape", default=[64, 64], written=lambda v: list(_settings(v).shape)),
        Setting("axial_widths", "axial_pos_embds_dim", default=[64, 192], written=lambda v: list(_settings(v).widths)),
        Setting("dropout", "hidden_dropout_prob", default=0.05),
    ),
    options=(
        Only("hidden_act", ("relu",)),
        Only("layer_norm_eps", (1e-12,)),
        Only("is_decoder", (True,), default=False),
        Only("tie_word_embeddings", (False,)),
        Only("lsh_num_chunks_before", (1,)),
        Only("lsh_num_chunks_after", (0,)),
        Only("local_num_chunks_before", (1,)),
        Only("local_num_chunks_after", (0,)),
        Only("lsh_attention_probs_dropout_prob", (0.0, None), default=0.0, training=True),
        Only("local_attention_probs_dropout_prob", (0.0,), default=0.05, training=True),
    ),
    weights=(
        Weight("embedding.weight", "reformer.embeddings.word_embeddings.weight"),
        Weight("positions.rows", "reformer.embeddings.position_embeddings.weights.0", Squeezed(1)),
        Weight("positions.columns", "reformer.embeddings.position_embeddings.weights.1", Squeezed(0)),
        Weight("positions.weight", "reformer.embeddings.position_embeddings.embedding.weight"),
        *linear("blocks.{}.attention_norm", f"{LAYER}.attention.layer_norm"),
        Weight("blocks.{}.attention.query_key.weight", f"{LAYER}.attention.self_attention.query_key.weight"),
        Weight("blocks.{}.attention.value.weight", f"{LAYER}.attention.self_attention.value.weight"),
        Weight(
            "blocks.{}.attention.query_key_value.weight",
            tuple(f"{LAYER}.attention.self_attention.{part}.weight" for part in ("query", "key", "value")),
            Fused(1, 1, 1),
        ),
        Weight("blocks.{}.attention.projection.weight", f"{LAYER}.attention.output.dense.weight"),
        *linear("blocks.{}.feed_forward_norm", f"{LAYER}.feed_forward.layer_norm"),
        *linear("blocks.{}.feed_forward.expand", f"{LAYER}.feed_forward.dense.dense"),
        *linear("blocks.{}.feed_forward.contract", f"{LAYER}.feed_forward.output.dense"),
        *linear("norm", "reformer.encoder.layer_norm"),
        Weight("output.weight", ("lm_head.decoder.weight", "lm_head.bias"), WithZeros()),
    ),
    parts=(OptionalPart("predicts", "lm_head.decoder.weight"),),
    ignored=(r"reformer\.encoder\.layers\.\d+\.attention\.self_attention\.(self_)?mask_value_float(16|32)",),
    fixed={"attends": "chunk"},
    advice={
        "attends": "or train on from this run with it (--from): the same weights then attend to whole chunks, also to "
        "other buckets, and predict otherwise until they have learnt it"
    },
    specials=("</s>", "<unk>"),
    fills_up=True,
)
