"""JSON and TOML from files of others: whatever is wrong with a text is the error of the parser, in one line.

Python's parsers raise other errors for texts that are nested too deeply, and for numbers with thousands of digits.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

MakeObject = Callable[[list[tuple[str, Any]]], Any]
TOO_DEEP = "nested too deeply"


def load_json(text: str | bytes, *, make_object: MakeObject | None = None) -> Any:
    """The value of a JSON text; a JSONDecodeError says what is wrong. `make_object` gets the pairs of each object."""
    try:
        return json.loads(text, object_pairs_hook=make_object)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        if make_object is not None and not isinstance(error, RecursionError):
            raise
        raise json.JSONDecodeError(_explain(error), "", 0) from None


def load_json_at(text: str, position: int) -> tuple[Any, int]:
    """The JSON value that begins at a position, and where it ends; a JSONDecodeError says what is wrong."""
    try:
        return json.JSONDecoder().raw_decode(text, position)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        raise json.JSONDecodeError(_explain(error), text, position) from None


def load_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; a TOMLDecodeError says what is wrong."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        raise tomllib.TOMLDecodeError(_explain(error)) from None


def _explain(error: Exception) -> str:
    return TOO_DEEP if isinstance(error, RecursionError) else "a number has too many digits"
