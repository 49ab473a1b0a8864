"""Encoder–decoders: they read a source and write a target."""

from __future__ import annotations

from lmlab.models.defaults.system import ENCODER_MEAN, SOURCE_AND_TARGET, Settings, System

TRANSLATION: Settings = {
    **{"optimizer": "adam", "rate": 1e-3, "beta2": 0.98, "clip": 1.0},
    **{"schedule": "inverse-sqrt", "warmup": 400},
}

ENCODER_DECODERS = (
    System(
        "seq2seq",
        "lmlab.models.seq2seq:Seq2Seq",
        2015,
        "Sutskever et al. 2014, Bahdanau et al. 2015",
        "recurrent encoder–decoder with attention, for translation",
        builds_on=("lstm",),
        does=("target text", "vectors"),
        sizes={
            "tiny": {"width": 64, "hidden": 64},
            "small": {"width": 256, "hidden": 256, "dropout": 0.2},
            "base": {"width": 512, "hidden": 512, "layers": 2, "dropout": 0.3},
            "sutskever": {"width": 1000, "hidden": 1000, "layers": 4, "bidirectional": False, "attention": "none"},
            "rnnsearch": {"cell": "gru", "width": 620, "hidden": 1000, "encoder_hidden": 1000, "attention": "additive"},
            "luong": {
                **{"width": 1000, "hidden": 1000, "layers": 4, "bidirectional": False, "attention": "multiplicative"},
                **{"feeding": True, "dropout": 0.2},
            },
        },
        objective={"kind": "seq2seq"},
        tokenizer="bpe:8192",
        frame=SOURCE_AND_TARGET,
        training={"optimizer": "adam", "rate": 2e-3, "schedule": "cosine", "clip": 1.0},
        task=ENCODER_MEAN,
    ),
    System(
        "transformer",
        "lmlab.models.transformer:Transformer",
        2017,
        "Vaswani et al. 2017",
        "Transformer encoder–decoder, for translation",
        builds_on=("attention-lm", "seq2seq"),
        does=("target text", "vectors"),
        sizes={
            "tiny": {"width": 64, "heads": 2, "layers": 2, "inner": 256},
            "small": {"width": 256, "heads": 4, "layers": 3, "inner": 1024},
            "base": {"width": 512, "heads": 8, "layers": 6, "inner": 2048},
            "big": {"width": 1024, "heads": 16, "layers": 6, "inner": 4096, "dropout": 0.3},
        },
        objective={"kind": "seq2seq", "smoothing": 0.1},
        tokenizer="bpe:8192",
        frame=SOURCE_AND_TARGET,
        training=TRANSLATION,
        task=ENCODER_MEAN,
    ),
    System(
        "bart",
        "lmlab.models.bart:Bart",
        2019,
        "Lewis et al. 2020",
        "Transformer encoder–decoder that reconstructs corrupted text",
        builds_on=("transformer", "bert"),
        does=("target text", "vectors"),
        sizes={
            "tiny": {"width": 64, "heads": 2, "layers": 2, "inner": 256, "window": 128},
            "small": {"width": 256, "heads": 4, "layers": 3, "inner": 1024, "window": 256},
            "base": {"width": 768, "heads": 12, "layers": 6, "inner": 3072, "window": 1024},
            "large": {"width": 1024, "heads": 16, "layers": 12, "inner": 4096, "window": 1024},
        },
        objective={"kind": "denoising"},
        tokenizer="bpe:8192",
        frame=SOURCE_AND_TARGET,
        training={**TRANSLATION, "optimizer": "adamw", "decay": 0.01},
        task=ENCODER_MEAN,
    ),
)
