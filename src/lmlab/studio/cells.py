"""Cells: one unit over a text in colour, and the units that fire where the user says, or that follow a property."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.held_out import HeldOutReader
from lmlab.studio.responses import RunName, Text, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.cells import Read

Span = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


class One(Config):
    """Which unit, over which text; without a part the first there is."""

    run: RunName
    text: Text
    layer: int = Field(0, ge=0, le=1000)
    part: str = Field("", max_length=40, description="cell, hidden, a gate, or neurons")
    unit: int = Field(0, ge=0, le=10_000_000)


class Fire(Config):
    """Which units are highest, or lowest, in the spans of a text that were selected."""

    run: RunName
    text: Text
    spans: list[Annotated[Span, Field(strict=False)]] = Field(min_length=1, max_length=100)
    top: int = Field(12, ge=1, le=100)


class Follow(Config):
    """Which units follow a property, judged on text that had no part in choosing them."""

    run: RunName
    property: Literal["quotes", "brackets", "line", "capitals", "if", "pattern"] = "quotes"
    pattern: str = Field("", max_length=200, description="a regular expression, where the property is pattern")
    text: Text = Field("", description="what is searched; where it is empty, the run's held-out text")


class Firing(NamedTuple):
    """A unit and the area under its ROC curve: 1 where it is always higher inside than outside, 0 always lower."""

    layer: int
    part: str
    unit: int
    area: float
    inside: float
    outside: float


PATTERN_WITHIN = 10.0
"""Seconds that a regular expression may take."""


def make_router(run_store: RunStore, held_out: HeldOutReader) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/cells")
    def one_cell(asked: One) -> Response:
        from lmlab.analysis.cells import CellText, cell_parts, read_cells

        with run_store.using(asked.run) as model:
            names = list(dict.fromkeys(part.name for part in _parts(cell_parts, model.model)))
            read = read_cells(model, asked.text, parts=names)
        parts = [{"layer": part.layer, "part": part.name, "units": v.shape[1]} for part, v in read.activations.items()]
        known = [part for part in parts if part["part"] == asked.part] or parts
        chosen = min(known, key=lambda part: abs(part["layer"] - asked.layer))
        unit = min(asked.unit, chosen["units"] - 1)
        cell = CellText.of(read, layer=chosen["layer"], part=chosen["part"], unit=unit)
        return answer({"parts": parts, "cell": cell, "shown": show(cell)})

    @router.post("/cells/fire")
    def firing(asked: Fire) -> Response:
        from lmlab.analysis.cells import read_cells

        with run_store.using(asked.run) as model:
            return answer({"cells": fire_in(read_cells(model, asked.text), asked.spans, top=asked.top)})

    @router.post("/cells/follow")
    def follow(asked: Follow) -> Response:
        from lmlab.analysis.cell_search import search_cells
        from lmlab.analysis.properties import find_property, matches

        if asked.property == "pattern" and not asked.pattern:
            raise ValueError("pattern is empty: write a regular expression, for instance \\d+")
        named = asked.property != "pattern"
        wanted = find_property(asked.property) if named else matches(asked.pattern, within=PATTERN_WITHIN)
        name = asked.property if named else asked.pattern
        text = asked.text or held_out.text(asked.run)
        model = run_store.open(asked.run)  # it takes seconds, and others may use the model meanwhile
        found = search_cells(model, text, wanted, name=name)
        return answer({"cells": found.found, "shown": show(found)})

    return router


def _parts(find: Any, model: Any) -> list[Any]:
    from lmlab.models.abilities import learns_by_gradient

    return list(find(model)) if learns_by_gradient(model) else []


def fire_in(read: Read, spans: list[Span], *, top: int) -> list[Firing]:
    """The units that best tell the tokens of some spans from all others, by the area under the ROC curve.

    They are chosen and judged on the same few tokens: it is a beginning, not a finding (see `follow`).
    """
    import numpy as np

    from lmlab.metrics.auc import areas

    marks = np.array([any(a < end and start < b for a, b in spans) for start, end in read.offsets], dtype=bool)
    if marks.all() or not marks.any():
        raise ValueError("select a part of the text: some tokens inside, and some outside")
    found = []
    for part, values in read.activations.items():
        area = areas(values, marks)
        for unit in np.argsort(-np.abs(area - 0.5), kind="stable")[:top].tolist():
            inside, outside = float(values[marks, unit].mean()), float(values[~marks, unit].mean())
            found.append(Firing(part.layer, part.name, unit, float(area[unit]), inside, outside))
    return sorted(found, key=lambda each: (-abs(each.area - 0.5), -abs(each.inside - each.outside)))[:top]
