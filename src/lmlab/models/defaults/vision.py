"""Systems that read pictures."""

from __future__ import annotations

from collections.abc import Mapping

from lmlab.models.defaults.encoders import BERT_BASE
from lmlab.models.defaults.system import ADAMW, MEDIUM, SENTENCES, SMALL, TINY, Settings, System, TaskDefaults

PICTURE_CLASS = TaskDefaults(frame={}, pool="cls")
TEXT_AND_PICTURE = TaskDefaults(frame=SENTENCES, pool="cls")
CPU_SIZES: Mapping[str, Settings] = {"tiny": TINY, "small": SMALL, "medium": MEDIUM}


def _vit(patch: int, width: int, heads: int, layers: int) -> Settings:
    """A size of the paper (table 1), for pictures of 224 × 224 pixels."""
    return {"patch": patch, "width": width, "heads": heads, "layers": layers, "dropout": 0.1}


def _vilbert(words: Settings, *, connections: int, picture_width: int, heads: int) -> Settings:
    """BERT's size for words, and one for regions and for co-attention."""
    regions = {"picture_width": picture_width, "picture_heads": heads}
    return {**words, "connections": connections, **regions, "joint_width": picture_width, "joint_heads": heads}


def _clip(patch: int, width: int, heads: int, layers: int, text_width: int) -> Settings:
    """A size of the paper (table 20), for pictures of 224 × 224 pixels; the space has the width of the texts."""
    pictures = {"patch": patch, "width": width, "heads": heads, "layers": layers}
    texts = {"text_width": text_width, "text_heads": text_width // 64, "text_layers": 12, "window": 77}
    return {**pictures, **texts, "space": text_width}


VISION = (
    System(
        "visualbert",
        "lmlab.models.visualbert:VisualBert",
        2019,
        "Li et al. 2019",
        "BERT that reads words and the regions of a picture in one stream",
        builds_on=("bert",),
        does=("words and regions", "masks", "vectors"),
        sizes={
            **{name: {**size, "initial": "scaled"} for name, size in CPU_SIZES.items()},
            "base": {**BERT_BASE, "locations": False},
        },
        default_size="tiny",
        objective={"kind": "masked_captions"},
        reads=("captions",),
        tokenizer="wordpiece:4096",
        frame=SENTENCES,
        training={**ADAMW, "rate": 1e-3, "schedule": "linear", "warmup": 100, "batch": 32},
        tuned_width=64,
        task=TEXT_AND_PICTURE,
    ),
    System(
        "vilbert",
        "lmlab.models.vilbert:Vilbert",
        2019,
        "Lu et al. 2019",
        "BERT beside a stream for the regions of a picture, joined by co-attention",
        builds_on=("bert",),
        does=("words and regions", "masks", "vectors"),
        sizes={
            "tiny": {**_vilbert(TINY, connections=1, picture_width=64, heads=2), "initial": "scaled"},
            "small": {**_vilbert(SMALL, connections=2, picture_width=128, heads=4), "initial": "scaled"},
            "medium": {**_vilbert(MEDIUM, connections=3, picture_width=256, heads=8), "initial": "scaled"},
            "base": _vilbert(BERT_BASE, connections=6, picture_width=1024, heads=8),
        },
        default_size="tiny",
        objective={"kind": "masked_captions", "region_masking_rate": 0.15},
        reads=("captions",),
        tokenizer="wordpiece:4096",
        frame=SENTENCES,
        training={**ADAMW, "rate": 1e-3, "schedule": "linear", "warmup": 100, "batch": 32},
        tuned_width=64,
        task=TEXT_AND_PICTURE,
    ),
    System(
        "vit",
        "lmlab.models.vit:ViT",
        2020,
        "Dosovitskiy et al. 2020",
        "Transformer encoder over the patches of a picture",
        builds_on=("transformer", "bert"),
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
        builds_on=("vit", "gpt2"),
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
