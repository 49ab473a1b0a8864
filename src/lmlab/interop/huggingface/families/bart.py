"""BART (`bart`)."""

from __future__ import annotations

from dataclasses import replace

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
from lmlab.interop.huggingface.transforms import Offset, Squeezed

STACK_SETTINGS = (
    Setting("vocabulary", "vocab_size"),
    Setting("width", "d_model"),
    Setting("heads", "encoder_attention_heads"),
    Setting("layers", "encoder_layers"),
    Setting("decoder_layers", "decoder_layers", written=lambda ours: ours["decoder_layers"] or ours["layers"]),
    Setting("inner", "encoder_ffn_dim"),
    Setting("scale", "scale_embedding", default=False),
    Setting("dropout", "dropout", default=0.1),
    Setting("attention_dropout", "attention_dropout", default=0.0),
    Setting("start", "decoder_start_token_id"),
    Setting(
        "activation",
        "activation_function",
        words={"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu"},
        default="gelu",
    ),
)
STACK_OPTIONS = (
    Only("decoder_attention_heads", lambda config: (config["encoder_attention_heads"],)),
    Only("decoder_ffn_dim", lambda config: (config["encoder_ffn_dim"],)),
    Only("is_encoder_decoder", (True,)),
    Only("activation_dropout", (0.0,), training=True),
    Only("encoder_layerdrop", (0.0,), training=True),
    Only("decoder_layerdrop", (0.0,), training=True),
)
COPIES = dict.fromkeys(
    ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"), "model.shared.weight"
)
BIAS = OptionalPart("bias", "final_logits_bias", nonzero=True)


def stack(side: str) -> tuple[Weight, ...]:
    """The rows of the blocks of one side."""
    ours, theirs = f"{side}.blocks.{{}}", f"model.{side}.layers.{{}}"
    return (
        *_joined(f"{ours}.attention.query_key_value", f"{theirs}.self_attn", "qkv"),
        *linear(f"{ours}.attention.projection", f"{theirs}.self_attn.out_proj"),
        *linear(f"{ours}.attention_norm", f"{theirs}.self_attn_layer_norm"),
        *linear(f"{ours}.cross_attention.query", f"{theirs}.encoder_attn.q_proj"),
        *_joined(f"{ours}.cross_attention.key_value", f"{theirs}.encoder_attn", "kv"),
        *linear(f"{ours}.cross_attention.projection", f"{theirs}.encoder_attn.out_proj"),
        *linear(f"{ours}.cross_attention_norm", f"{theirs}.encoder_attn_layer_norm"),
        *linear(f"{ours}.feed_forward.expand", f"{theirs}.fc1"),
        *linear(f"{ours}.feed_forward.contract", f"{theirs}.fc2"),
        *linear(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm"),
    )


def _joined(ours: str, theirs: str, letters: str) -> tuple[Weight, Weight]:
    return fused(ours, *(f"{theirs}.{letter}_proj" for letter in letters))


HEADS = (
    replace(
        pooled_head(
            "BartForSequenceClassification",
            SENTENCES,
            dense="classification_head.dense",
            out="classification_head.out_proj",
            dropout="classifier_dropout",
        ),
        pool="last",
        shifted=True,
    ),
    replace(placed_heads("Bart")[1], shifted=True),
)

BART = Family(
    kind="bart",
    model_type="bart",
    prefix="model.",
    architectures=(Architecture("BartForConditionalGeneration"), Architecture("BartModel")),
    settings=(*STACK_SETTINGS, Setting("window", "max_position_embeddings")),
    options=(
        *STACK_OPTIONS,
        Only("normalize_before", (False,)),
        Only("normalize_embedding", (True,)),
        Only("static_position_embeddings", (False,)),
        Only("add_final_layer_norm", (False,)),
    ),
    weights=(
        Weight("embedding.weight", "model.shared.weight"),
        Weight("encoder.positions.weight", "model.encoder.embed_positions.weight", Offset(2)),
        Weight("decoder.positions.weight", "model.decoder.embed_positions.weight", Offset(2)),
        *linear("encoder.embedding_norm", "model.encoder.layernorm_embedding"),
        *linear("decoder.embedding_norm", "model.decoder.layernorm_embedding"),
        *stack("encoder"),
        *stack("decoder"),
        Weight("output.bias", "final_logits_bias", Squeezed(0)),
    ),
    parts=(BIAS,),
    copies=COPIES,
    ignored=("final_logits_bias",),
    fixed={"norm": "post", "source_vocabulary": None},
    specials=("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    template=("$A boundary", "$A $B boundary"),
    heads=HEADS,
    bare={"bias": False},
)
