"""The width at which a system has a given number of parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lmlab.config import build
from lmlab.costs.parameters import count_parameters
from lmlab.models import load_class, outline

TOLERANCE = 0.05
FOLLOWING = ("hidden", "cells", "inner", "embedding_width")
"""Settings that grow in proportion to the width, so that a system keeps its shape."""
TRIED = 4
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


def match_width(system: str, values: Mapping[str, Any], *, target: int) -> dict[str, Any]:
    """The settings of a system, widened or narrowed to `target` parameters within 5%.

    The width stays a multiple of the attention heads; hidden layers keep their proportion to it; depth, windows and
    everything else stay as they are. The count grows with the width, so bisection finds it.
    """
    unit = width_unit(system, values)

    def at(steps: int) -> tuple[dict[str, Any], int]:
        settings = at_width(system, values, steps * unit)
        return settings, count_parameters(outline(system, settings)).total

    low, high = 1, 2
    while at(high)[1] < target and high * unit < 65536:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle)[1] < target else (low, middle)
    settings, count = min((at(low), at(high)), key=lambda found: abs(found[1] - target))
    if abs(count - target) > TOLERANCE * target:
        raise ValueError(
            f"{system} cannot have {target:,} parameters: its nearest width, {settings['width']}, has {count:,} "
            f"({count / target - 1:+.0%}); choose another number (--match parameters=N) or another --size"
        )
    return settings


def at_width(system: str, values: Mapping[str, Any], width: int) -> dict[str, Any]:
    """The settings of a system with another width, and with all that is in proportion to it."""
    fields = load_class(system).Config.model_fields
    given = {name: values.get(name, fields[name].default) for name in ("width", *FOLLOWING) if name in fields}
    usual = given.pop("width")
    scaled = {name: max(1, round(value * width / usual)) for name, value in given.items() if value is not None}
    return {**values, "width": width, **scaled}


def width_unit(system: str, values: Mapping[str, Any]) -> int:
    """The number whose multiples are the widths that a system can have.

    Heads divide the width, and sines and cosines come in pairs. A model of two parts, as ELECTRA, has the same limits
    of its smaller one, so multiples are tried until they fit.
    """
    cls = load_class(system)
    fields = cls.Config.model_fields
    heads = int(values.get("heads", fields["heads"].default)) if "heads" in fields else 0
    unit = max(1, heads if heads % 2 == 0 else 2 * heads)

    def fits(width: int) -> bool:
        try:
            build(cls.Config, at_width(system, values, width), where="model")
        except ValueError:
            return False
        return True

    multiples = range(unit, unit * (unit + 1), unit)
    return next((each for each in multiples if all(fits(each * n) for n in range(1, TRIED + 1))), unit)
