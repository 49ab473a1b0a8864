"""Scores of a task as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lmlab.pages.scores import ShownScore, clamp, format_difference, format_p, format_score

if TYPE_CHECKING:
    from rich.table import Table

    from lmlab.transfer.results import Interval, Row
    from lmlab.transfer.study import Study

LONGEST_WORD, SHORTEST = 16, 8
"""Letters of a line of a name: those of its longest word, up to 16; in a very narrow terminal 8."""
BETWEEN = 3
"""Columns of the terminal between two columns of the table."""
SEEDS_IN_LINE = 3
AHEAD = {"run": "the run", "curve": "the network with as many examples"}
AHEAD |= dict.fromkeys(("layers", "comparison"), "the best network")
"""The row that the column of differences is about, by the kind of study."""


def print_study(study: Study, output: Path, *, json_: bool, next_step: str = "") -> None:
    """The scores as a table, and where the page is."""
    from lmlab.transfer.report import gather_facts, write_page

    facts = gather_facts(study, output)
    report = write_page(facts, output)
    if json_:
        print(study.model_dump_json())
        return
    from lmlab.cli.console import Console
    from lmlab.pages.headline import format_comparison, format_headline

    console = Console(highlight=False)
    console.print(score_table(study))
    for line in format_mixes(study):
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"{format_headline(facts)}.", style="bold", soft_wrap=True, markup=False)
    if comparison := format_comparison(facts):
        console.print(comparison, soft_wrap=True, markup=False)
    for command, what in facts.commands if study.kind != "run" else ():
        console.print(f"{what[:1].upper()}{what[1:]}: {command}", soft_wrap=True, markup=False)
    console.print(f"Report: [bold]{report}[/bold]", soft_wrap=True)
    if next_step:
        console.print(f"Next: {next_step}", soft_wrap=True, markup=False)


def score_table(study: Study, *, width: int | None = None) -> Table:
    """One line for each way of learning: the main metric with its 95% interval, then the others.

    In a narrow terminal (`width` columns, by default those of this one) names are broken and the metrics that count
    least are left out; no number is cut or broken.
    """
    from rich import box
    from rich.table import Table

    from lmlab.cli.console import Console

    rows = study.table
    first = study.results[0]
    width = Console().width if width is None else width
    names = {"model": [row.name for row in rows], "method": [_method(row) for row in rows]}
    least = [min(LONGEST_WORD, _widest(name, " ".join(cells).split())) for name, cells in names.items()]
    numbers = _numbers(study, rows)
    left_out = _fit(numbers, width - BETWEEN - sum(least), main=first.main)
    if _taken(numbers) > width - BETWEEN - 2 * SHORTEST:
        numbers[first.main] = [format_score(row.values[first.main].value) for row in rows]
        left_out.insert(0, "intervals")
    wanted = [_widest(name, cells) for name, cells in names.items()]
    widths = _fit_columns(wanted, least, room=width - BETWEEN - _taken(numbers))
    examples = f"{first.count:,} {first.split} examples of {study.scored or study.data}"
    table = Table(
        title=f"{study.task}: {examples}", title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    table.caption = _caption(study, rows, numbers, left_out)
    table.caption_justify = "left"
    for name, letters in zip(names, widths, strict=True):
        table.add_column(name, overflow="fold", width=letters)
    for name, cells in numbers.items():
        table.add_column(
            name,
            justify="right",
            no_wrap=True,
            width=_widest(name, cells),
            style="bold" if name == first.main else "",
        )
    for line in zip(*names.values(), *numbers.values(), strict=True):
        table.add_row(*line)
    return table


def format_mixes(study: Study) -> list[str]:
    """The learnt weight of each layer, the embeddings first, and γ; the first seed of each."""
    found: dict[tuple[str, int], str] = {}
    for result in study.results:
        if result.mix is not None and (result.name, result.examples) not in found:
            fractions = ", ".join(f"layer {layer}: {fraction:.3f}" for layer, fraction in enumerate(result.mix))
            gamma = "" if result.gamma is None else f"; γ = {result.gamma:.3f}"
            of = f", {result.examples:,} examples" if study.kind == "curve" else ""
            found[result.name, result.examples] = f"Learnt mix of {result.name}{of}: {fractions}{gamma}"
    return list(found.values())


def _numbers(study: Study, rows: Sequence[Row]) -> dict[str, list[str]]:
    """The cells of each column of numbers."""
    main, *others = study.results[0].values
    found = {"examples": [f"{row.examples:,}" for row in rows]} if study.kind == "curve" else {}
    found[main] = [format_with_interval(row.values[main], name=main) for row in rows]
    if study.differences:
        found |= _differences(study, rows)
    if any(len(row.seeds) > 1 for row in rows):
        found["each seed"] = [_seeds(row) for row in rows]
    for name in others:
        found[name] = [format_score(row.values[name].value) for row in rows]
    if any(row.rate is not None for row in rows):
        found["steps"] = [f"{row.steps:,}" if row.steps else "" for row in rows]
        found["rate"] = ["" if row.rate is None else f"{row.rate:.2g}" for row in rows]
    found["seconds"] = [f"{row.seconds:,.1f}" for row in rows]
    return found


def _differences(study: Study, rows: Sequence[Row]) -> dict[str, list[str]]:
    """How far the row that the study is about is ahead of each of the others, and the p-value."""
    from lmlab.transfer.differences import ahead_of, find_reference
    from lmlab.transfer.report import find_shown
    from lmlab.transfer.results import label_of

    label = label_of(rows, find_shown(study))
    cells: dict[str, list[str]] = {"difference": [], "p": []}
    for row in rows:
        found = ahead_of(study.differences, find_reference(study.kind, rows, row, default=label), row.label)
        value = "" if found is None else format_difference(found.value)
        if found is not None and found.low is not None:
            value += f" [{format_difference(found.low)}, {format_difference(found.high)}]"
        cells["difference"].append(value)
        cells["p"].append("" if found is None else format_p(found.p).removeprefix("p = ").removeprefix("p "))
    return cells


def _caption(study: Study, rows: Sequence[Row], numbers: dict[str, list[str]], left_out: list[str]) -> str:
    """What the columns are; and steps and learning rates, where there is no room for columns of them."""
    notes = ["scores times 100" + ", 95% intervals" * ("intervals" not in left_out)]
    if "difference" in numbers:
        notes.append(f"difference: how far {AHEAD[study.kind]} is ahead")
    if "rate" in left_out:
        trained = [f"{row.label} {row.steps:,} at {row.rate:.2g}" for row in rows if row.rate is not None]
        notes.append(f"steps and learning rate: {', '.join(trained)}")
        left_out = [name for name in left_out if name not in ("steps", "rate")]
    if left_out:
        notes.append(f"also in scores.json: {', '.join(left_out)}")
    return "; ".join(notes)


def _fit(numbers: dict[str, list[str]], width: int, *, main: str) -> list[str]:
    """Leave out columns until the others fit: the metrics after the main one from the last, then the rest."""
    kept = (main, "examples", "difference", "p", "each seed", "steps", "rate", "seconds")
    metrics = [name for name in numbers if name not in kept]
    left_out: list[str] = []
    for name in (*reversed(metrics), "seconds", "each seed", "rate", "steps", "p", "difference"):
        if _taken(numbers) <= width:
            break
        if numbers.pop(name, None) is not None:
            left_out.insert(0, name)
    return left_out


def _fit_columns(wanted: Sequence[int], least: Sequence[int], *, room: int) -> list[int]:
    """How wide each of the names is, the first of them as it wants to be if there is room."""
    if sum(least) > room:
        return [max(1, room // len(least))] * len(least)
    widths, spare = list(least), room - sum(least)
    for number, letters in enumerate(wanted):
        more = min(spare, letters - widths[number])
        widths[number] += more
        spare -= more
    return widths


def _taken(numbers: dict[str, list[str]]) -> int:
    """The columns of the terminal that columns of numbers take, with what is before each."""
    return sum(_widest(name, cells) + BETWEEN for name, cells in numbers.items())


def _widest(name: str, cells: Sequence[str]) -> int:
    return max(len(line) for cell in (name, *cells) for line in cell.split("\n"))


def _seeds(row: Row) -> str:
    """The scores of several seeds, a few in each line."""
    if len(row.seeds) < 2:
        return ""
    scores = [format_score(value) for value in row.seeds]
    return "\n".join(" ".join(scores[i : i + SEEDS_IN_LINE]) for i in range(0, len(scores), SEEDS_IN_LINE))


def _method(row: Row) -> str:
    method = row.method if row.layers == "last" or row.method != "frozen" else f"{row.method}, {row.layers}"
    return f"{method} ({row.note})" if row.note else method


def format_with_interval(found: Interval, *, name: str = "accuracy") -> str:
    """A score with its interval."""
    score = clamp(ShownScore(found.value, found.low, found.high), name)
    if score.low is None or score.high is None:
        return format_score(found.value)
    return f"{format_score(found.value)} [{format_score(score.low)}, {format_score(score.high)}]"
