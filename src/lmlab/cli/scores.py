"""Scores of a task as a table for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from lmlab.transfer.results import Interval, Row
    from lmlab.transfer.study import Study


def score_table(study: Study) -> Table:
    """One line for each way of learning, best last measures to the right; intervals are 95%."""
    from rich.table import Table

    from lmlab.transfer.results import rows_of

    rows = rows_of(study.results)
    measures = list(study.results[0].values)
    split, count = study.results[0].split, study.results[0].count
    table = Table(title=f"{study.task}: {count:,} {split} examples of {study.data}", title_justify="left")
    table.add_column("model")
    table.add_column("how")
    if study.kind == "curve":
        table.add_column("examples", justify="right")
    for number, name in enumerate(measures):
        table.add_column(name, justify="right", style="bold" if number == 0 else "")
    if any(len(row.seeds) > 1 for row in rows):
        table.add_column("each seed", justify="right")
    table.add_column("seconds", justify="right")
    for row in rows:
        cells = [row.name, _how(row)]
        if study.kind == "curve":
            cells.append(f"{row.examples:,}")
        cells += [tell_interval(row.values[name]) for name in measures]
        if any(len(each.seeds) > 1 for each in rows):
            cells.append(" ".join(tell_value(value) for value in row.seeds) if len(row.seeds) > 1 else "")
        table.add_row(*cells, f"{row.seconds:,.1f}")
    return table


def _how(row: Row) -> str:
    how = row.how if row.layers == "last" or row.how != "frozen" else f"{row.how}, {row.layers}"
    return f"{how} ({row.note})" if row.note else how


def tell_value(value: float | None) -> str:
    """A share as a percentage without the sign, as papers write it."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}"


def tell_interval(found: Interval) -> str:
    """A score with its interval."""
    if found.low is None or found.high is None:
        return tell_value(found.value)
    return f"{tell_value(found.value)} [{tell_value(found.low)}, {tell_value(found.high)}]"
