"""A recipe: data + tokenizer + model + objective + training, everything that a run needs to be made again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from lmlab.config import Config, build, suggest
from lmlab.models import load_class
from lmlab.training.settings import TrainConfig

GROUPS = ("data", "tokenizer", "model", "objective", "train")


class DataConfig(Config):
    """Which text, and what of it is held out."""

    text: list[str] = Field(description="files, folders, globs, .gz, - for standard input, or builtin")
    valid: list[str] | None = Field(None, description="text for validation; by default a share of `text`")
    test: list[str] | None = Field(None, description="text for the final score; by default a share of `text`")
    split: list[float] = Field([0.9, 0.05, 0.05], description="shares of train, valid and test")
    documents: Literal["file", "lines", "blank", "endoftext"] = Field("file", description="what one document is")

    @field_validator("text", "valid", "test", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        """A single path may stand alone; $NAME and ${NAME} are filled in from the environment."""
        paths = [value] if isinstance(value, str) else value
        return [os.path.expandvars(path) for path in paths] if isinstance(paths, list) else paths


class TokenizerConfig(Config):
    """How text becomes tokens."""

    spec: str = Field("bpe:4096", description="characters, bytes, words[:N], bpe:N, wordpiece:N, unigram:N, or a file")


class ObjectiveConfig(Config):
    """What is learnt from the text."""

    kind: Literal["causal"] = Field("causal", description="causal: predict the next token")


class Recipe(Config):
    """All the settings of a run."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    kind: str
    model: dict[str, Any] = Field(description="settings of the model, its preset already filled in")
    objective: ObjectiveConfig = ObjectiveConfig()
    train: TrainConfig = TrainConfig()


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe from its groups; the model's preset and its training defaults are filled in here, once."""
    for group in values:
        if group not in GROUPS:
            raise ValueError(f"unknown group of settings {group!r}{suggest(group, GROUPS)}")
    model = dict(values.get("model", {}))
    kind, size = model.pop("kind", None), model.pop("size", None)
    if kind is None:
        raise ValueError("no system is named; give model.kind (lmlab list shows all)")
    cls = load_class(str(kind))
    size = size or ("small" if "small" in cls.SIZES else next(iter(cls.SIZES)))
    if size not in cls.SIZES:
        raise ValueError(f"unknown size {size!r} of {kind}{suggest(str(size), cls.SIZES)}")
    for name in model:
        if name not in cls.Config.model_fields:
            raise ValueError(f"unknown setting model.{name} of {kind}{suggest(name, cls.Config.model_fields)}")
    train = {**cls.TRAINING, **values.get("train", {})}
    build(TrainConfig, train, where="train")
    data = build(DataConfig, values.get("data", {}), where="data")
    return Recipe(
        data=data,
        tokenizer=build(TokenizerConfig, values.get("tokenizer", {}), where="tokenizer"),
        kind=str(kind),
        model={**cls.SIZES[size], **model},
        objective=build(ObjectiveConfig, values.get("objective", {}), where="objective"),
        train=build(TrainConfig, train, where="train"),
    )
