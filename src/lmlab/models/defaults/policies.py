"""Systems that act: they read episodes and choose actions."""

from __future__ import annotations

from lmlab.models.defaults.system import ADAMW, System, TaskDefaults

POLICIES = (
    System(
        "decision-transformer",
        "lmlab.models.decision_transformer:DecisionTransformer",
        2021,
        "Chen et al. 2021",
        "Transformer decoder over returns, states and actions: acts so as to reach a given return",
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
)
