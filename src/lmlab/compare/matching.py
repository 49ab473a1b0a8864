"""The width at which a system has a given number of parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from lmlab.config import build
from lmlab.costs.parameters import count_parameters
from lmlab.models import load_class
from lmlab.models.model import Model

TOLERANCE = 0.05
FOLLOWING = ("hidden", "inner")
"""Settings that grow in proportion to the width, so that a system keeps its shape."""
MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}


def parse_match(text: str) -> int | None:
    """Read `parameters` (None: the median of the presets) or `parameters=2M`."""
    what, equals, number = text.partition("=")
    found = re.fullmatch(r"([0-9]*\.?[0-9]+(?:[eE]\+?[0-9]+)?)([kKMGB]?)", number.strip())
    if what.strip() != "parameters" or (equals and not found):
        raise ValueError(f"--match {text}: write parameters, or a number of them such as parameters=2M")
    if not found:
        return None
    count = round(float(found[1]) * MULTIPLES.get(found[2], 1))
    if count < 1:
        raise ValueError(f"--match {text}: give a number above zero")
    return count


def describe(system: str, values: Mapping[str, Any]) -> Model:
    """The model with these settings, without memory for its weights: enough to count them."""
    cls = load_class(system)
    with torch.device("meta"):
        model: Model = cls(build(cls.Config, values, where="model"))
    return model


def match_width(system: str, values: Mapping[str, Any], *, target: int) -> dict[str, Any]:
    """The settings of a system, widened or narrowed to `target` parameters within 5%.

    The width stays a multiple of the attention heads; hidden layers keep their proportion to it; depth, windows and
    everything else stay as they are. The count grows with the width, so bisection finds the place.
    """
    full = load_class(system).Config.model_fields
    width = int(values.get("width", full["width"].default))
    heads = int(values.get("heads", full["heads"].default)) if "heads" in full else 0
    unit = heads if heads % 2 == 0 else 2 * heads  # sines and cosines come in pairs
    unit = unit or 1

    def at(steps: int) -> tuple[dict[str, Any], int]:
        scaled = {
            name: max(1, round(int(values.get(name, full[name].default)) * steps * unit / width))
            for name in FOLLOWING
            if name in full
        }
        settings = {**values, "width": steps * unit, **scaled}
        return settings, count_parameters(describe(system, settings)).total

    low, high = 1, 2
    while at(high)[1] < target and high * unit < 65536:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle)[1] < target else (low, middle)
    settings, count = min((at(low), at(high)), key=lambda found: abs(found[1] - target))
    if abs(count - target) > TOLERANCE * target:
        raise ValueError(
            f"{system} cannot be given {target:,} parameters: its nearest width, {settings['width']}, has {count:,} "
            f"({count / target - 1:+.0%}); choose another number (--match parameters=N) or another --size"
        )
    return settings
