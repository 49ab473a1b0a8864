"""Fields of requests and forms of responses that all views share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.responses import JSONResponse

from lmlab.analysis.view import plain

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel
    from lmlab.pages.views import View
    from lmlab.studio.run_store import RunStore

RunName = Annotated[str, Field(min_length=1, max_length=500, description="path of a run in the folder")]
RunNames = Annotated[list[RunName], Field(min_length=1, max_length=8, description="runs to compare")]
Text = Annotated[str, Field(max_length=20_000, description="a text")]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=512)]
MOST_ROWS = 2000
"""Rows of a table that are sent to the page."""


def respond(value: Any) -> JSONResponse:
    """A record as JSON; numbers that are not finite become null."""
    return JSONResponse(plain(value))


def respond_for_each(
    names: Iterable[str], run_store: RunStore, look: Callable[[LanguageModel], dict[str, Any]]
) -> JSONResponse:
    """The result of `look` for each run, and the reason for each run that is `refused`; an error if all are."""
    found, refused = [], []
    for name in names:
        with run_store.using(name) as model:
            try:
                found.append({"run": name, **look(model)})
            except ValueError as error:  # other runs may be able to
                refused.append({"run": name, "why": str(error)})
    if not found:
        raise ValueError("; ".join(dict.fromkeys(each["why"] for each in refused)))
    return respond({"runs": found, "refused": refused})


def to_json(view: View) -> dict[str, Any]:
    """An analysis as JSON: its text, its table, and its figures as data with their kind."""
    table = view.table()
    return {
        "title": view.title,
        "lead": view.lead(),
        "notes": list(view.notes()),
        "columns": list(table.columns),
        "rows": plain([list(row) for row in table.rows[:MOST_ROWS]]),
        "figures": [{"kind": type(figure).__name__, **plain(figure)} for figure in view.figures()],
    }
