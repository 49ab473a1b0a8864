"""What all routes share: bodies that are checked, and answers that are JSON whatever the numbers are."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import JSONResponse

from lmlab.analysis.view import plain

RunName = Annotated[str, Field(min_length=1, max_length=500, description="where the run lies under the folder")]
RunNames = Annotated[list[RunName], Field(min_length=1, max_length=8, description="runs, side by side")]
Text = Annotated[str, Field(max_length=20_000, description="a text")]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=512)]


def answer(value: Any) -> JSONResponse:
    """A record as JSON."""
    return JSONResponse(plain(value))
