"""A recipe: data + tokenizer + model + objective + training, everything that a run needs to be made again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from lmlab.checkpoint import read_json, write_json
from lmlab.config import Config, build, suggest
from lmlab.data import make_config
from lmlab.data.config import AnyData
from lmlab.models import find, load_class
from lmlab.objectives import LEARNT_BY, load_objective
from lmlab.training.settings import TrainConfig
from lmlab.upgrade import upgrade

GROUPS = ("data", "tokenizer", "model", "objective", "train", "origin")


class TokenizerConfig(Config):
    """How text becomes tokens."""

    spec: str = Field("bpe:4096", description="characters, bytes, words[:N], bpe:N, wordpiece:N, unigram:N, or a file")
    source: str | None = Field(None, description="the same for a translator's source; none: one vocabulary for both")


class Recipe(Config):
    """All the settings of a run."""

    data: AnyData
    tokenizer: TokenizerConfig = TokenizerConfig()
    kind: str
    model: dict[str, Any] = Field(description="settings of the model, its preset already filled in")
    objective: dict[str, Any] = Field({"kind": "causal"}, description="the pre-training variant and its settings")
    train: TrainConfig = TrainConfig()
    origin: str | None = Field(None, description="a run with whose weights and tokenizer this one begins")


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe from its groups; the model's preset and the defaults of its system are filled in here, once."""
    values = upgrade(values)
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
    data = make_config(values.get("data", {}))
    tokenizer = build(TokenizerConfig, {**usual, **values.get("tokenizer", {})}, where="tokenizer")
    if tokenizer.source is not None and not data.parallel:
        whose = f"{origin} has a vocabulary of its own for the source" if origin else "tokenizer.source was given"
        raise ValueError(f"{whose}, which only pairs have: give --source and --target (or --pairs)")
    train = values.get("train", {})
    return Recipe(
        data=data,
        tokenizer=tokenizer,
        kind=str(kind),
        model={**preset, **model},
        objective=_objective(str(kind), cls.OBJECTIVE, values.get("objective", {}), parallel=data.parallel),
        train=build(TrainConfig, {**cls.TRAINING, **_rate(cls, {**preset, **model}), **train}, where="train"),
        origin=origin,
    )


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


class Record(NamedTuple):
    """What a run says of itself in its `recipe.json`."""

    recipe: Recipe
    text_sha256: str | None  # of the text that it learns from
    encoder_sha256: str | None  # of the tokenizer that encoded it, before special tokens were added


def read_record(
    run: Path, *, settings: Mapping[str, Any] | None = None, texts: Mapping[str, Any] | None = None
) -> Record:
    """What a run says of itself, with changed `settings` of training, and other places of its `texts`."""
    values = upgrade(read_json(run / "recipe.json"))
    known = [values.pop(name, None) for name in ("text_sha256", "encoder_sha256")]
    values["train"] |= settings or {}
    build(TrainConfig, values["train"], where="train")
    data = make_config(values["data"], where=f"{run / 'recipe.json'}: data")
    if texts:
        data = make_config({**dict(data), "given": None, **texts}).absolute()
    return Record(build(Recipe, {**values, "data": data}, where=str(run / "recipe.json")), *known)


def read_recipe(run: Path) -> tuple[Recipe, str | None]:
    """The recipe of a run, and the SHA-256 of the text that it was made for."""
    return read_record(run)[:2]


def write_recipe(run: Path, record: Record) -> None:
    """Write down what a run does, so that it can be made again, and what it was done with."""
    fingerprints = {"text_sha256": record.text_sha256, "encoder_sha256": record.encoder_sha256}
    write_json(run / "recipe.json", {**record.recipe.model_dump(), **fingerprints})


def _objective(system: str, usual: Mapping[str, Any], given: Mapping[str, Any], *, parallel: bool) -> dict[str, Any]:
    """The objective of a system, all its settings filled in: the usual one, unless another is named."""
    predicts = find(system).predicts
    allowed = [name for name, what in LEARNT_BY.items() if what == predicts]
    kind = given.get("kind", "seq2seq" if parallel and predicts == "target text" else usual["kind"])
    cls = load_objective(str(kind))
    if kind not in allowed:
        raise ValueError(
            f"objective.kind = {kind!r} does not suit {system}, which predicts {predicts}: {' or '.join(allowed)}"
        )
    if (kind == "seq2seq") != parallel and predicts == "target text":
        raise ValueError(
            "seq2seq learns from pairs: give --source and --target (or --pairs)"
            if kind == "seq2seq"
            else f"{kind} learns from plain text, not from pairs; give TEXT, or objective.kind=seq2seq"
        )
    if parallel and kind not in ("seq2seq", "masked"):
        raise ValueError(f"{kind} learns from plain text, not from pairs; give TEXT")
    settings = {**usual, **given} if kind == usual["kind"] else dict(given)
    if parallel and kind == "masked":
        settings = {**settings, "pairs": given.get("pairs", "none")}  # of a translation no sentence is the next
    settings.pop("kind", None)
    return {"kind": kind, **build(cls.Config, settings, where="objective").model_dump()}
