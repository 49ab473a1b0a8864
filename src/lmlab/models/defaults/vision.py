"""Systems that read pictures."""

from __future__ import annotations

from lmlab.models.defaults.system import ADAMW, Settings, System, TaskDefaults

PICTURE_CLASS = TaskDefaults(frame={}, pool="cls")


def _vit(patch: int, width: int, heads: int, layers: int) -> Settings:
    """A size of the paper (table 1), for pictures of 224 × 224 pixels."""
    return {"patch": patch, "width": width, "heads": heads, "layers": layers, "dropout": 0.1}


VISION = (
    System(
        "vit",
        "lmlab.models.vit:ViT",
        2020,
        "Dosovitskiy et al. 2020",
        "Transformer encoder over the patches of a picture",
        does=("vectors",),
        sizes={
            "tiny": {"width": 64, "heads": 4, "layers": 4},
            "small": {"width": 128, "heads": 4, "layers": 6},
            "medium": {"width": 256, "heads": 8, "layers": 6, "dropout": 0.1},
            "B/32": _vit(32, 768, 12, 12),
            "B/16": _vit(16, 768, 12, 12),
            "L/32": _vit(32, 1024, 16, 24),
            "L/16": _vit(16, 1024, 16, 24),
            "H/14": _vit(14, 1280, 16, 32),
        },
        default_size="tiny",
        objective={"kind": "picture_classification"},
        reads=("images",),
        tokenizer=None,
        frame={},
        training={**ADAMW, "rate": 2e-3, "warmup": 200, "batch": 64, "decay": 0.05},
        tuned_width=64,
        task=PICTURE_CLASS,
    ),
)
