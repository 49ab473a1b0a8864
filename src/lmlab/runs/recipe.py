"""A recipe: the settings of data, tokenizer, model, objective and training, from which a run can be repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from lmlab.config import Config, build, suggest, with_article
from lmlab.data import DATA, make_config
from lmlab.data.config import AnyData
from lmlab.data.readers.media import check_built_in
from lmlab.models import ARCHITECTURES, System, find, load_class, outline
from lmlab.models.abilities import ABILITIES, ScoresSentencePairs, ability, listed_ability, require
from lmlab.objectives import OBJECTIVES, load_objective
from lmlab.runs.storage import read_json
from lmlab.runs.upgrade import upgrade
from lmlab.tokenizers.processors import has_fixed_length, is_processor
from lmlab.tokenizers.training import is_path
from lmlab.training.settings import TrainConfig

READ = ("states", "vectors")
"""Settings of an objective that are paths, of runs or of files."""
GROUPS = ("data", "tokenizer", "model", "objective", "train", "origin")


class TokenizerConfig(Config):
    """Settings of the tokenizer."""

    spec: str | None = Field(
        "bpe:4096",
        description="characters, bytes, words[:N], spelled[:N], bpe:N, wordpiece:N, unigram:N, a file; "
        "events, grid[:VOICES] for music, pixels[:LEVELS] for pictures, steps[:BINS] for episodes; none: no tokens",
    )
    source: str | None = Field(
        None, description="tokenizer of the source side, for translation; none: one vocabulary for both sides"
    )


class Recipe(Config):
    """All the settings of a run."""

    data: AnyData
    tokenizer: TokenizerConfig = TokenizerConfig()
    kind: str
    model: dict[str, Any] = Field(description="settings of the model, including those of its preset")
    objective: dict[str, Any] = Field({"kind": "causal"}, description="training objective and its settings")
    train: TrainConfig = TrainConfig()
    origin: str | None = Field(None, description="run whose weights and tokenizer this one starts from")

    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens that the objective needs: of `pad`, `cls`, `sep`, `mask`."""
        specials: tuple[str, ...] = load_objective(self.objective["kind"]).specials
        return specials

    def inputs(self) -> list[str]:
        """All files and folders that are read: texts, the run that it starts from, tokenizers, states and vectors."""
        found = self.data.on_disk()
        found += [] if self.origin is None else [self.origin]
        found += [spec for spec in (self.tokenizer.spec, self.tokenizer.source) if spec is not None and is_path(spec)]
        for value in (self.objective.get(name) for name in READ):
            found += [value] if isinstance(value, str) else value or []
        return found


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe from groups of settings; the preset of the model and the defaults of its system are filled in."""
    _check_types(values)
    values = upgrade(values)
    for group in values:
        if group not in GROUPS:
            raise ValueError(f"unknown group of settings {group!r}{suggest(group, GROUPS)}")
    model = dict(values.get("model", {}))
    kind, size = model.pop("kind", None), model.pop("size", None)
    if kind is None:
        raise ValueError("no model is named; give model.kind (lmlab list shows all)")
    system, cls = find(str(kind)), load_class(str(kind))
    preset = system.preset(None if size is None else str(size))
    for name in model:
        if name not in cls.Config.model_fields:
            raise ValueError(f"unknown setting model.{name} of {kind}{suggest(name, cls.Config.model_fields)}")
    if "text" not in system.reads and values.get("origin") is None:
        check_built_in(str(kind), _named(values.get("data", {})))
    data = make_config(values.get("data", {}), reads=system.reads)
    if data.kind == "mixture" and system.trained_by == "counting":
        raise ValueError(f"{kind} counts plain text and cannot learn {data.what}; give TEXT alone, or train gpt2")
    usual: dict[str, Any] = {"spec": data.usual_tokenizer(system.tokenizer)}
    origin = None if values.get("origin") is None else str(values["origin"])
    if origin is not None:
        preset, usual = _inherited(Path(origin), str(kind), values)
    if str(kind) in ARCHITECTURES and data.kind != "examples":
        raise ValueError(
            f"{kind} is not a language model: it learns a task from labelled examples (lmlab finetune {kind} DATA -o "
            f"RUN)"
        )
    tokenizer = build(TokenizerConfig, {**usual, **values.get("tokenizer", {})}, where="tokenizer")
    if is_processor(tokenizer.spec) and system.tokenizer is None:
        raise ValueError(f"{kind} reads {data.what}, not tokens: leave the tokenizer {tokenizer.spec} out")
    if has_fixed_length(tokenizer.spec) and origin is None:
        preset.pop("window", None)  # one item, whose length only the data know: see Config.usual
    if tokenizer.source is not None and not data.parallel:
        whose = f"{origin} has a separate vocabulary for the source" if origin else "tokenizer.source was given"
        raise ValueError(f"{whose}, which only pairs have: give --source and --target (or --pairs)")
    given = {**_reading(origin, system.objective), **values.get("objective", {})}
    train = values.get("train", {})
    usual_objective = system.objective
    if origin is None and "short" not in given and data.kind in ("text", "languages"):
        usual_objective = system.objective_for({**preset, **model}, window=train.get("window"))
    objective = _objective(str(kind), usual_objective, given, data=data.kind)
    tuning = system.continued if origin is not None and objective["kind"] in OBJECTIVES else {}
    usual_train = {**system.training, **_rate(system, {**preset, **model}), **tuning}
    recipe = Recipe(
        data=data,
        tokenizer=tokenizer,
        kind=str(kind),
        model={**preset, **model},
        objective=objective,
        train=build(TrainConfig, {**usual_train, **train}, where="train"),
        origin=origin,
    )
    check_abilities(recipe)
    return recipe


def _named(data: Mapping[str, Any]) -> list[Any]:
    """The files of training data as they are given, whatever their kind."""
    found = [data[key] for kind in DATA.values() for key in kind.keys if data.get(key) is not None]
    return [path for each in found for path in ([each] if isinstance(each, str) else list(each))]


def _check_types(values: Any) -> None:
    """Raise a ValueError if a group of settings is not a table."""
    if not isinstance(values, Mapping):
        raise ValueError(
            f"values = {values!r}: a recipe is a table of groups of settings, for instance "
            '{"data": {"text": "book.txt"}, "model": {"kind": "gpt2"}}'
        )
    for group, table in values.items():
        if group in GROUPS and group != "origin" and not isinstance(table, Mapping):
            example = {"data": "text", "tokenizer": "spec", "train": "budget"}.get(group, "kind")
            table_for_it = {group: {example: table if isinstance(table, str) else "…"}}
            raise ValueError(f"{group} = {table!r}: a group of settings is a table, for instance {table_for_it}")
    if not isinstance(values.get("origin"), (str, Path, type(None))):
        raise ValueError(f"origin = {values['origin']!r}: give the folder of a run")


def _rate(system: System, settings: Mapping[str, Any]) -> dict[str, float]:
    """The usual learning rate at the width of a model: the best one of Adam falls as 1 / width.

    Yang et al. 2021 ("Tensor Programs V"), table 3. The other way round it is not extrapolated.
    """
    width = settings.get("width", system.tuned_width)
    if system.tuned_width is None or not isinstance(width, int) or width <= system.tuned_width:
        return {}
    return {"rate": system.training["rate"] * system.tuned_width / width}


def _inherited(origin: Path, kind: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of model and tokenizer of a run whose weights a new run starts from."""
    if not (origin / "config.json").is_file():
        raise ValueError(f"--from {origin} is not a run directory: it has no config.json")
    description = read_json(origin / "config.json")
    if description["kind"] != kind:
        there = with_article(description["kind"])
        raise ValueError(f"--from {origin} holds {there}, not {with_article(kind)}; train {there}")
    for group, name in (("model", "size"), ("tokenizer", "spec"), ("tokenizer", "source")):
        if values.get(group, {}).get(name) is not None:
            raise ValueError(f"{group}.{name} is that of {origin}, from which the run starts; omit it")
    own = origin / "tokenizer.json"
    tokenizer: dict[str, Any] = {"spec": str(own) if own.is_file() else None}
    if (origin / "source_tokenizer.json").is_file():
        tokenizer["source"] = str(origin / "source_tokenizer.json")
    begun = load_class(kind).Config.upgrade(description["model"])
    _check_shapes(origin, kind, begun, values.get("model", {}))
    return begun, tokenizer


def _reading(origin: str | None, usual: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the objective that follow from a run that reads texts backwards, if a new run starts from it."""
    frame = None if origin is None else Path(origin) / "frame.json"
    if usual["kind"] != "causal" or frame is None or not frame.is_file():
        return {}
    return {"backwards": True} if "tokens" in read_json(frame).get("backwards", ()) else {}


def _check_shapes(origin: Path, kind: str, inherited: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise a ValueError if a setting would change the shape of the weights that a run starts from."""
    from torch.nn import Module

    def shapes(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: tensor.shape for name, tensor in outline(kind, settings).state_dict().items()}

    cls = load_class(kind)
    if not issubclass(cls, Module):
        return
    config, own, free = cls.Config, shapes(inherited), (*cls.Config.PLACEHOLDERS, *cls.changeable(inherited))
    for name, value in given.items():
        if name in config.model_fields and name not in free and shapes({**inherited, name: value}) != own:
            raise ValueError(f"model.{name} = {value!r} does not fit the weights of {origin}; omit it")


def _objective(system: str, usual: Mapping[str, Any], given: Mapping[str, Any], *, data: str) -> dict[str, Any]:
    """The settings of the objective: that of the system, unless another is named or the data need another."""
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
        raise ValueError(f"objective.kind = {kind!r} does not fit {system}; its objectives are {' or '.join(suited)}")
    if data not in cls.reads:
        raise ValueError(_unread(system, kind, cls.reads, data))
    return {"kind": kind, **config.model_dump()}


def _suits(system: str, objective: str, config: Config | None = None) -> bool:
    """Whether a system has the abilities that an objective needs."""
    cls = load_objective(objective)
    does = {ABILITIES[name].kind for name in find(system).does}
    listed = {each.kind for each in ABILITIES.values()} - {ScoresSentencePairs}
    needs = map(listed_ability, cls.needs(config or cls.Config()))
    return {need for need in needs if need in listed} <= does


def _unread(system: str, kind: str, reads: Sequence[str], data: str) -> str:
    """The error message for data that an objective does not read."""
    if data == "pairs":
        return f"{kind} learns from plain text, not from pairs; give TEXT"
    if "pairs" in reads and data in ("text", "languages"):
        return f"{kind} learns from pairs: give --source and --target (or --pairs)"
    if data == "mixture":
        return f"{system} learns from one kind of data; models that predict the next token, such as gpt2, take several"
    return f"{system} (objective {kind}) learns from {' or '.join(reads)}, not from {data}"


def check_abilities(recipe: Recipe) -> None:
    """That this very model, with its settings, has what its objective needs; asked before any text is read.

    A few layers will do: all have the same abilities.
    """
    values, fields = dict(recipe.objective), dict(recipe.model)
    objective = load_objective(values.pop("kind"))
    if isinstance(fields.get("layers"), int):
        fields["layers"] = min(2, fields["layers"])
    model = outline(recipe.kind, fields)
    for need in objective.needs(build(objective.Config, values, where="objective")):
        if need is ScoresSentencePairs and ability(model, ScoresSentencePairs) is None:
            raise ValueError(
                f"objective.pairs = {values['pairs']!r} needs a sentence-pair head, and this {recipe.kind} has none: "
                "set objective.pairs=none, or leave model.pairs and model.pooler as they are"
            )
        if recipe.origin and fields.get("softmax") == "none" and ability(model, need) is None:
            raise ValueError(
                f"--from {recipe.origin}: the output layer (softmax) was not published with these weights, so they "
                "cannot be trained on; use them with lmlab embed or lmlab finetune, or train without --from"
            )
        counted = find(recipe.kind).trained_by == "counting"  # no loss is computed then
        require(model, (counted and listed_ability(need)) or need)
