"""The colours of runs and systems, the same in reports and in the studio, and the shapes that tell them apart in grey.

The colours were chosen by maximizing the least distance in OKLab between any two, as seen with normal vision and with
each kind of colour blindness (Machado et al. 2009), among those with a contrast of 3 to white and to the dark card of
the pages. So one palette serves both colour schemes. The order keeps two colours
with the same shape of marks as different as possible.
"""

from __future__ import annotations

from collections.abc import Mapping

PALETTE = ("#4164d3", "#d67e09", "#e01412", "#8d8fc6", "#79665f", "#f55092", "#07988b", "#9c4ca1", "#217b01", "#b467fd")
CORNERS: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    ((0, -1.3), (1.3, 1), (-1.3, 1)),
    ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
    (
        *((-0.4, -1.3), (0.4, -1.3), (0.4, -0.4), (1.3, -0.4), (1.3, 0.4), (0.4, 0.4)),
        *((0.4, 1.3), (-0.4, 1.3), (-0.4, 0.4), (-1.3, 0.4), (-1.3, -0.4), (-0.4, -0.4)),
    ),
)
"""The shape of the marks of a line, by the number of its colour: circle, square, triangle, diamond, cross.

These are corners for a radius of 1; a circle has none. The studio has the same in static/colours.js.
"""
PLOT_MARKERS = ("o", "s", "^", "D", "P")
"""The same in matplotlib."""


def number_colours(wanted: Mapping[str, int]) -> dict[str, int]:
    """One number of the palette for each name: the wanted one if no earlier name has it, else the next free one.

    Two names share a number only if there are more names than colours; then it is one that few names have.
    """
    chosen: dict[str, int] = {}
    used = dict.fromkeys(range(len(PALETTE)), 0)
    for name, own in wanted.items():
        order = [(own + step) % len(PALETTE) for step in range(len(PALETTE))]
        chosen[name] = min(order, key=used.__getitem__)
        used[chosen[name]] += 1
    return chosen


def shape_number(colour: str) -> int:
    """The shape of the marks of a line with this colour, by number; circles for colours outside of the palette."""
    return PALETTE.index(colour) % len(CORNERS) if colour in PALETTE else 0
