"""Transformer decoders: they predict the next token from those before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lmlab.models.defaults.system import ADAMW, LAST_VECTOR, MEDIUM, SMALL, TINY, XL_SMALL, XL_TINY, System


def _llama(width: int, heads: int, layers: int, inner: int) -> dict[str, Any]:
    """A size of LLaMA's paper (table 2), with its window and an output layer of its own."""
    values = {"width": width, "heads": heads, "key_value_heads": heads, "layers": layers, "inner": inner}
    return {**values, "window": 2048, "tied": False, "epsilon": 1e-6}


DECODERS = (
    System(
        "attention-lm",
        "lmlab.models.attention_lm:AttentionLM",
        2017,
        "Vaswani et al. 2017",
        "from one attention layer to a Transformer block, step by step",
        builds_on=("seq2seq", "bow"),
        sizes={
            "tiny": {"width": 64, "inner": 64, "window": 64, "positions": "learned"},
            "small": {"width": 128, "heads": 4, "inner": 512, "window": 128, "positions": "learned", "tricks": "post"},
            "base": {
                **{"width": 256, "heads": 4, "layers": 4, "inner": 1024, "window": 256, "positions": "sinusoidal"},
                **{"tricks": "pre"},
            },
        },
        training={**ADAMW, "rate": 8e-3, "warmup": 100},
        tuned_width=64,
    ),
    System(
        "gpt",
        "lmlab.models.gpt:GPT",
        2018,
        "Radford et al. 2018",
        "Transformer decoder, post-norm",
        builds_on=("transformer",),
        sizes={
            **{"tiny": TINY, "small": SMALL, "base": MEDIUM},
            "117M": {"width": 768, "heads": 12, "layers": 12, "window": 512, "dropout": 0.1},
        },
        training={**ADAMW, "rate": 2e-3, "warmup": 100},
        tuned_width=64,
        task=replace(LAST_VECTOR, bias=False),  # P(y | x) = softmax(h W_y), section 3.2
    ),
    System(
        "music-transformer",
        "lmlab.models.music_transformer:MusicTransformer",
        2018,
        "Huang et al. 2018",
        "Transformer decoder with relative attention: motifs by distance",
        builds_on=("transformer",),
        sizes={
            "tiny": {**TINY, "inner": 256, "distances": 64},
            "small": {**SMALL, "inner": 512, "distances": 128, "window": 256},
            "base": {**MEDIUM, "inner": 1024, "distances": 512, "window": 1024},
            "chorales": {
                **{"width": 512, "heads": 8, "layers": 5, "inner": 512, "distances": 256, "window": 2048},
                "dropout": 0.1,
            },
        },
        training={**ADAMW, "rate": 2e-3, "warmup": 100},
        tuned_width=64,
    ),
    System(
        "gpt2",
        "lmlab.models.gpt2:GPT2",
        2019,
        "Radford et al. 2019",
        "Transformer decoder, pre-norm",
        builds_on=("gpt",),
        sizes={
            **{"tiny": TINY, "small": SMALL, "base": MEDIUM},
            "124M": {"width": 768, "heads": 12, "layers": 12, "window": 1024, "dropout": 0.1},
            "355M": {"width": 1024, "heads": 16, "layers": 24, "window": 1024, "dropout": 0.1},
            "774M": {"width": 1280, "heads": 20, "layers": 36, "window": 1024, "dropout": 0.1},
            "1.5B": {"width": 1600, "heads": 25, "layers": 48, "window": 1024, "dropout": 0.1},
        },
        training={**ADAMW, "rate": 4e-3, "warmup": 100, "decay": 0.1},
        tuned_width=64,
        task=replace(LAST_VECTOR, bias=False),
    ),
    System(
        "transformer-xl",
        "lmlab.models.transformer_xl:TransformerXL",
        2019,
        "Dai et al. 2019",
        "Transformer decoder with segment recurrence and relative positions",
        builds_on=("transformer",),
        sizes={
            **{"tiny": XL_TINY, "small": XL_SMALL},
            "base": {"width": 256, "heads": 8, "layers": 6, "inner": 1024, "memory": 256, "dropout": 0.1},
            "standard": {"width": 410, "heads": 10, "layers": 16, "inner": 2100, "memory": 150, "softmax": "adaptive"},
        },
        training={**ADAMW, "rate": 4e-3, "warmup": 100, "window": 64, "clip": 0.25},
        tuned_width=64,
    ),
    System(
        "reformer",
        "lmlab.models.reformer:Reformer",
        2020,
        "Kitaev et al. 2020",
        "Transformer decoder for long texts: hashed attention, reversible layers",
        builds_on=("transformer",),
        sizes={
            "tiny": {
                **{"width": 64, "heads": 2, "layers": 2, "inner": 256, "window": 128},
                **{"chunk": 16, "local_chunk": 16, "hashes": 2, "dropout": 0.0},
            },
            "small": {"width": 128, "heads": 4, "layers": 4, "inner": 512, "window": 1024, "dropout": 0.0},
            "base": {"width": 256, "heads": 4, "layers": 6, "inner": 1024, "window": 4096},
            "crime": {
                **{"width": 256, "heads": 2, "head_width": 64, "layers": 6, "inner": 512, "window": 2**19, "hashes": 1},
                **{"axial_shape": [512, 1024], "axial_widths": [64, 192], "dropout": 0.05},
            },
            "enwik8": {
                **{"width": 1024, "heads": 8, "layers": 12, "inner": 4096, "window": 2**16, "hashes": 4, "chunk": 256},
                **{"local_chunk": 128, "attention": ["local", "local", "lsh", "local"]},
                **{"axial_shape": [128, 512], "axial_widths": [256, 768], "dropout": 0.2},
            },
        },
        training={**ADAMW, "rate": 4e-3, "warmup": 100},
        tuned_width=64,
    ),
    System(
        "llama",
        "lmlab.models.llama:Llama",
        2023,
        "Touvron et al. 2023",
        "GPT-2 with RMSNorm, RoPE, SwiGLU and grouped-query attention",
        builds_on=("gpt2",),
        sizes={
            "tiny": {"width": 64, "heads": 2, "key_value_heads": 1, "layers": 2, "inner": 176, "window": 64},
            "small": {"width": 128, "heads": 4, "key_value_heads": 2, "layers": 4, "inner": 352, "window": 128},
            "base": {"width": 256, "heads": 8, "key_value_heads": 4, "layers": 6, "inner": 688, "window": 256},
            "7B": _llama(4096, 32, 32, 11008),
            "13B": _llama(5120, 40, 40, 13824),
            "33B": _llama(6656, 52, 60, 17920),
            "65B": _llama(8192, 64, 80, 22016),
            "70B": {**_llama(8192, 64, 80, 28672), "key_value_heads": 8, "window": 4096},  # Llama 2
        },
        training={**ADAMW, "rate": 4e-3, "warmup": 100, "decay": 0.1},
        tuned_width=64,
        task=replace(LAST_VECTOR, bias=False),  # as nowhere in this model
    ),
)
