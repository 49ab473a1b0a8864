"""Settings of earlier versions, in today's form: all old spellings of recipes are here."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

FLAT_DATA = {
    *("text", "valid", "test", "split", "alpha", "documents", "languages", "longest", "ratio"),
    *(f"{part}{side}" for part in ("", "valid_", "test_") for side in ("source", "target", "pairs")),
}
"""The settings of data before version 0.3, when one Config had those of all kinds of data."""
BARE_M = re.compile(r"([^A-Za-z]*(?:[eE][+-]?\d+)?)\s*M")
"""A budget in a file before version 0.6, when a bare `M` meant minutes."""
RENAMED = {"stairs_epochs": "step_decay_epochs", "stairs_factor": "step_decay_factor"}
"""Settings of training by their names before version 0.6."""
RENAMED_VALUES = {"schedule": {"stairs": "step_decay"}}
"""Values of settings of training before version 0.6."""
RENAMED_IN_OBJECTIVES = {
    "share": "masking_rate",
    "mask_share": "mask_fraction",
    "random_share": "random_fraction",
    "short_share": "short_fraction",
    "region_share": "region_masking_rate",
}
"""Settings of objectives that mask tokens or regions by their names before version 0.6."""


def upgrade(values: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of a recipe that a user wrote, with a warning for each old spelling.

    Until version 0.2 `data` had the settings of all kinds, those of other kinds at their defaults: only those of its
    own kind are kept.
    """
    result = _upgrade_data(values)
    if isinstance(values.get("objective"), Mapping):
        for name in values["objective"].keys() & RENAMED_IN_OBJECTIVES.keys():
            new = RENAMED_IN_OBJECTIVES[name]
            warnings.warn(f"objective.{name} is now objective.{new}", FutureWarning, stacklevel=3)
    if isinstance(result.get("train"), Mapping):
        result["train"] = upgrade_train(result["train"])
    if isinstance(result.get("model"), Mapping):
        for name in result["model"].keys() & _renamed_in_models().keys():
            warnings.warn(f"model.{name} is now model.{_renamed_in_models()[name]}", FutureWarning, stacklevel=3)
        result["model"] = _rename_model(result["model"])
    return result


def upgrade_train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of training that a user wrote, with a warning for each old spelling."""
    result = _rename(settings)
    for name, value in settings.items():
        if name not in result:
            warnings.warn(f"train.{name} is now train.{RENAMED[name]}", FutureWarning, stacklevel=3)
        elif result[name] != value:
            warnings.warn(f"train.{name} = {value!r} is now {result[name]!r}", FutureWarning, stacklevel=3)
    return result


EXAMPLE_NAMES = {"take": "max_examples", "draw": "sample_seed"}
"""Settings of labelled examples as they were called before version 0.6."""
OBJECTIVE_NAMES = {"how": "method", "centre": "mean", "spread": "std"}
"""Settings of tasks as they were called before version 0.6."""


def upgrade_task(objective: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an objective, as in `task.json` or a recipe of any version, as they are written today."""
    if "how" not in objective:
        return dict(objective)
    return {OBJECTIVE_NAMES.get(name, name): value for name, value in objective.items()}


def upgrade_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result, or a row of results, of a fine-tuning study of any version, as it is written today."""
    return {"method" if name == "how" else name: value for name, value in result.items()}


def upgrade_saved(values: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a `recipe.json` or a `conditions.json` of any version, as it is written today."""
    result = _upgrade_data(values)
    data = result.get("data")
    if isinstance(data, Mapping) and data.get("kind") == "examples" and "leaks" not in data:
        result["data"] = {**data, "leaks": "test"}  # as it was until version 0.5
    if isinstance(result.get("train"), Mapping):
        result["train"] = _upgrade_saved_train(result["train"])
    if isinstance(result.get("model"), Mapping):
        result["model"] = _rename_model(result["model"])
    if isinstance(result.get("changes"), list):
        result["changes"] = [
            {**each, "train": _upgrade_saved_train(each["train"])}
            if isinstance(each, Mapping) and isinstance(each.get("train"), Mapping)
            else each
            for each in result["changes"]
        ]
    return _say_minutes(result)


def _upgrade_data(values: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(values)
    objective = result.get("objective")
    if isinstance(objective, Mapping) and objective.get("kind") == "neighbours":
        result["objective"] = {**objective, "kind": "negative_sampling"}  # as it was called until version 0.5
    elif isinstance(objective, Mapping):
        named = upgrade_task(objective)
        result["objective"] = {RENAMED_IN_OBJECTIVES.get(name, name): value for name, value in named.items()}
    data = result.get("data")
    if isinstance(data, Mapping) and "examples" in data:
        result["data"] = {EXAMPLE_NAMES.get(name, name): value for name, value in data.items()}
    if isinstance(data, Mapping) and "kind" not in data and data.keys() >= FLAT_DATA:
        from lmlab.data import find_kind, load_config  # slow: PyTorch

        allowed = load_config(find_kind(data)).allowed()
        result["data"] = {name: value for name, value in data.items() if name in allowed}
    return result


def _rename_model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a model by the names that they have today."""
    return {_renamed_in_models().get(name, name): value for name, value in settings.items()}


def _upgrade_saved_train(settings: Mapping[str, Any]) -> dict[str, Any]:
    return _rename(_say_minutes(settings))


def _say_minutes(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose budget is `5min` if it was `5M`."""
    budget = table.get("budget")
    old = BARE_M.fullmatch(budget) if isinstance(budget, str) else None
    return dict(table) if old is None else {**table, "budget": f"{old[1].strip()}min"}


def _rename(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of training by the names and values that they have today."""
    return {RENAMED.get(name, name): _new_value(name, value) for name, value in settings.items()}


def _new_value(name: str, value: Any) -> Any:
    return RENAMED_VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value


def _renamed_in_models() -> Mapping[str, str]:
    """Settings of models by their names before version 0.6; imported here, because the module imports torch."""
    from lmlab.models.settings import ModelConfig

    return ModelConfig.RENAMED
