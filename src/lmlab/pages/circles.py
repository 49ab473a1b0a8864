"""Circles cut into the buckets of a hash, one for each round, with two points on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lmlab.pages.charts import PALETTE, STYLE

RADIUS, ROOM = 70, 200


def draw_circles(rounds: Sequence[Sequence[int]], points: Sequence[float]) -> str:
    """As SVG: the bucket of each direction (evenly spaced from 0 degrees) in each round, and points at some degrees."""
    width, height = ROOM * len(rounds), ROOM + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
        f"<title>{len(rounds)} rounds of hashing</title><style>{STYLE}</style>"
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    ]
    for number, buckets in enumerate(rounds):
        x, y = ROOM * number + ROOM / 2, ROOM / 2
        parts += [_sector(x, y, start, end, len(buckets), buckets[start]) for start, end in _runs(buckets)]
        parts += [_point(x, y, degrees, name) for degrees, name in zip(points, "xyzuvw", strict=False)]
        places = [round(degrees / 360 * len(buckets)) % len(buckets) for degrees in points]
        same = len({buckets[place] for place in places}) == 1
        told = "same bucket" if same else "different buckets"
        parts.append(f'<text x="{x}" y="{ROOM + 2}" text-anchor="middle">round {number + 1}: {told}</text>')
    return "".join((*parts, "</svg>"))


def _runs(buckets: Sequence[int]) -> list[tuple[int, int]]:
    """Where neighbouring directions share a bucket: first and after last."""
    cuts = [place for place in range(len(buckets)) if buckets[place] != buckets[place - 1]]
    if not cuts:
        return [(0, len(buckets))]
    return [(a, b) for a, b in zip(cuts, [*cuts[1:], cuts[0] + len(buckets)], strict=True)]


def _sector(x: float, y: float, start: int, end: int, steps: int, bucket: int) -> str:
    """From half a step before its first direction to half a step after its last."""
    a, b = ((place - 0.5) * 2 * math.pi / steps for place in (start, end))
    first, last = (f"{x + RADIUS * math.cos(t):.2f} {y - RADIUS * math.sin(t):.2f}" for t in (a, b))
    large = int(b - a > math.pi)
    middle = (a + b) / 2
    label = f"{x + 0.6 * RADIUS * math.cos(middle):.1f}", f"{y - 0.6 * RADIUS * math.sin(middle) + 4:.1f}"
    colour = PALETTE[bucket % len(PALETTE)]
    return (
        f'<path d="M{x} {y}L{first}A{RADIUS} {RADIUS} 0 {large} 0 {last}Z" fill="{colour}" fill-opacity=".35" '
        f'stroke="#ffffff"/><text x="{label[0]}" y="{label[1]}" text-anchor="middle">{bucket}</text>'
    )


def _point(x: float, y: float, degrees: float, name: str) -> str:
    angle = math.radians(degrees)
    at = x + RADIUS * math.cos(angle), y - RADIUS * math.sin(angle)
    label = x + (RADIUS + 13) * math.cos(angle), y - (RADIUS + 13) * math.sin(angle) + 4
    return (
        f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4.5" fill="#3d4450"/>'
        f'<text x="{label[0]:.1f}" y="{label[1]:.1f}" text-anchor="middle" font-style="italic">{name}</text>'
    )
