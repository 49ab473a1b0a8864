"""Soft alignments as pictures: a page that needs nothing else, or PNG where matplotlib is installed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Protocol

from lmlab.pages.page import fill_page

CELL, MARGIN = 26, 12
"""Pixels of a cell, and around the matrix."""
LETTER = 7.4
LONGEST = 18
"""Letters of a token that are shown; the whole of it is in the tooltips."""
SLOPE = math.radians(52)
"""At which the tokens of the source rise above their columns."""
MOST = 100
"""Matrices on one page."""


class Alignment(Protocol):
    """Attention of target tokens to source tokens, as it is drawn (see `analysis.alignment`)."""

    @property
    def source(self) -> Sequence[str]: ...
    @property
    def target(self) -> Sequence[str]: ...
    @property
    def weights(self) -> Sequence[Sequence[float]]: ...
    @property
    def texts(self) -> tuple[str, str]: ...


def make_page(
    alignments: Sequence[Alignment], *, numbers: Sequence[int] | None = None, model: str = "", what: str = ""
) -> str:
    """The whole page, of many sentences the first `MOST`; `what` says whose weights are shown.

    `numbers` are those of the sentences, by default from 1.
    """
    shown = list(zip(numbers or range(1, len(alignments) + 1), alignments, strict=True))[:MOST]
    left_out = f" The first {MOST} of {len(alignments)} sentences are drawn." if len(alignments) > MOST else ""
    return fill_page(
        "alignments.html",
        title="Alignments" + (f" · {escape(model)}" if model else ""),
        kind=f"lmlab · soft alignments{' · ' + escape(model) if model else ''}",
        what=escape(what),
        left_out=left_out,
        sentences="".join(_sentence(each, number) for number, each in shown),
    )


def _sentence(alignment: Alignment, number: int) -> str:
    return (
        f'<section id="sentence-{number}"><h2>{number}</h2><dl><dt>source</dt><dd>{escape(alignment.texts[0])}</dd>'
        f'<dt>target</dt><dd>{escape(alignment.texts[1])}</dd></dl><div class="scroll">{draw_matrix(alignment)}</div>'
        f"</section>"
    )


def draw_matrix(alignment: Alignment) -> str:
    """The weights as SVG: source tokens above, target tokens on the left, the darker the more attention.

    The last token of each side, which is the boundary, is drawn as ■.
    """
    source, target = ([*map(_label, side[:-1]), "■"] for side in (alignment.source, alignment.target))
    left = MARGIN + 10 + LETTER * max(map(len, target), default=1)
    reach = LETTER * max(map(len, source), default=1)
    top = MARGIN + 12 + reach * math.sin(SLOPE)
    wide = left + CELL * len(source) + max(MARGIN, LETTER * len(source[-1]) * math.cos(SLOPE))
    high = top + CELL * len(target) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="matrix" width="{wide:.0f}" height="{high:.0f}" '
        f'viewBox="0 0 {wide:.0f} {high:.0f}" role="img" aria-label="Attention of {len(target)} target tokens to '
        f'{len(source)} source tokens">'
    ]
    for column, label in enumerate(source):
        x, y = left + CELL * (column + 0.5), top - 7
        turn = f"rotate({-math.degrees(SLOPE):.0f} {x:.1f} {y:.1f})"
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="{turn}">{_spaced(label)}</text>')
    for row, (label, weights) in enumerate(zip(target, alignment.weights, strict=True)):
        y = top + CELL * row
        parts.append(f'<text x="{left - 8:.1f}" y="{y + CELL / 2 + 4.5:.1f}" text-anchor="end">{_spaced(label)}</text>')
        for column, weight in enumerate(weights):
            told = f"{alignment.target[row]} → {alignment.source[column]}: {weight:.1%}"
            parts.append(
                f'<rect x="{left + CELL * column:.1f}" y="{y:.1f}" width="{CELL - 1}" height="{CELL - 1}" rx="4" '
                f'style="--w:{weight:.3f}"><title>{escape(told)}</title></rect>'
            )
    return "".join(parts) + "</svg>"


def _label(token: str) -> str:
    return token if len(token) <= LONGEST else token[: LONGEST - 1] + "…"


def _spaced(label: str) -> str:
    return escape(label).replace(" ", '<tspan class="space">·</tspan>')


def save_png(alignment: Alignment, path: Path) -> None:
    """One matrix as PNG; a ValueError names what to install where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError(
            f"{path}: PNG needs matplotlib: pip install 'lmlab[report]', or give a name that ends with .html"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (1.6 + 0.34 * len(alignment.source), 1.4 + 0.30 * len(alignment.target))
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    axes.imshow(alignment.weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(alignment.source)), [token.strip() for token in alignment.source], rotation=60, ha="left")
    axes.set_yticks(range(len(alignment.target)), [token.strip() for token in alignment.target])
    axes.xaxis.tick_top()
    axes.set(xlabel="source", ylabel="target")
    axes.xaxis.set_label_position("top")
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
