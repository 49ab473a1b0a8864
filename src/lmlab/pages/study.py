"""The page of a study: scores and baselines, mistakes, calibration and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from lmlab.pages.evidence import describe_calibration
from lmlab.pages.figures import PALETTE, Chart, Point, Series
from lmlab.pages.headline import StudyFacts, format_headline, format_lead, key_numbers
from lmlab.pages.page import Cell, render
from lmlab.pages.scores import (
    COLOURS,
    METHODS,
    Axis,
    PairedDifference,
    ScoreRow,
    choose_axis,
    format_difference,
    format_interval,
    format_layers,
    format_learner,
    format_metric,
    format_p,
    format_score,
    format_training,
)

KINDS = {
    "run": "lmlab · fine-tuning",
    "curve": "lmlab · learning curve",
    "layers": "lmlab · layers compared",
    "comparison": "lmlab · models compared on a task",
}
TEST_INTERVAL = "Whiskers are 95% intervals for other test {units}, not for other seeds."
SEED_INTERVAL = (
    "Of several seeds the bar is the mean, the whisker a 95% interval for other seeds and other test {units}, and each "
    "ring one seed; the worst is red. The whisker of a single seed is for other test {units} only."
)
OTHER_COLOUR = "#6b7a8f"
GREYS = ("#8a929e", "#b08d57", "#6b7a8f", "#a3768c")
"""The colours of baselines in a learning curve."""


class ScoreLine(NamedTuple):
    """A line of a table of scores: its row, with names and numbers as they are shown."""

    row: ScoreRow
    name: str
    subtitle: str
    colour: str
    value: float | None
    low: float | None
    high: float | None
    title: str
    difference: Cell
    others: list[str]


class ScoreTable(NamedTuple):
    """Rows with bars on one axis, scores, intervals and all metrics."""

    title: str
    subtitle: str
    lines: list[ScoreLine]
    axis: Axis
    columns: list[str]
    lead: ScoreRow | None
    several: bool
    tested: bool


class CurveRow(NamedTuple):
    """A row of a learning curve: its cells, and how far it is ahead of each baseline."""

    cells: list[str]
    differences: list[Cell]


class LearningCurve(NamedTuple):
    """Scores by the number of training examples."""

    subtitle: str
    chart: Chart
    columns: list[str]
    rows: list[CurveRow]


class ScoreGrid(NamedTuple):
    """Scores of models (rows) and methods (columns)."""

    methods: list[str]
    rows: dict[str, list[ScoreRow | None]]
    best: ScoreRow | None


def make_page(facts: StudyFacts) -> Markup:
    """The whole page; empty sections are left out."""
    return render(
        "study.html",
        facts=facts,
        kind=KINDS[facts.kind],
        headline=format_headline(facts),
        lead=format_lead(facts),
        tiles=key_numbers(facts),
        grid=_grid(facts) if facts.kind == "comparison" else None,
        curve=_curve(facts) if facts.kind == "curve" else None,
        tables=[table for table in (_layers(facts), _scores(facts)) if table is not None],
        evidence=facts.evidence,
        baseline_seconds=sum(row.seconds * len(row.seeds) for row in facts.rows if row.is_baseline),
        mix_colour=COLOURS["mix"],
        format_score=format_score,
        format_interval=format_interval,
        format_metric=format_metric,
        format_learner=format_learner,
        describe_calibration=describe_calibration,
    )


def _intervals(facts: StudyFacts, rows: Sequence[ScoreRow]) -> str:
    """What the intervals in the chart cover."""
    text = SEED_INTERVAL if any(len(row.seeds) > 1 for row in rows) else TEST_INTERVAL
    old = " Predictions are missing, so those of several seeds are put together from the intervals of each."
    missing = any(row.label in facts.untested and len(row.seeds) > 1 for row in rows)
    return text.format(units=facts.resampled) + old * missing


def _scores(facts: StudyFacts) -> ScoreTable | None:
    """All rows; of a curve those with most examples, of layers the baselines alone."""
    rows, metric = list(facts.rows), facts.metric
    title = "Scores and baselines"
    if facts.kind == "layers":
        rows = [row for row in rows if row.is_baseline]
        title = "Baselines"
    if facts.kind == "curve":
        most = max((row.examples for row in rows), default=0)
        rows = [row for row in rows if row.examples == most]
        title = f"Scores with {most:,} examples"
    if not rows:
        return None
    if facts.kind == "comparison":
        rows.sort(key=lambda row: -row.rank(metric))
    rows.sort(key=lambda row: row.is_baseline)
    if len(rows) == 1:
        title = "Score"
    apart = facts.split == "test" or "selection" in facts.counts
    chosen = (
        "No model learnt from them, and no checkpoint was chosen on them."
        if apart
        else "No model learnt from them, but its best checkpoint was chosen on them, so the scores are too optimistic: "
        "lmlab before 0.6.0 did so."
    )
    subtitle = f"On {facts.count:,} {facts.split} examples. {chosen} {_intervals(facts, rows)}"
    lead = facts.lead if len(rows) > 1 and any(row is facts.lead for row in rows) else None
    return _tabulate(facts, rows, title=title, subtitle=subtitle, lead=lead)


def _layers(facts: StudyFacts) -> ScoreTable | None:
    """Choices of layers, by their names."""
    if facts.kind != "layers":
        return None
    rows = [row for row in facts.rows if not row.is_baseline]
    subtitle = (
        "The model stays as it is, and a new head reads the layers named: the table of Devlin et al. 2019. Where the "
        f"axis does not begin at zero, there are points instead of bars. {_intervals(facts, rows)}"
    )
    best = max(rows, key=lambda row: row.rank(facts.metric), default=None)
    names = [format_layers(row.layers) for row in rows]
    return _tabulate(facts, rows, title="Which layers to read", subtitle=subtitle, lead=best, names=names, near=True)


def _tabulate(
    facts: StudyFacts,
    rows: Sequence[ScoreRow],
    *,
    title: str,
    subtitle: str,
    lead: ScoreRow | None,
    names: Sequence[str] = (),
    near: bool = False,
) -> ScoreTable:
    """A table of rows; `names` replace their default names."""
    metric = facts.metric
    others = [name for name in rows[0].values if name != metric] if rows else []
    lines = [
        ScoreLine(
            row=row,
            name=names[number] if names else row.name,
            subtitle="" if names else _subtitle(row),
            colour=COLOURS.get(row.method, OTHER_COLOUR),
            value=row.values[metric].value,
            low=row.values[metric].low,
            high=row.values[metric].high,
            title=_describe(row, metric),
            difference=_difference(row.difference),
            others=[format_score(row.values[name].value if name in row.values else None) for name in others],
        )
        for number, row in enumerate(rows)
    ]
    return ScoreTable(
        title=title,
        subtitle=subtitle,
        lines=lines,
        axis=choose_axis(rows, metric, near=near),
        columns=[format_metric(name) for name in others],
        lead=lead,
        several=any(len(row.seeds) > 1 for row in rows),
        tested=any(row.difference for row in rows),
    )


def _subtitle(row: ScoreRow) -> str:
    """Method, layers and training of a row, and a note."""
    layers = format_layers(row.layers) if row.method == "frozen" and row.layers != "last" else ""
    details = "; ".join(filter(None, (METHODS.get(row.method, ""), layers, format_training(row), row.note)))
    return ": ".join(filter(None, ("" if row.is_baseline else row.method, details)))


def _describe(row: ScoreRow, metric: str) -> str:
    """What the pointer over the bar of a row shows."""
    text = f"{format_learner(row)}: {format_metric(metric)} {format_score(row.values[metric].value)}"
    if interval := format_interval(row.values[metric]):
        text += f", 95% interval {interval}"
    if len(row.seeds) > 1:
        text += f"; each seed: {', '.join(map(format_score, row.seeds))}"
    return text


def _difference(found: PairedDifference | None) -> Cell:
    """A difference with its interval and its p-value; in bold where it is significant."""
    if found is None:
        return Cell("–")
    interval = f"{format_difference(found.low)} to {format_difference(found.high)}, " if found.low is not None else ""
    value = format_difference(found.value)
    return Cell(Markup("<b>{}</b>").format(value) if found.significant else value, f"{interval}{format_p(found.p)}")


def _curve(facts: StudyFacts) -> LearningCurve | None:
    """A line for each model and method, by the number of examples, and the same as a table."""
    metric = facts.metric
    groups: dict[tuple[str, str, str], list[ScoreRow]] = {}
    for row in facts.rows:
        groups.setdefault((row.name, row.method, row.layers), []).append(row)
    colours = _choose_colours(list(groups))
    series = [
        Series(format_learner(rows[0]), colours[key], points, dashed=key[1] == "baseline")
        for key, rows in groups.items()
        if (points := [point for row in sorted(rows, key=lambda row: row.examples) for point in _points(row, metric)])
    ]
    if not series:
        return None
    chart = Chart(
        "learning-curve",
        f"{format_metric(metric)} by the number of training examples",
        "training examples",
        f"{format_metric(metric)} (times 100)",
        series,
        x_ticks=sorted({point.x for each in series for point in each.points}),
        unit=".1f",
    )
    subtitle = (
        "Score by the number of training examples; the examples of a smaller number are among those of a larger one. "
        "Dashed: no language model. Whiskers are 95% intervals"
    )
    subtitle += (
        " for other seeds, which sample other training examples, and other test examples; rings are single seeds."
        if any(len(row.seeds) > 1 for row in facts.rows)
        else " for other test examples, not for other seeds."
    )
    baselines = list(dict.fromkeys(row.name for row in facts.rows if row.difference))
    tested = {(row.name, row.examples): row.difference for row in facts.rows}
    rows = [
        CurveRow(_curve_cells(row, metric), [_difference(tested.get((name, row.examples))) for name in baselines])
        for row in facts.rows
        if not row.is_baseline
    ]
    columns = ["model", "examples", format_metric(metric), "95% interval", "each seed"]
    return LearningCurve(subtitle, chart, columns + [f"ahead of {name}" for name in baselines], rows)


def _choose_colours(learners: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Greys for baselines; the colour of the method where each has its own, else one of the palette."""
    models = [key for key in learners if key[1] != "baseline"]
    own = len({method for _, method, _ in models}) == len(models)
    greys = iter(GREYS)
    return {
        key: next(greys, GREYS[0])
        if key[1] == "baseline"
        else COLOURS.get(key[1], PALETTE[0])
        if own
        else PALETTE[models.index(key) % len(PALETTE)]
        for key in learners
    }


def _points(row: ScoreRow, metric: str) -> list[Point]:
    """The point of a row; none where it has no score."""
    value, low, high = (None if each is None else 100 * each for each in row.values[metric])
    if value is None:
        return []
    return [Point(row.examples, value, low, high, [100 * seed for seed in row.seeds if seed is not None])]


def _curve_cells(row: ScoreRow, metric: str) -> list[str]:
    score = row.values[metric]
    seeds = " · ".join(map(format_score, row.seeds)) if len(row.seeds) > 1 else "–"
    bold = Markup("<b>{}</b>").format(format_score(score.value))
    return [format_learner(row), f"{row.examples:,}", bold, format_interval(score) or "–", seeds]


def _grid(facts: StudyFacts) -> ScoreGrid:
    rows = [row for row in facts.rows if not row.is_baseline]
    found = {(row.name, row.method): row for row in rows}
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = {row.name: [found.get((row.name, method)) for method in methods] for row in rows}
    return ScoreGrid(methods, lines, max(rows, key=lambda row: row.rank(facts.metric), default=None))
