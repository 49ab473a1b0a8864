"""How it works: the steps of a forward pass, the numbers of one of them, and where a number comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.pass_cache import PassCache
from lmlab.studio.responses import RunName, Text, respond
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.forward_pass.read import ForwardPass
    from lmlab.analysis.forward_pass.steps import Facts, Grid, Step
    from lmlab.language_model import LanguageModel

MOST_COLUMNS = 128
"""Numbers of a vector that are sent, unless all are asked for."""


class ForwardRequest(Config):
    """A run, a text, a position in it, and what of the pass is looked at."""

    run: RunName
    text: Text
    position: int | None = Field(None, ge=0, le=100_000, description="token whose prediction is shown; None: the last")
    step: str = Field("", max_length=60, description="key of the step that is shown; the first if there is none")
    head: int = Field(0, ge=0, le=10_000, description="head of attention")
    candidate: int | None = Field(None, ge=0, lt=2**31, description="token that is compared with the most probable")
    temperature: float = Field(1.0, gt=0, le=100, description="temperature of the softmax")
    number: str = Field("", max_length=120, description="address of a number that is explained")
    whole: bool = Field(False, description="send all numbers of a vector")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)
    passes: PassCache[ForwardPass] = PassCache(run_store, _size)

    @router.post("/how")
    def how(request: ForwardRequest) -> Response:
        from lmlab.analysis.forward_pass.read import read_forward

        def look(model: LanguageModel) -> ForwardPass:
            return read_forward(model, request.text, position=request.position)

        found = passes.read(request.run, f"{request.position}\n{request.text}", look).at(request.temperature)
        return respond(_about(found, request))

    return router


def _size(found: ForwardPass) -> int:
    return sum(numbers.values.nbytes for numbers in found.trace.arrays.values())


def _about(found: ForwardPass, request: ForwardRequest) -> dict[str, Any]:
    from lmlab.analysis.forward_pass.steps import Grid, Look

    if request.candidate is not None and request.candidate >= len(found.logits):
        raise ValueError(f"candidate = {request.candidate}: the vocabulary has {len(found.logits)} tokens, from 0 on")
    step: Step = next((each for each in found.steps if each.key == request.step), found.steps[0])
    best = found.candidates(1)[0].token
    head = min(request.head, max(step.heads, 1) - 1)
    look = Look(found.position, head, best if request.candidate is None else request.candidate)
    shown = [
        _grid(found, each, request) if isinstance(each, Grid) else _facts(found, each) for each in step.grids(look)
    ]
    return {
        "system": found.system,
        "tokens": found.tokens,
        "position": found.position,
        "masked": found.masked,
        "cut": found.cut,
        "outline": [{"key": each.key, "group": each.group, "title": each.title} for each in found.steps],
        "heads": max(each.heads for each in found.steps),
        "step": {**step._asdict(), "head": head, "grids": shown},
        "candidates": [each._asdict() for each in found.candidates(also=look.candidate)],
        "candidate": look.candidate,
        "number": _origin(found, request.number) if request.number else None,
    }


def _grid(found: ForwardPass, grid: Grid, request: ForwardRequest) -> dict[str, Any]:
    values = found.numbers(grid)
    shown = values if request.whole or grid.columns else values[:, :MOST_COLUMNS]
    return {
        "name": grid.name,
        "label": grid.label,
        "kind": grid.kind,
        "rows": [{"label": row.label, "prefix": list(row.prefix)} for row in grid.rows],
        "columns": list(grid.columns),
        "indices": list(grid.indices),
        "width": values.shape[1],
        "values": [[float(f"{value:.6g}") for value in row] for row in shown.tolist()],
    }


def _facts(found: ForwardPass, facts: Facts) -> dict[str, Any]:
    from lmlab.analysis.forward_pass.steps import Address

    def cell(value: object) -> object:
        if not isinstance(value, Address):
            return value
        numbers, index = found.trace.find(value.at)
        return {"at": value.at, "value": float(numbers.values[index])}

    rows = [[cell(each) for each in row] for row in facts.rows]
    return {"kind": "facts", "label": facts.label, "columns": list(facts.columns), "rows": rows}


def _origin(found: ForwardPass, number: str) -> dict[str, Any]:
    origin = found.explain(number)
    terms = [{"value": term.value, "factors": [each._asdict() for each in term.factors]} for term in origin.terms]
    return {**origin._asdict(), "at": number, "terms": terms}
