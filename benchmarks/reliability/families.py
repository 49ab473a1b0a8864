"""A tiny training run of every system of the lineage, with dropout: 12 steps with a checkpoint after each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmlab.models import LINEAGE, load_class
from lmlab.runs.recipe import Recipe, make_recipe

STEPS = 12
SMALL: dict[str, Any] = {
    "width": 16,
    "hidden": 16,
    "cells": 20,
    "filters": [[1, 6], [2, 6], [3, 6]],
    "heads": 2,
    "layers": 2,
    "inner": 32,
    "window": 24,
    "memory": 24,
    "order": 3,
    "embedding_width": 12,
    "generator": 0.5,
    "dropout": 0.1,
    "convolutions": [8, 16],
}
BUILT_IN = {
    "captioner": "builtin:scenes",
    "vqa": "builtin:scene-questions",
    "visualbert": "builtin:scenes",
    "vilbert": "builtin:scenes",
    "vit": "builtin:signs",
    "clip": "builtin:scenes",
    "decision-transformer": "builtin:cart-pole",
    "whisper": "builtin:tones",
    "policy": "builtin:world",
    "music-transformer": "builtin:tunes",
}
"""The systems that learn from other data than text, with theirs."""
TRANSLATORS = ("seq2seq", "transformer")
LANGUAGES = ("mbert", "xlm-r")


def write_texts(folder: Path) -> Path:
    """Two languages, as documents and as pairs."""
    lines = [(f"say {i} and {i % 7} .", f"sage {i} und {i % 7} .") for i in range(300)]
    for side, name in enumerate(("en", "de")):
        content = "".join(f"{pair[side]}\n" + "\n" * (number % 6 == 5) for number, pair in enumerate(lines))
        (folder / f"{name}.txt").write_text(content)
    (folder / "pairs.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in lines[:120]))
    return folder


def small_recipe(kind: str, texts: Path, *, steps: int = STEPS) -> Recipe:
    """The recipe of a tiny run of a system."""
    fields = load_class(kind).Config.model_fields
    data: dict[str, Any] = {"text": str(texts / "en.txt"), "documents": "blank"}
    tokenizer = {"spec": "words"}
    if kind in TRANSLATORS:
        data = {"pairs": str(texts / "pairs.tsv")}
    elif kind in LANGUAGES:
        data["text"] = [f"{language}={texts / language}.txt" for language in ("en", "de")]
    elif kind in BUILT_IN:
        data = {"text": BUILT_IN[kind]}
        tokenizer = {}
    return make_recipe(
        {
            "data": data,
            "tokenizer": tokenizer,
            "model": {"kind": kind, **{name: value for name, value in SMALL.items() if name in fields}},
            "train": {
                **{"budget": f"{steps}steps", "batch": 4, "log_every": 1, "evaluations": 2, "evaluation_tokens": 64},
                **{"save_seconds": 0, "device": "cpu", "precision": "fp32", "keep": 2},
                **({} if "window" in fields else {"window": 24}),
            },
        }
    )


FAMILIES = tuple(LINEAGE)
