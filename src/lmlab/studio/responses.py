"""Fields of requests and forms of responses that all views share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.responses import JSONResponse

from lmlab.analysis.view import plain
from lmlab.serve.errors import NotANumberError

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel
    from lmlab.pages.views import View
    from lmlab.studio.run_store import RunStore

RunName = Annotated[str, Field(min_length=1, max_length=500, description="path of a run in the folder")]
RunNames = Annotated[list[RunName], Field(min_length=1, max_length=10, description="runs to compare")]
Text = Annotated[str, Field(max_length=20_000, description="a text")]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=512)]
MOST_ROWS = 2000
"""Rows of a table that are sent to the page."""


def respond(value: Any) -> JSONResponse:
    """A record as JSON; numbers that are not finite become null."""
    return JSONResponse(plain(value))


def respond_for_each(
    names: Iterable[str], run_store: RunStore, look: Callable[[str, LanguageModel], dict[str, Any]]
) -> JSONResponse:
    """The result of `look` for the name and model of each run, and the reason for each run that is `refused`.

    Raises an error if all runs are refused.
    """
    found: list[dict[str, Any]] = []
    errors: dict[str, ValueError | NotANumberError] = {}
    for name in names:
        try:
            with run_store.using(name) as model:
                found.append({"run": name, **look(name, model)})
        except (ValueError, NotANumberError) as error:  # other runs may be able to
            errors[name] = error
    reasons = {str(error): error for error in errors.values()}
    if not found and len(reasons) == 1:
        raise next(iter(reasons.values()))
    if not found:
        raise ValueError("; ".join(reasons))
    return respond({"runs": found, "refused": [{"run": name, "why": str(error)} for name, error in errors.items()]})


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
