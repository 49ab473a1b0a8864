"""Which columns of a table are the texts, where nobody looks at its labels, and it may have none."""

from __future__ import annotations

from collections.abc import Mapping

from lmlab.data.readers.column_types import are_numbers, are_row_numbers, look_like_text
from lmlab.data.readers.columns import (
    ANSWERS,
    CONTEXTS,
    LABELS,
    SCORES,
    STEMS,
    TEXTS,
    Columns,
    Roles,
    by_role,
    find_choices,
    find_places,
    find_texts,
    guess_label,
    is_id,
    normalize,
    show_row,
)
from lmlab.data.readers.examples import TaskName
from lmlab.data.readers.tables import Table


def find_text_columns(table: Table, *, task: TaskName, pair: bool | None, columns: Columns | None) -> Roles:
    """The columns of one text or of two, or of a question and its choices: as said, else by names, else by values."""
    given = {role: find_places(table, value) for role, value in by_role(columns or {}).items()}
    names = [normalize(name) for name in table.names or ()]
    taken = {place for places in given.values() for place in places}
    free = {name: place for place, name in reversed([*enumerate(names)]) if place not in taken}
    a, b = given.get("a", [None])[0], given.get("b", [None])[0]
    if task == "choice":
        return _find_question(table, a, b, tuple(given.get("choices", ())), free)
    if pair is False and b is not None:
        raise ValueError(f"{table.source}: this run reads one text; leave the second out of --columns")
    if a is not None and (b is not None or pair is not True):
        return Roles(a, None, b)
    if a is None and b is None:
        a, b = _find_by_name(free, pair)
    if a is None or (b is None and pair):
        found = _find_by_values(table, pair, taken, first=a)
        a, b = found if b is None or a is not None else (found[0], b)
    return Roles(a, None, b)


def _find_by_name(free: Mapping[str, int], pair: bool | None) -> tuple[int | None, int | None]:
    a, b = find_texts(free, has_label=True)
    if pair is False:
        return next((free[name] for name in TEXTS if name in free), None), None
    return (None, None) if pair and b is None else (a, b)


def _find_by_values(table: Table, pair: bool | None, taken: set[int], first: int | None) -> tuple[int, int | None]:
    """The columns that are left when those of numbers and labels are taken away."""
    columns = {place: table.column(place) for place in range(table.width)}
    wanted = 2 if pair and first is None else 1
    most = 2 if pair is None else wanted
    places = [place for place in columns if place not in taken and place != first]
    if table.names is not None:
        known = {*LABELS, *SCORES}
        names = [normalize(name) for name in table.names]
        places = [place for place in places if not is_id(names[place]) and names[place] not in known]
    for leave in (are_row_numbers, are_numbers):
        if len(places) > wanted:
            places = [place for place in places if not leave(columns[place])] or places
    if len(places) > wanted and (label := guess_label(columns, places)) is not None:
        places = [place for place in places if place != label]
    if len(places) > most:
        places = [place for place in places if look_like_text(columns[place])]
    if not wanted <= len(places) <= most:
        raise ValueError(_ask(table, pair))
    if first is not None:
        return first, places[0]
    return places[0], places[1] if len(places) == 2 else None


def _find_question(
    table: Table, a: int | None, b: int | None, choices: tuple[int, ...], free: Mapping[str, int]
) -> Roles:
    choices = choices or find_choices(table, free, answered=False)
    rest = {name: place for name, place in free.items() if place not in choices and name not in ANSWERS}
    if a is None:
        a = next((rest[name] for name in STEMS if name in rest), None)
    if a is None or not choices:
        missing = "question" if a is None else "choices"
        raise ValueError(
            f"{table.source}: which column holds the {missing} cannot be told ({show_row(table)}); say it, for "
            f"instance --columns question=NAME,choices=FIRST+SECOND"
        )
    if b is None:
        b = next((rest[name] for name in CONTEXTS if name in rest and rest[name] != a), None)
    return Roles(a, None, b, choices)


def _ask(table: Table, pair: bool | None) -> str:
    """The message about a table whose texts cannot be told."""
    if pair and table.width < 2:
        return f"{table.source} has one column ({show_row(table)}), and this run reads two texts: give both in each row"
    what = "columns hold the two texts" if pair else "column holds the text"
    how = "a=1,b=2" if pair else "text=1"
    return f"{table.source}: which {what} cannot be told ({show_row(table)}); say it, for instance --columns {how}"
