"""What a model that predicts the next token reads before a text: the boundary, or nothing.

Models trained by lmlab read the boundary. An imported one reads what its own tokenizer puts there; where that is
nothing, the boundary still begins an empty text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lmlab.tokenizers.frames import NEXT_TOKEN, NO_BOUNDARY, Frame, Pieces
from lmlab.tokenizers.tokenizer import Tokenizer


def opening_token(frame: Frame) -> int:
    """Return the token before a text, also before an empty one; a ValueError if there is none."""
    row = frame.row().get("tokens", [])
    if not row and "boundary" in frame.specials.get("tokens", {}):
        row = [frame.specials["tokens"]["boundary"]]
    if len(row) != 1:
        raise ValueError(
            "no token begins a text for this model, because its tokenizer names none: give a text, or name a bos_token "
            "in the tokenizer_config.json of the imported folder and convert it again"
        )
    return int(row[0])


def puts_boundary(frame: Frame) -> bool:
    """Whether there is a token before every text."""
    return bool(frame.row()["tokens"])


def prompt_tokens(frame: Frame, ids: Pieces) -> list[int]:
    """Return the tokens that a model reads before it predicts the next one: at least one."""
    row: list[int] = frame.row(a=ids)["tokens"]
    return row or [opening_token(frame)]


def with_boundary(frame: Frame) -> Frame:
    """Return the frame with the boundary before every text."""
    return _change(frame, NEXT_TOKEN)


def without_boundary(frame: Frame) -> Frame:
    """Return the frame with nothing before a text."""
    return _change(frame, NO_BOUNDARY)


def _change(frame: Frame, templates: Mapping[str, str]) -> Frame:
    if not _is_optional(frame):
        around = "; ".join(f"{name}: {template}" for name, template in frame.templates.items())
        raise ValueError(
            f"the boundary is an option of models that predict the next token from left to right; this one reads "
            f"{around}: leave the option out"
        )
    return replace(frame, templates=dict(templates), specials={"tokens": {"boundary": opening_token(frame)}})


def _is_optional(frame: Frame) -> bool:
    return dict(frame.templates) in (dict(NEXT_TOKEN), dict(NO_BOUNDARY)) and not frame.backwards


def describe_boundary(frame: Frame, tokenizer: Tokenizer) -> str:
    """Return what is before a text, as one line; "" for models without that option."""
    if not _is_optional(frame):
        return ""
    try:
        name = tokenizer.show(opening_token(frame))
    except ValueError:
        return "boundary: none, the tokenizer names no token that begins a text"
    if puts_boundary(frame):
        return f"boundary: {name} is put before every text (--no-boundary leaves it out)"
    return f"boundary: nothing is put before a text (--boundary puts {name} there)"
