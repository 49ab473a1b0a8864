"""Systems that act: they read episodes and choose actions."""

from __future__ import annotations

from lmlab.models.defaults.system import ADAMW, SOURCE_AND_TARGET, System, TaskDefaults

POLICIES = (
    System(
        "decision-transformer",
        "lmlab.models.decision_transformer:DecisionTransformer",
        2021,
        "Chen et al. 2021",
        "Transformer decoder over returns, states and actions: acts so as to reach a given return",
        builds_on=("gpt2",),
        does=("actions", "vectors"),
        sizes={
            "tiny": {"width": 64, "heads": 2, "layers": 2, "window": 20},
            "small": {"width": 128, "heads": 4, "layers": 3, "window": 20},
            "gym": {"width": 128, "heads": 1, "layers": 3, "window": 20, "dropout": 0.1},
            "atari": {"width": 128, "heads": 8, "layers": 6, "window": 30, "dropout": 0.1},
        },
        default_size="small",
        objective={"kind": "actions"},
        reads=("episodes",),
        tokenizer=None,
        frame={},
        training={**ADAMW, "rate": 1e-3, "warmup": 100, "batch": 64, "decay": 1e-4, "clip": 0.25},
        tuned_width=128,
        task=TaskDefaults(frame={}, pool="last"),
    ),
    System(
        "policy",
        "lmlab.models.policy:Policy",
        2023,
        "Brohan et al. 2023 (RT-2)",
        "Transformer that reads a picture and a command, and writes an action as words",
        builds_on=("transformer", "captioner"),
        does=("commands", "target text", "vectors"),
        sizes={
            "tiny": {"convolutions": [16, 32, 32], "width": 64, "heads": 2, "layers": 1, "inner": 128, "dropout": 0.0},
            "small": {
                "convolutions": [32, 64, 64, 128],
                "width": 128,
                "heads": 4,
                "layers": 2,
                "inner": 256,
                "dropout": 0.0,
            },
            "medium": {"convolutions": [32, 64, 128], "width": 256, "heads": 8, "layers": 4, "inner": 1024},
        },
        objective={"kind": "instructions"},
        reads=("captions",),
        tokenizer="words",
        frame=SOURCE_AND_TARGET,
        training={**ADAMW, "rate": 1e-3, "beta2": 0.98, "warmup": 100, "batch": 64},
        task=TaskDefaults(frame={}, pool="mean"),
    ),
)
