"""What all routes share: bodies that are checked, and answers that are JSON whatever the numbers are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.responses import JSONResponse

from lmlab.analysis.view import plain

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel
    from lmlab.studio.run_store import RunStore

RunName = Annotated[str, Field(min_length=1, max_length=500, description="where the run lies under the folder")]
RunNames = Annotated[list[RunName], Field(min_length=1, max_length=8, description="runs, side by side")]
Text = Annotated[str, Field(max_length=20_000, description="a text")]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=512)]


def answer(value: Any) -> JSONResponse:
    """A record as JSON."""
    return JSONResponse(plain(value))


def answer_for_each(
    names: Iterable[str], run_store: RunStore, look: Callable[[LanguageModel], dict[str, Any]]
) -> JSONResponse:
    """What is seen in each run, and why not in those that are `refused`; an error where that is all of them."""
    found, refused = [], []
    for name in names:
        with run_store.using(name) as model:
            try:
                found.append({"run": name, **look(model)})
            except ValueError as error:  # what one run cannot do, others may
                refused.append({"run": name, "why": str(error)})
    if not found:
        raise ValueError("; ".join(dict.fromkeys(each["why"] for each in refused)))
    return answer({"runs": found, "refused": refused})
