"""Models as they are named in a comparison: a system, and if wanted a size and settings of its own.

`vit` is the system with the size of all, `vit:small` another size, `vit:small:patch=8` with another setting as well.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from lmlab.config import apply_settings
from lmlab.models import find


class Variant(NamedTuple):
    """A system with a size and settings; None: the size of all."""

    system: str
    size: str | None
    settings: dict[str, Any]


def parse_variant(name: str) -> Variant:
    """Read `SYSTEM[:SIZE][:KEY=VALUE]…`; a ValueError names the nearest system, size or setting."""
    system, *parts = name.split(":")
    sizes = [part for part in parts if "=" not in part]
    if len(sizes) > 1 or not all(parts):
        raise ValueError(f"{name!r}: write a model as {system}, {system}:SIZE or {system}:SIZE:KEY=VALUE")
    if sizes:
        find(system).preset(sizes[0])
    settings = apply_settings({"model": {}}, [f"model.{part}" for part in parts if "=" in part])
    return Variant(system, sizes[0] if sizes else None, settings["model"])


def system_of(name: str) -> str:
    """The system of a model in a comparison: vit of vit:small."""
    return name.partition(":")[0]


def folder_name(name: str) -> str:
    """The name of a model as that of a folder."""
    return re.sub(r"[^\w.=-]+", "-", name)
