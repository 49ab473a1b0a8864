"""One held-out passage, token by token, in colours that show how surprised each system was."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STRONGEST = 12.0
"""Bits at and above which the colour is strongest."""


def to_html(pieces: Sequence[tuple[str, float]]) -> str:
    """The passage as HTML; the pointer over a piece shows its bits."""
    return "".join(_piece(text, bits) for text, bits in pieces)


def _piece(text: str, bits: float) -> str:
    shown = escape(text.replace("\n", "⏎\n")) or "∅"
    told = f"{escape(text.strip() or 'white space', quote=True)}: {bits:.1f} bits"
    return f'<span style="--s:{strength(bits)}" title="{told}">{shown}</span>'


def strength(bits: float) -> str:
    """0 to 1, how strong the colour of a surprisal is."""
    return f"{min(max(bits, 0.0) / STRONGEST, 1.0):.2f}"


def legend(steps: Sequence[float] = (0.5, 2, 4, 7, 10, 12)) -> str:
    """Samples of the colours."""
    return "".join(
        f'<span style="--s:{strength(bits)}">{bits:g}{"+" if bits == STRONGEST else ""}</span>' for bits in steps
    )
