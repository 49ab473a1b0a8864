"""Systems that read pictures."""

from __future__ import annotations

from lmlab.models.defaults.system import ADAMW, Settings, System, TaskDefaults

PICTURE_CLASS = TaskDefaults(frame={}, pool="cls")


def _vit(patch: int, width: int, heads: int, layers: int) -> Settings:
    """A size of the paper (table 1), for pictures of 224 × 224 pixels."""
    return {"patch": patch, "width": width, "heads": heads, "layers": layers, "dropout": 0.1}


def _clip(patch: int, width: int, heads: int, layers: int, text_width: int) -> Settings:
    """A size of the paper (table 20), for pictures of 224 × 224 pixels; the space has the width of the texts."""
    pictures = {"patch": patch, "width": width, "heads": heads, "layers": layers}
    texts = {"text_width": text_width, "text_heads": text_width // 64, "text_layers": 12, "window": 77}
    return {**pictures, **texts, "space": text_width}


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
    System(
        "clip",
        "lmlab.models.clip:Clip",
        2021,
        "Radford et al. 2021",
        "two Transformer encoders that give pictures and texts vectors in one space",
        does=("pictures and texts", "vectors"),
        sizes={
            "tiny": {
                **{"width": 64, "heads": 4, "layers": 3},
                **{"text_width": 64, "text_heads": 4, "text_layers": 2, "space": 64},
            },
            "small": {},
            "medium": {
                **{"width": 256, "heads": 8, "layers": 6},
                **{"text_width": 256, "text_heads": 8, "text_layers": 4, "space": 256},
            },
            "B/32": _clip(32, 768, 12, 12, 512),
            "B/16": _clip(16, 768, 12, 12, 512),
            "L/14": _clip(14, 1024, 16, 24, 768),
        },
        default_size="tiny",
        objective={"kind": "contrastive"},
        reads=("captions",),
        tokenizer="bpe:1024",
        frame={"tokens": "cls a boundary"},
        training={**ADAMW, "rate": 1e-3, "warmup": 100, "batch": 64, "decay": 0.1},
        tuned_width=64,
        task=PICTURE_CLASS,
    ),
)
