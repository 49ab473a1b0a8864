"""The cases of the golden losses: a tiny model of every system, with its usual training and with variants of it."""

from __future__ import annotations

from typing import Any

import pytest

from lmlab.models import load_class, systems_that_read
from lmlab.runs.recipe import Recipe, make_recipe

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
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
TRANSLATORS = ("seq2seq", "transformer")
SEVERAL_LANGUAGES = ("mbert", "xlm-r")

# Beside the usual training of each system. Dropout in attention is left out: in double precision torch samples it, and
# differently on processors of different makers.
VARIANTS: dict[str, dict[str, Any]] = {
    "bart pairs": {"model": {"kind": "bart"}, "data": "pairs"},
    "bert without pairs": {"model": {"kind": "bert"}, "objective": {"pairs": "none", "unit": "word"}},
    "bert translation": {"model": {"kind": "bert"}, "data": "pairs"},
    "bert dropout": {"model": {"kind": "bert", "dropout": 0.1}},
    "gpt2 accumulate": {"model": {"kind": "gpt2"}, "train": {"accumulate": 2}},
    "lm-1b sampled": {"model": {"kind": "lm-1b", "samples": 10}},
    "lstm dropout": {"model": {"kind": "lstm", "dropout": 0.2}},
    "lstm adaptive": {"model": {"kind": "lstm", "tied": False, "softmax": "adaptive", "cutoffs": [8, 16]}},
    "nplm sgd": {
        "model": {"kind": "nplm"},
        "train": {"optimizer": "sgd", "momentum": 0.9, "rate": 0.5, "schedule": "plateau", "evaluate_every": 10},
    },
    "seq2seq reversed": {"model": {"kind": "seq2seq"}, "objective": {"reverse_source": True}},
    "transformer not smoothed": {"model": {"kind": "transformer"}, "objective": {"smoothing": 0.0}},
}
PICTURES: dict[str, dict[str, Any]] = {
    "clip": {"model": {"kind": "clip"}, "data": "captions"},
    "visualbert": {"model": {"kind": "visualbert"}, "data": "captions"},
    "vilbert": {"model": {"kind": "vilbert"}, "data": "captions"},
    "decision-transformer": {"model": {"kind": "decision-transformer"}, "data": "episodes"},
    "clip accumulate": {"model": {"kind": "clip"}, "data": "captions", "train": {"accumulate": 2}},
    "policy": {"model": {"kind": "policy", "convolutions": [8, 16]}, "data": "world"},
    "captioner": {"model": {"kind": "captioner", "convolutions": [8, 16]}, "data": "captions"},
    "vqa": {"model": {"kind": "vqa", "convolutions": [8, 16]}, "data": "questions"},
}
SPEECH: dict[str, dict[str, Any]] = {
    "whisper": {"model": {"kind": "whisper"}, "data": "speech", "objective": {"masks": 0}},
}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"model": {"kind": name}} for name in systems_that_read("text")},
    **VARIANTS,
    **PICTURES,
    **SPEECH,
}


def recipe_of(case: dict[str, Any], files: dict[str, str], *, steps: int, **train: Any) -> Recipe:
    """The recipe of a case, for so many steps; `train` overrides its settings of training."""
    kind = case["model"]["kind"]
    fields = load_class(kind).Config.model_fields
    data: dict[str, Any] = {"text": files["en"], "documents": "blank"}
    if case.get("data") == "pairs" or kind in TRANSLATORS:
        data = {"source": files["en_lines"], "target": files["de_lines"]}
    elif case.get("data") in ("captions", "questions"):
        pytest.importorskip("PIL.Image")
        data = {"captions": files[case["data"]]}
    elif case.get("data") == "speech":
        data = {"speech": "builtin:tones", "mels": 8}
    elif case.get("data") == "world":
        pytest.importorskip("PIL.Image")
        data = {"captions": files["questions"], "columns": {"command": "question", "action": "answer"}}
    elif case.get("data") == "episodes":
        data = {"episodes": "builtin:cart-pole"}
    elif kind in SEVERAL_LANGUAGES:
        data["text"] = [f"{language}={files[language]}" for language in ("en", "de")]
    return make_recipe(
        {
            "data": {**data, "split": [0.8, 0.1, 0.1]},
            # learnt tokenizers may change with the library that learns them; episodes stay numbers
            "tokenizer": {} if "episodes" in data else {"spec": "words"},
            "model": {**{name: value for name, value in SMALL.items() if name in fields}, **case["model"]},
            "objective": case.get("objective", {}),
            "train": {
                "budget": f"{steps}steps",
                "batch": 4,
                "log_every": 1,
                "evaluations": 1,
                "device": "cpu",
                "precision": "fp32",  # no autocast
                **({} if "window" in fields else {"window": 24}),
                **case.get("train", {}),
                **train,
            },
        }
    )
