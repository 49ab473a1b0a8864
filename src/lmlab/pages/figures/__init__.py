"""Figures as plain records. One record is shown in reports and notebooks (SVG or HTML), saved as SVG or PNG, and sent
to the studio as JSON, which draws it again at the width of the window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from markupsafe import Markup

from lmlab.files import write_text, writing
from lmlab.pages.figures.axes import Agreement, Lines, Reliability, ReliabilityBin
from lmlab.pages.figures.charts import Chart, Point, Series, pareto_front
from lmlab.pages.figures.heatmap import Heatmap
from lmlab.pages.figures.marks import Bar, Bars, ColouredText, Dot, Scatter, draw_circles
from lmlab.pages.figures.palette import PALETTE, number_colours
from lmlab.pages.figures.pictures import PictureGrid, PictureHeatmap
from lmlab.pages.figures.svg import standalone

__all__ = [
    "PALETTE",
    "Agreement",
    "Bar",
    "Bars",
    "Chart",
    "ColouredText",
    "Dot",
    "Figure",
    "Heatmap",
    "Lines",
    "PictureGrid",
    "PictureHeatmap",
    "Point",
    "Reliability",
    "ReliabilityBin",
    "Scatter",
    "Series",
    "draw_circles",
    "number_colours",
    "pareto_front",
    "save_charts",
    "save_png",
]


class Figure(Protocol):
    """A record that can be drawn."""

    @property
    def title(self) -> str: ...

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height of its PNG."""

    def html(self) -> Markup:
        """The figure as SVG or HTML that needs nothing else."""

    def draw(self, axes: Any) -> None:
        """Draw it on axes of matplotlib."""


def save_png(figures: Sequence[Figure], path: Path) -> None:
    """Save figures below each other as PNG; a ValueError names what to install where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError(
            f"{path}: PNG needs matplotlib: pip install 'lmlab[report]', or give a name that ends with .html"
        ) from None
    if not figures:
        raise ValueError(f"{path}: this analysis has no picture; give a name that ends with .json, .csv or .html")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    widths, heights = zip(*(figure.inches for figure in figures), strict=True)
    drawn, axes = pyplot.subplots(
        len(figures),
        1,
        figsize=(max(widths), sum(heights)),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    for figure, each in zip(figures, axes[:, 0], strict=True):
        figure.draw(each)
        each.set_title(figure.title)
    with writing(path) as new:
        drawn.savefig(new, dpi=160, format="png")
    pyplot.close(drawn)


def save_charts(charts: Sequence[Chart], folder: Path) -> bool:
    """Save each chart as SVG, and as PNG if matplotlib is installed; True if it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        write_text(folder / f"{chart.name}.svg", standalone(chart.html()))
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    for chart in charts:
        save_png([chart], folder / f"{chart.name}.png")
    return True
