"""Cells: one unit over a text, the units that are active in selected spans, and units that detect a property."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.held_out_access import HeldOutReader
from lmlab.studio.responses import RunName, Text, respond, to_json
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.cells.activations import Read

Span = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


class CellRequest(Config):
    """A unit and a text; without a part, the first part of the model."""

    run: RunName
    text: Text
    layer: int = Field(0, ge=0, le=1000)
    part: str = Field("", max_length=40, description="cell, hidden, a gate, or neurons")
    unit: int = Field(0, ge=0, le=10_000_000)


class SpansRequest(Config):
    """Which units are most active in the selected spans of a text."""

    run: RunName
    text: Text
    spans: list[Annotated[Span, Field(strict=False)]] = Field(min_length=1, max_length=100)
    top: int = Field(12, ge=1, le=100)


class PropertyRequest(Config):
    """Which units detect a property, evaluated on text that was not used to choose them."""

    run: RunName
    property: Literal["quotes", "brackets", "line", "capitals", "if", "pattern"] = "quotes"
    pattern: str = Field("", max_length=200, description="a regular expression, if the property is pattern")
    text: Text = Field("", description="text to search; by default the held-out text of the run")


class SpanUnit(NamedTuple):
    """A unit with the area under its ROC curve: 1 if it is always higher inside the spans, 0 if always lower."""

    layer: int
    part: str
    unit: int
    area: float
    inside: float
    outside: float


PATTERN_WITHIN = 10.0
"""Time limit of a regular expression in seconds."""


def make_router(run_store: RunStore, held_out: HeldOutReader) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/cells")
    def one_cell(request: CellRequest) -> Response:
        from lmlab.analysis.cells.activations import CellText, cell_parts, read_cells

        with run_store.using(request.run) as model:
            names = list(dict.fromkeys(part.name for part in _parts(cell_parts, model.model)))
            read = read_cells(model, request.text, parts=names)
        parts = [{"layer": part.layer, "part": part.name, "units": v.shape[1]} for part, v in read.activations.items()]
        known = [part for part in parts if part["part"] == request.part] or parts
        chosen = min(known, key=lambda part: abs(part["layer"] - request.layer))
        unit = min(request.unit, chosen["units"] - 1)
        cell = CellText.of(read, layer=chosen["layer"], part=chosen["part"], unit=unit)
        return respond({"parts": parts, "cell": cell, "analysis": to_json(cell)})

    @router.post("/cells/spans")
    def spans(request: SpansRequest) -> Response:
        from lmlab.analysis.cells.activations import read_cells

        with run_store.using(request.run) as model:
            return respond({"cells": units_in_spans(read_cells(model, request.text), request.spans, top=request.top)})

    @router.post("/cells/property")
    def detect(request: PropertyRequest) -> Response:
        from lmlab.analysis.cells.properties import find_property, matches
        from lmlab.analysis.cells.search import search_cells

        if request.property == "pattern" and not request.pattern:
            raise ValueError("pattern is empty: write a regular expression, for instance \\d+")
        named = request.property != "pattern"
        wanted = find_property(request.property) if named else matches(request.pattern, within=PATTERN_WITHIN)
        name = request.property if named else request.pattern
        text = request.text or held_out.text(request.run)
        model = run_store.open(request.run)  # not locked: it takes seconds, and others may use the model meanwhile
        found = search_cells(model, text, wanted, name=name)
        return respond({"cells": found.found, "analysis": to_json(found)})

    return router


def _parts(find: Any, model: Any) -> list[Any]:
    from lmlab.models.abilities import learns_by_gradient

    return list(find(model)) if learns_by_gradient(model) else []


def units_in_spans(read: Read, spans: list[Span], *, top: int) -> list[SpanUnit]:
    """The units that are most active in some spans, by the area under the ROC curve of their tokens against all others.

    They are chosen and evaluated on the same few tokens: exploratory, see `detect` for held-out text.
    """
    import numpy as np

    from lmlab.metrics.auc import areas

    marks = np.array([any(a < end and start < b for a, b in spans) for start, end in read.offsets], dtype=bool)
    if marks.all() or not marks.any():
        raise ValueError("select a part of the text: some tokens inside, and some outside")
    found = []
    for part, values in read.activations.items():
        area = areas(values, marks)
        for unit in np.argsort(-area, kind="stable")[:top].tolist():
            inside, outside = float(values[marks, unit].mean()), float(values[~marks, unit].mean())
            found.append(SpanUnit(part.layer, part.name, unit, float(area[unit]), inside, outside))
    return sorted(found, key=lambda each: (-each.area, each.outside - each.inside))[:top]
