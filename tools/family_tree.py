"""docs/images/family-tree.svg, made from the lineage: `python -m tools.family_tree > docs/images/family-tree.svg`.

Years go down, families go across. Lines run only between rows and between columns, so none crosses a box: from the
bottom of a parent to the space below its row, across to the space left of the child's column, and down to the child.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from markupsafe import Markup

from lmlab.models import LINEAGE
from lmlab.models import defaults as families
from lmlab.models.defaults import System
from lmlab.pages.figures.svg import element
from tools.drawing import arrow, picture, rectangle, words

COLUMNS = {
    "counts and recurrent networks": (families.NGRAM_AND_FEEDFORWARD, families.RECURRENT_NETWORKS),
    "encoder–decoders": (families.ENCODER_DECODERS, families.SPEECH),
    "decoders": (families.DECODERS,),
    "encoders": (families.ENCODERS,),
    "pictures and actions": (families.CAPTIONING, families.VISION, families.POLICIES),
}
TITLE = "The family tree of the models, from n-grams to Transformers of text, pictures, sound and actions"
YEARS, GUTTER, WIDTH, HEIGHT = 54, 30, 166, 28  # of the labels of years, of the space left of a column, of a box
GAP, TOP, STEP = 20, 58, 4  # between two rows, above the first row, between two parallel lines


class Place(NamedTuple):
    """Where a system stands."""

    row: int
    column: int


class Line(NamedTuple):
    """From a system to one that builds on it."""

    parent: str
    child: str
    second: bool
    """Whether the child comes from another system first."""


def place_systems() -> dict[str, Place]:
    """A row for every system: those of a year are below those of earlier years, and below their parents."""
    column = {
        system.name: number for number, tables in enumerate(COLUMNS.values()) for table in tables for system in table
    }
    places: dict[str, Place] = {}
    for year in sorted({system.year for system in LINEAGE.values()}):
        first = 1 + max((place.row for place in places.values()), default=-1)
        waiting = [system for system in LINEAGE.values() if system.year == year]
        while waiting:
            system = next(each for each in waiting if all(parent in places for parent in each.builds_on))
            waiting.remove(system)
            row = max([first, *(1 + places[parent].row for parent in system.builds_on)])
            while Place(row, column[system.name]) in places.values():
                row += 1
            places[system.name] = Place(row, column[system.name])
    return places


def draw_tree() -> str:
    """The whole picture."""
    places = place_systems()
    rows = 1 + max(place.row for place in places.values())
    width = YEARS + len(COLUMNS) * (GUTTER + WIDTH) + 14
    height = TOP + rows * (HEIGHT + GAP) + 28
    routes = dict(_routes(places))
    parts = [*_years(places, width), *_heads()]
    for system in LINEAGE.values():
        own = [arrow(route, second=line.second) for line, route in routes.items() if line.child == system.name]
        parts.append(element("g", *own, _box(system, places[system.name]), class_="system"))
    parts.append(
        words(YEARS, height - 12, "Solid line: the closest ancestor. Dashed line: another ancestor.", class_="soft")
    )
    return picture(parts, width=width, height=height, title=TITLE)


def _left(column: int) -> float:
    return YEARS + GUTTER + column * (GUTTER + WIDTH)


def _top(row: int) -> float:
    return TOP + row * (HEIGHT + GAP)


def _years(places: dict[str, Place], width: float) -> Iterator[Markup]:
    """A label for every year, and a band behind every other one."""
    rows: dict[int, list[int]] = {}
    for name, place in places.items():
        rows.setdefault(LINEAGE[name].year, []).append(place.row)
    for number, (year, own) in enumerate(rows.items()):
        if number % 2 == 0:
            top, bottom = _top(min(own)) - GAP / 2, _top(max(own)) + HEIGHT + GAP / 2
            yield rectangle(0, top, width, bottom - top, class_="band")
        yield words(10, _top(min(own)) + 19, str(year), class_="head")


def _heads() -> Iterator[Markup]:
    for column, head in enumerate(COLUMNS):
        lines = head.split(" and ") if len(head) > 22 else [head]
        for number, line in enumerate(lines):
            text = line if number == 0 else f"and {line}"
            yield words(_left(column), 24 + 17 * number, text, class_="head soft")


def _box(system: System, place: Place) -> Markup:
    x, y = _left(place.column), _top(place.row)
    return element(
        "a",
        element("title", f"{system.name}, {system.year}: {system.summary} ({system.paper})"),
        rectangle(x, y, WIDTH, HEIGHT, class_="box", radius=6),
        words(x + 8, y + 19, system.name),
        href=f"../lineage.html#{system.name}",
        target="_top",
    )


def _routes(places: dict[str, Place]) -> Iterator[tuple[Line, list[tuple[float, float]]]]:
    """The points of each line. Lines of one parent share their way; those of different parents keep a distance."""
    lines = [
        Line(parent, system.name, number > 0)
        for system in LINEAGE.values()
        for number, parent in enumerate(system.builds_on)
    ]
    routed = [line for line in lines if not _straight(places, line)]
    across: dict[str, tuple[int, float, float]] = {}  # of a parent: the row above the space, from x to x
    down: dict[tuple[str, int], tuple[int, float, float]] = {}  # of a parent, to a column: from y to y
    for line in routed:
        start, end = places[line.parent], places[line.child]
        ends = (_left(start.column) + 20, _left(end.column) - GUTTER, *across.get(line.parent, (0,))[1:])
        across[line.parent] = (start.row, min(ends), max(ends))
        reach = (_top(start.row), _top(end.row) + HEIGHT, *down.get((line.parent, end.column), (0,))[1:])
        down[line.parent, end.column] = (end.column, min(reach), max(reach))
    track, lane = _keep_apart(across), _keep_apart(down)
    for line in lines:
        start, end = places[line.parent], places[line.child]
        if line not in routed:
            x = _left(end.column) + WIDTH / 2
            yield line, [(x, _top(start.row) + HEIGHT), (x, _top(end.row))]
            continue
        leave, gutter = _left(start.column) + 20, _left(end.column) - 12 - STEP * lane[line.parent, end.column]
        space = _top(start.row) + HEIGHT + 5 + STEP * track[line.parent]
        middle = _top(end.row) + HEIGHT / 2
        yield (
            line,
            [
                (leave, _top(start.row) + HEIGHT),
                *[(leave, space), (gutter, space), (gutter, middle)],
                (_left(end.column), middle),
            ],
        )


def _straight(places: dict[str, Place], line: Line) -> bool:
    """Whether the child is right below its parent."""
    start, end = places[line.parent], places[line.child]
    between = {Place(row, start.column) for row in range(start.row + 1, end.row)}
    return start.column == end.column and not between & set(places.values())


def _keep_apart(wanted: dict[Any, tuple[int, float, float]]) -> dict[Any, int]:
    """A number for each stretch, so that those that overlap in the same space have different ones."""
    numbers: dict[Any, int] = {}
    for key, (space, first, last) in wanted.items():
        taken = {
            numbers[other]
            for other in numbers
            if wanted[other][0] == space and wanted[other][1] < last and first < wanted[other][2]
        }
        numbers[key] = next(number for number in range(len(wanted)) if number not in taken)
    return numbers


if __name__ == "__main__":
    print(draw_tree(), end="")
