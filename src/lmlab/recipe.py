"""A recipe: data + tokenizer + model + objective + training, everything that a run needs to be made again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from lmlab.checkpoint import read_json
from lmlab.config import Config, build, suggest
from lmlab.models import find, load_class
from lmlab.models.abilities import ABILITIES, JudgesPairs, ability, require
from lmlab.objectives import OBJECTIVES, load_objective
from lmlab.training.settings import TrainConfig

GROUPS = ("data", "tokenizer", "model", "objective", "train", "origin")
SIDES = ("source", "target", "pairs")


class DataConfig(Config):
    """Which text, and what of it is held out."""

    text: list[str] | None = Field(
        None, description="files, folders, globs, .gz, - for standard input, or builtin; en=FILE where language matters"
    )
    valid: list[str] | None = Field(None, description="text for validation; by default a share of `text`")
    test: list[str] | None = Field(None, description="text for the final score; by default a share of `text`")
    split: list[float] = Field([0.9, 0.05, 0.05], description="shares of train, valid and test")
    alpha: float = Field(0.7, ge=0, le=1, description="several languages: size^alpha is how often each is read")
    documents: Literal["file", "lines", "blank", "endoftext"] = Field("file", description="what one document is")
    source: list[str] | None = Field(None, description="of a translator: files of source sentences, one per line")
    target: list[str] | None = Field(None, description="of a translator: the same sentences in the target language")
    pairs: list[str] | None = Field(None, description="of a translator: TSV or JSONL files with both, in their place")
    valid_source: list[str] | None = Field(None, description="source sentences for validation")
    valid_target: list[str] | None = Field(None, description="target sentences for validation")
    valid_pairs: list[str] | None = Field(None, description="pairs for validation")
    test_source: list[str] | None = Field(None, description="source sentences for the final score")
    test_target: list[str] | None = Field(None, description="target sentences for the final score")
    test_pairs: list[str] | None = Field(None, description="pairs for the final score")
    languages: list[str] | None = Field(None, description="of JSONL pairs: the names of the source and the target text")
    longest: int | None = Field(250, ge=1, description="pairs with more tokens than this on a side are left out")
    ratio: float | None = Field(None, gt=1, description="pairs of which one side is so many times longer are left out")

    @field_validator(
        "text", "valid", "test", *(f"{a}{b}" for a in ("", "valid_", "test_") for b in SIDES), mode="before"
    )
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        """A single path may stand alone; $NAME and ${NAME} are filled in from the environment."""
        paths = [value] if isinstance(value, str) else value
        return [os.path.expandvars(path) for path in paths] if isinstance(paths, list) else paths

    @model_validator(mode="after")
    def _there_is_something_to_learn_from(self) -> DataConfig:
        if (self.source is None) != (self.target is None):
            raise ValueError("source and target go together: the same sentences in two languages, line by line")
        if self.text is None and not self.parallel:
            raise ValueError("no text is named: give data.text, or data.source and data.target, or data.pairs")
        if self.text is not None and self.parallel:
            raise ValueError("give either plain text or pairs (source and target), not both")
        for name in ("valid", "test"):
            if self.parallel and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is plain text, and this learns from pairs: give {name}_source and {name}_target"
                )
        for name in (*(f"{part}_{side}" for part in ("valid", "test") for side in SIDES), "languages"):
            if not self.parallel and getattr(self, name) is not None:
                raise ValueError(f"{name} belongs to pairs, and this learns from plain text")
        return self

    @property
    def kind(self) -> str:
        from lmlab.data.corpora.languages import by_language

        return "pairs" if self.parallel else "languages" if by_language(self.text) else "text"

    @property
    def parallel(self) -> bool:
        """Whether this is pairs of a source and a target text."""
        return self.source is not None or self.pairs is not None

    @property
    def named(self) -> list[str]:
        """The texts that are learnt from, as they were given."""
        return [path for paths in (self.text, self.source, self.target, self.pairs) for path in paths or []]


class TokenizerConfig(Config):
    """How text becomes tokens."""

    spec: str = Field("bpe:4096", description="characters, bytes, words[:N], bpe:N, wordpiece:N, unigram:N, or a file")
    source: str | None = Field(None, description="the same for a translator's source; none: one vocabulary for both")


class Recipe(Config):
    """All the settings of a run."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    kind: str
    model: dict[str, Any] = Field(description="settings of the model, its preset already filled in")
    objective: dict[str, Any] = Field({"kind": "causal"}, description="the pre-training variant and its settings")
    train: TrainConfig = TrainConfig()
    origin: str | None = Field(None, description="a run with whose weights and tokenizer this one begins")


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe from its groups; the model's preset and the defaults of its system are filled in here, once."""
    for group in values:
        if group not in GROUPS:
            raise ValueError(f"unknown group of settings {group!r}{suggest(group, GROUPS)}")
    model = dict(values.get("model", {}))
    kind, size = model.pop("kind", None), model.pop("size", None)
    if kind is None:
        raise ValueError("no system is named; give model.kind (lmlab list shows all)")
    cls = load_class(str(kind))
    size = size or cls.DEFAULT_SIZE
    if size not in cls.SIZES:
        raise ValueError(f"unknown size {size!r} of {kind}{suggest(str(size), cls.SIZES)}")
    for name in model:
        if name not in cls.Config.model_fields:
            raise ValueError(f"unknown setting model.{name} of {kind}{suggest(name, cls.Config.model_fields)}")
    preset, usual = dict(cls.SIZES[size]), {"spec": cls.TOKENIZER}
    origin = values.get("origin")
    if origin is not None:
        preset, usual = _inherited(Path(str(origin)), str(kind), values)
    data = build(DataConfig, values.get("data", {}), where="data")
    train = values.get("train", {})
    recipe = Recipe(
        data=data,
        tokenizer=build(TokenizerConfig, {**usual, **values.get("tokenizer", {})}, where="tokenizer"),
        kind=str(kind),
        model={**preset, **model},
        objective=_objective(str(kind), cls.OBJECTIVE, values.get("objective", {}), data=data.kind),
        train=build(TrainConfig, {**cls.TRAINING, **_rate(cls, {**preset, **model}), **train}, where="train"),
        origin=origin,
    )
    check_abilities(recipe)
    return recipe


def _rate(cls: Any, settings: Mapping[str, Any]) -> dict[str, float]:
    """The usual learning rate at the width of a model: the best one of Adam falls as 1 / width.

    Yang et al. 2021 ("Tensor Programs V"), table 3. The other way round it is not extrapolated.
    """
    width = settings.get("width", cls.TUNED_WIDTH)
    if cls.TUNED_WIDTH is None or not isinstance(width, int) or width <= cls.TUNED_WIDTH:
        return {}
    return {"rate": cls.TRAINING["rate"] * cls.TUNED_WIDTH / width}


def _inherited(origin: Path, kind: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the model, and the tokenizer, that a run passes on to one that begins with its weights."""
    if not (origin / "config.json").is_file():
        raise ValueError(f"--from {origin} is not a run directory: it has no config.json")
    description = read_json(origin / "config.json")
    if description["kind"] != kind:
        raise ValueError(f"--from {origin} holds a {description['kind']}, not a {kind}; train a {description['kind']}")
    for group, name in (("model", "size"), ("tokenizer", "spec"), ("tokenizer", "source")):
        if values.get(group, {}).get(name) is not None:
            raise ValueError(f"{group}.{name} comes from {origin}, with whose weights the run begins; leave it out")
    tokenizer = {"spec": str(origin / "tokenizer.json")}
    if (origin / "source_tokenizer.json").is_file():
        tokenizer["source"] = str(origin / "source_tokenizer.json")
    return dict(description["model"]), tokenizer


def read_recipe(run: Path, *, settings: Mapping[str, Any] | None = None) -> tuple[Recipe, str | None]:
    """The recipe of a run, with changed `settings` of training, and the SHA-256 of the text that it was made for."""
    values = read_json(run / "recipe.json")
    fingerprint = values.pop("text_sha256", None)
    values["train"] |= settings or {}
    build(TrainConfig, values["train"], where="train")
    return build(Recipe, values, where=str(run / "recipe.json")), fingerprint


def _objective(system: str, usual: Mapping[str, Any], given: Mapping[str, Any], *, data: str) -> dict[str, Any]:
    """The objective of a system, all its settings filled in: the usual one, unless another is named or the data ask."""
    kind = str(given.get("kind", usual["kind"]))
    if "kind" not in given and data not in load_objective(kind).reads:
        takers = (name for name in OBJECTIVES if data in load_objective(name).default_for)
        kind = next((name for name in takers if _suits(system, name)), kind)
    cls = load_objective(kind)
    settings = {**(usual if kind == usual["kind"] else {}), **cls.usual_for(data), **given}
    settings.pop("kind", None)
    config = build(cls.Config, settings, where="objective")
    if not _suits(system, kind, config):
        suited = [name for name in OBJECTIVES if _suits(system, name)]
        raise ValueError(f"objective.kind = {kind!r} does not suit {system}: it learns by {' or '.join(suited)}")
    if data not in cls.reads:
        raise ValueError(_unread(kind, cls.reads, data))
    return {"kind": kind, **config.model_dump()}


def _suits(system: str, objective: str, config: Config | None = None) -> bool:
    """Whether the abilities that a system is listed with are those that an objective needs."""
    cls = load_objective(objective)
    does = {ABILITIES[name].kind for name in find(system).does}
    listed = {each.kind for each in ABILITIES.values()} - {JudgesPairs}
    return {need for need in cls.needs(config or cls.Config()) if need in listed} <= does


def _unread(kind: str, reads: Sequence[str], data: str) -> str:
    """What to say where an objective does not read the data that were given."""
    if data == "pairs":
        return f"{kind} learns from plain text, not from pairs; give TEXT"
    if "pairs" in reads:
        return f"{kind} learns from pairs: give --source and --target (or --pairs)"
    return f"{kind} learns from {' or '.join(reads)}, not from {data}"


def check_abilities(recipe: Recipe) -> None:
    """That this very model, with its settings, has what its objective needs; asked before any text is read.

    It is built on torch's meta device, which stores nothing, with few layers: all have the same abilities.
    """
    import torch

    cls, values = load_class(recipe.kind), dict(recipe.objective)
    objective = load_objective(values.pop("kind"))
    fields = {"vocabulary": 64, **recipe.model}
    if isinstance(fields.get("layers"), int):
        fields["layers"] = min(2, fields["layers"])
    with torch.device("meta"):
        model = cls(build(cls.Config, fields, where="model"))
    for need in objective.needs(build(objective.Config, values, where="objective")):
        if need is JudgesPairs and ability(model, JudgesPairs) is None:
            raise ValueError(
                f"objective.pairs = {values['pairs']!r} needs a sentence-pair head, and this {recipe.kind} has none: "
                "set objective.pairs=none, or leave model.pairs and model.pooler as they are"
            )
        require(model, need)
