"""Recipes as they were once written, in today's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmlab.data import find_kind, load_config

FLAT_DATA = {
    *("text", "valid", "test", "split", "alpha", "documents", "languages", "longest", "ratio"),
    *(f"{part}{side}" for part in ("", "valid_", "test_") for side in ("source", "target", "pairs")),
}
"""The settings of data before version 0.3, when one Config with all of them served every kind of data."""


def upgrade(values: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of a recipe, a `recipe.json` or a `conditions.json` of any version, as they are written today.

    Until version 0.2 `data` had the settings of all kinds, those of other kinds at their defaults: only those of its
    own kind are kept. What users write today stays as it is, so that a mistake in it is found.
    """
    result = dict(values)
    data = result.get("data")
    if isinstance(data, Mapping) and "kind" not in data and data.keys() >= FLAT_DATA:
        allowed = load_config(find_kind(data)).allowed()
        result["data"] = {name: value for name, value in data.items() if name in allowed}
    return result
