"""What a run keeps of its recipe, `recipe.json`: the settings, the hashes of its data, and how it was changed since.

A run is compared with a recipe here: a run is only resumed, or taken as done, with the settings that it was begun with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from lmlab.config import Config, build
from lmlab.data import make_config
from lmlab.models import load_class
from lmlab.runs.recipe import Recipe
from lmlab.runs.run_files import OtherSettingsError
from lmlab.runs.storage import DamagedError, digest_weights, read_json, write_json
from lmlab.runs.upgrade import upgrade_saved, upgrade_train
from lmlab.training.settings import FIXED, TrainConfig

HASHED = ("text", "encoder", "origin")
"""Inputs whose SHA-256 is written to `recipe.json`."""
UNCOUNTED = (("train", "device"),)
"""Settings that do not affect what is learnt."""


class Change(Config):
    """Settings of training that were changed in a run after some step."""

    step: int = Field(ge=0, description="steps before the change")
    train: dict[str, Any] = Field(description="the settings that changed, with their new values")


class RecipeRecord(NamedTuple):
    """The content of `recipe.json`: the settings of a run, and how they were changed while it was trained."""

    recipe: Recipe  # with the settings that are in force now
    text_sha256: str | None  # of the training text
    encoder_sha256: str | None  # of the tokenizer that encoded it, before special tokens were added
    begun: TrainConfig | None = None  # the settings at the start, if some were changed
    changes: tuple[Change, ...] = ()
    origin_sha256: str | None = None  # of the weights that it started from

    def change(self, settings: Mapping[str, Any], *, step: int) -> RecipeRecord:
        """The record with settings of training that are changed after a step; equal values are no change."""
        train = build(TrainConfig, {**self.recipe.train.model_dump(), **upgrade_train(settings)}, where="train")
        before, after = self.recipe.train.model_dump(), train.model_dump()
        new = {name: value for name, value in after.items() if value != before[name]}
        earlier = [each for each in self.changes if each.step < step]
        for each in self.changes[len(earlier) :]:  # later steps are repeated with the settings in force now
            new = {**each.train, **new}
        changes = (*earlier, Change(step=step, train=new)) if new else tuple(earlier)
        recipe = self.recipe.model_copy(update={"train": train})
        return self._replace(recipe=recipe, begun=self.begun or self.recipe.train, changes=changes)

    def origin_differs(self, origin: str | None) -> bool:
        """Whether the weights of the run `origin` are known to differ from those that this run started from."""
        if origin is None or self.origin_sha256 is None:
            return False
        return digest_weights(Path(origin)) not in (None, self.origin_sha256)

    def describe_changes(self) -> list[tuple[int, str]]:
        """The steps after which settings were changed, and the changes in words."""
        values, lines = (self.begun or self.recipe.train).model_dump(), []
        for change in self.changes:
            what = ", ".join(f"train.{name} from {values[name]} to {value}" for name, value in change.train.items())
            lines.append((change.step, what))
            values |= change.train
        return lines


def read_record(run: Path, *, texts: Mapping[str, Any] | None = None) -> RecipeRecord:
    """The record of a run; `texts` replaces the paths of its texts."""
    where = run / "recipe.json"
    values = _read_saved(where)
    text_sha256, encoder_sha256, origin_sha256 = (values.pop(f"{name}_sha256", None) for name in HASHED)
    changes = [build(Change, each, where=f"{where}: changes") for each in values.pop("changes", [])]
    begun = build(TrainConfig, values["train"], where="train")
    for each in changes:
        values["train"] = {**values["train"], **each.train}
    data = make_config(values["data"], where=f"{where}: data")
    if texts:
        data = data.moved(texts).absolute()
    recipe = build(Recipe, {**values, "data": data}, where=str(where))
    return RecipeRecord(recipe, text_sha256, encoder_sha256, begun, tuple(changes), origin_sha256)


def find_changes(record: RecipeRecord, recipe: Recipe, *, data_sha256: str | None = None) -> list[str]:
    """The settings in which a recipe differs from that of a run, by name: `train.budget`, `data.text`, `origin`.

    Settings of training may be those that the run was begun with, or those in force now. Data are compared by their
    settings, or by their content if `data_sha256` is given. `origin` differs if its weights have changed, too.
    """
    own, wanted = record.recipe.model_dump(), recipe.model_copy(update={"data": recipe.data.absolute()}).model_dump()
    own["data"], wanted["data"] = without_given(own["data"]), without_given(wanted["data"])
    if (record.begun or record.recipe.train).model_copy(update={"device": recipe.train.device}) == recipe.train:
        wanted["train"] = own["train"]
    if wanted["train"]["micro_batches"] is None:  # by default as many as the run was started with
        wanted["train"]["micro_batches"] = own["train"]["micro_batches"]
    if data_sha256 is not None:
        wanted["data"], own["data"] = data_sha256, record.text_sha256 or data_sha256
    if record.origin_differs(recipe.origin):
        own["origin"] = None
    return [name for group, value in wanted.items() for name in _differing(group, own[group], value)]


def without_given(data: Any) -> Any:
    """The settings of data, and of each kind of a mixture, without the paths as they were spelled (`given`)."""
    if not isinstance(data, Mapping):
        return data
    return {name: without_given(value) for name, value in data.items() if name != "given"}


def _differing(group: str, before: Any, after: Any) -> list[str]:
    """The names of the settings of a group whose values differ."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return [group] if before != after else []
    names = [name for name in {**before, **after} if (group, name) not in UNCOUNTED]
    return [f"{group}.{name}" for name in names if before.get(name) != after.get(name)]


def check_same_settings(path: Path, recipe: Recipe) -> None:
    """Raise a ValueError if a run was begun with other settings than those of a recipe."""
    if changed := find_changes(read_record(path), recipe):
        raise OtherSettingsError(path, changed)


def check_fixed_settings(path: Path, record: RecipeRecord, recipe: Recipe) -> None:
    """Raise a ValueError if a recipe changes settings of training that a run must keep."""
    changed = _differing("train", record.recipe.train.model_dump(), recipe.train.model_dump())
    if wrong := [name for name in changed if name.removeprefix("train.") in FIXED]:
        raise ValueError(f"--resume continues {path} as it was started: {', '.join(wrong)} cannot be changed")


def _read_saved(path: Path) -> dict[str, Any]:
    """The content of a `recipe.json` of any version, as it is written today; a ValueError if it is not one."""
    found = read_json(path)
    if not isinstance(found, dict) or not {"kind", "data", "model"} <= found.keys():
        raise ValueError(f"{path} is not the recipe.json of a run; give that, or a TOML file")
    kinds: dict[str, Any] = {"kind": str, "origin": (str, type(None)), "changes": list}
    kinds |= dict.fromkeys(("data", "model", "train", "objective", "tokenizer"), dict)
    wrong = [name for name, kind in kinds.items() if name in found and not isinstance(found[name], kind)]
    changes = found.get("changes", [])
    if not wrong and not all(isinstance(each, dict) and isinstance(each.get("train"), dict) for each in changes):
        wrong = ["changes"]
    if wrong or "train" not in found:
        raise DamagedError(f"{path} is damaged: its setting {(wrong or ['train'])[0]} is not what a run has there")
    return upgrade_saved(found)


def read_groups(path: Path) -> dict[str, Any]:
    """The settings in the `recipe.json` of a run, in groups as in a TOML file, to repeat the run.

    If the run started from another, only those settings of the model are returned that differ from the other's.
    """
    values = _read_saved(path)
    origin = {} if values.get("origin") is None else {"origin": values["origin"]}
    own = ("data", "objective", "train") if origin else ("data", "tokenizer", "objective", "train")
    groups = {name: dict(values.get(name, {})) for name in own}
    groups["data"] = without_given(groups["data"])
    model = dict(values["model"])
    if origin and (inherited := Path(origin["origin"]) / "config.json").is_file():
        before = load_class(values["kind"]).Config.upgrade(read_json(inherited)["model"])
        model = {name: value for name, value in model.items() if name not in before or value != before[name]}
    return {**groups, "model": {"kind": values["kind"], **model}, **origin}


def write_recipe(run: Path, record: RecipeRecord) -> None:
    """Write `recipe.json`."""
    values = {**record.recipe.model_dump(), "train": (record.begun or record.recipe.train).model_dump()}
    hashes = (record.text_sha256, record.encoder_sha256, record.origin_sha256)
    values |= {f"{name}_sha256": value for name, value in zip(HASHED, hashes, strict=True)}
    if record.changes:
        values["changes"] = [change.model_dump() for change in record.changes]
    write_json(run / "recipe.json", values)
