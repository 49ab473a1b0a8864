"""What all routes share: bodies that are checked, and answers that are JSON whatever the numbers are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import JSONResponse

RunName = Annotated[str, Field(min_length=1, max_length=500, description="where the run lies under the folder")]
RunNames = Annotated[list[RunName], Field(min_length=1, max_length=8, description="runs, side by side")]
Text = Annotated[str, Field(max_length=20_000, description="a text")]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=512)]


def plain(value: Any) -> Any:
    """Records and tuples as what JSON knows; None where a number is not finite."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def answer(value: Any) -> JSONResponse:
    """A record as JSON."""
    return JSONResponse(plain(value))
