"""LLaMA (`llama`), and those that differ from it in names or biases only: Mistral (`mistral`) and Qwen2 (`qwen2`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmlab.interop.huggingface.families.gpt import last_head
from lmlab.interop.huggingface.table import Architecture, Family, Only, Setting, TaskHead, Weight, fused, linear


def unify_rotary(config: Mapping[str, Any]) -> dict[str, Any]:
    """The base of the rotary angles where all versions but the latest write it, and scaling beside it.

    As many heads of keys as of queries are the default.
    """
    rotary: Any = config.get("rope_parameters") or {}
    scaling: Any = config.get("rope_scaling") or rotary
    if not isinstance(rotary, dict) or not isinstance(scaling, dict):
        return {**config, "rope_scaling": scaling}
    plain = scaling.get("rope_type", scaling.get("type", "default")) == "default"
    heads = config.get("num_key_value_heads")
    return {
        **{name: value for name, value in config.items() if name != "rope_parameters"},
        "rope_theta": rotary.get("rope_theta", config.get("rope_theta", 10000.0)),
        "rope_scaling": None if plain else scaling,
        "num_key_value_heads": config.get("num_attention_heads") if heads is None else heads,
    }


def _no_sliding(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """A window that slides is none where a whole text fits into it."""
    sliding = config.get("sliding_window", 4096)
    fits = isinstance(sliding, int) and sliding >= config.get("max_position_embeddings", sliding + 1)
    return (None, sliding) if fits else (None,)


def _family(model_type: str, name: str, *, options: tuple[Only, ...], bias: bool = False, **defaults: Any) -> Family:
    return Family(
        kind="llama",
        model_type=model_type,
        prefix="model.",
        architectures=(
            Architecture(f"{name}ForCausalLM"),
            Architecture(f"{name}Model", prefixed=False, lacks={"tied": True}),
        ),
        settings=(
            Setting("vocabulary", "vocab_size"),
            Setting("width", "hidden_size"),
            Setting("heads", "num_attention_heads"),
            Setting("key_value_heads", "num_key_value_heads"),
            Setting("layers", "num_hidden_layers"),
            Setting("inner", "intermediate_size"),
            Setting("window", "max_position_embeddings", default=defaults["window"]),
            Setting("base", "rope_theta"),
            Setting("epsilon", "rms_norm_eps", default=1e-6),
            Setting("tied", "tie_word_embeddings", default=False),
        ),
        options=(
            Only("hidden_act", ("silu",)),
            Only("head_dim", lambda config: (config["hidden_size"] // config["num_attention_heads"], None)),
            Only("rope_scaling", (None,)),
            Only("partial_rotary_factor", (1.0,)),
            Only("attention_dropout", (0.0,), training=True),
            *options,
        ),
        weights=(
            Weight("embedding.weight", "model.embed_tokens.weight"),
            Weight("blocks.{}.attention_norm.weight", "model.layers.{}.input_layernorm.weight"),
            *linear("blocks.{}.attention.query", "model.layers.{}.self_attn.q_proj"),
            *fused("blocks.{}.attention.key_value", *(f"model.layers.{{}}.self_attn.{part}_proj" for part in "kv")),
            Weight("blocks.{}.attention.projection.weight", "model.layers.{}.self_attn.o_proj.weight"),
            Weight("blocks.{}.feed_forward_norm.weight", "model.layers.{}.post_attention_layernorm.weight"),
            fused("blocks.{}.feed_forward.expand", "model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj")[0],
            Weight("blocks.{}.feed_forward.contract.weight", "model.layers.{}.mlp.down_proj.weight"),
            Weight("norm.weight", "model.norm.weight"),
            Weight("output.weight", "lm_head.weight"),
        ),
        copies={"lm_head.weight": "model.embed_tokens.weight"},
        ignored=(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",),
        fixed={"bias": bias},
        unify=unify_rotary,
        specials=("<unk>", "<s>", "</s>"),
        sentencepiece={},
        heads=(
            last_head(name, absorbs=None),
            TaskHead(f"{name}ForTokenClassification", ("tagging",), linear("label.out", "score")),
        ),
        bare={"tied": True},
    )


LLAMA = _family("llama", "Llama", options=(Only("attention_bias", (False,)), Only("mlp_bias", (False,))), window=2048)
MISTRAL = _family("mistral", "Mistral", options=(Only("sliding_window", _no_sliding, default=4096),), window=131072)
QWEN2 = _family("qwen2", "Qwen2", options=(Only("use_sliding_window", (False,)),), bias=True, window=32768)
