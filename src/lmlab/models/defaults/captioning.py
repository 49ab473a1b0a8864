"""Recurrent models of pictures and texts: captions, and answers to questions."""

from __future__ import annotations

from lmlab.models.defaults.system import System, TaskDefaults

CAPTIONING = (
    System(
        "captioner",
        "lmlab.models.captioner:Captioner",
        2015,
        "Xu et al. 2015",
        "LSTM with attention over the regions of a picture, which writes its caption",
        builds_on=("seq2seq",),
        does=("captions", "target text", "vectors"),
        sizes={
            "tiny": {"convolutions": [16, 32, 48], "width": 32, "hidden": 64, "dropout": 0.0},
            "small": {"convolutions": [24, 48, 96], "width": 64, "hidden": 128, "dropout": 0.1},
            "medium": {"convolutions": [64, 128, 256], "width": 128, "hidden": 512, "dropout": 0.2},
        },
        objective={"kind": "captioning"},
        reads=("captions",),
        tokenizer="words:10000",
        frame={"tokens": "start b boundary"},
        training={
            **{"optimizer": "adamw", "rate": 2e-3, "clip": 1.0, "decay": 0.01, "batch": 64},
            **{"schedule": "cosine", "warmup": 100},
        },
        task=TaskDefaults(frame={}, pool="mean"),
    ),
    System(
        "vqa",
        "lmlab.models.vqa:Vqa",
        2016,
        "Yang et al. 2016",
        "LSTM over a question with attention over the regions of a picture, for its answer",
        builds_on=("captioner",),
        does=("vectors",),
        sizes={
            "tiny": {"convolutions": [16, 32, 32], "width": 32, "hidden": 64},
            "small": {"convolutions": [16, 32, 64], "width": 64, "hidden": 128},
            "medium": {"convolutions": [64, 128, 256], "width": 128, "hidden": 512, "dropout": 0.2},
        },
        objective={"kind": "visual_questions", "activation": "relu", "hidden": 256},
        reads=("captions",),
        tokenizer="words:10000",
        frame={"tokens": "a boundary"},
        training={
            **{"optimizer": "adamw", "rate": 2e-3, "clip": 1.0, "decay": 0.01, "batch": 256},
            **{"schedule": "cosine", "warmup": 100},
        },
        task=TaskDefaults(frame={"tokens": "a boundary"}),
    ),
)
