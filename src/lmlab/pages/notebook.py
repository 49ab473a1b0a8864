"""What a notebook shows of things that are no analyses: text in colour, whole pages in a frame, cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lmlab.pages.figures import ColouredText
from lmlab.pages.surprisal import STRONGEST


def show_surprisals(pieces: Sequence[tuple[str, float]], *, told: str, spaced: bool) -> str:
    """Tokens on a ground as strong as their bits, under a line of what it is."""
    text = ColouredText("Surprisal in bits", pieces, STRONGEST, unit=".1f", spaced=spaced)
    return f"<div class='lmlab-view'><p style='margin:0'>{escape(told)}</p>{text.html()}</div>"


def show_page(page: str, *, height: int = 560) -> str:
    """A whole page in a frame of its own, which may run its own script and nothing else."""
    style = f"width:100%;height:{height}px;border:1px solid #e3e6ec;border-radius:8px"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page, quote=True)}"></iframe>'


def show_card(title: str, facts: Mapping[str, Any]) -> str:
    """A title and facts, a line each."""
    rows = "".join(
        f"<tr><td style='text-align:left'>{escape(name)}</td><td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<div class='lmlab-view'><b>{escape(title)}</b><table>{rows}</table></div>"
