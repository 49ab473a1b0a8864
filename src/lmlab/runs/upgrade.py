"""Recipes as they were once written, in today's form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lmlab.data import find_kind, load_config

FLAT_DATA = {
    *("text", "valid", "test", "split", "alpha", "documents", "languages", "longest", "ratio"),
    *(f"{part}{side}" for part in ("", "valid_", "test_") for side in ("source", "target", "pairs")),
}
"""The settings of data before version 0.3, when one Config with all of them served every kind of data."""


BARE_M = re.compile(r"([^A-Za-z]*(?:[eE][+-]?\d+)?)\s*M")
"""A budget as it could be written before version 0.6, when a bare `M` was minutes."""


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
    result = upgrade(values)
    data = result.get("data")
    if isinstance(data, Mapping) and data.get("kind") == "examples" and "leaks" not in data:
        result["data"] = {**data, "leaks": "test"}  # as it was until version 0.5
    if isinstance(result.get("train"), Mapping):
        result["train"] = _say_minutes(result["train"])
    if isinstance(result.get("changes"), list):
        result["changes"] = [
            {**each, "train": _say_minutes(each["train"])}
            if isinstance(each, Mapping) and isinstance(each.get("train"), Mapping)
            else each
            for each in result["changes"]
        ]
    return _say_minutes(result)


def _say_minutes(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose budget says `5min` where it said `5M`."""
    budget = table.get("budget")
    old = BARE_M.fullmatch(budget) if isinstance(budget, str) else None
    return dict(table) if old is None else {**table, "budget": f"{old[1].strip()}min"}


def upgrade(values: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of a recipe of any version, as they are written today.

    Until version 0.2 `data` had the settings of all kinds, those of other kinds at their defaults: only those of its
    own kind are kept. What users write today stays as it is, so that a mistake in it is found.
    """
    result = dict(values)
    if isinstance(result.get("objective"), Mapping):
        result["objective"] = upgrade_task(result["objective"])
    data = result.get("data")
    if isinstance(data, Mapping) and "kind" not in data and data.keys() >= FLAT_DATA:
        allowed = load_config(find_kind(data)).allowed()
        result["data"] = {name: value for name, value in data.items() if name in allowed}
    return result
