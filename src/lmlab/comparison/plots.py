"""What a ranking looks like in charts: learning curves, and quality against cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lmlab.comparison.entries import Entry
from lmlab.comparison.ranking import Ranking
from lmlab.comparison.records import choose_basis, extrapolate
from lmlab.models import lineage_number
from lmlab.pages.figures import PALETTE, Chart, Point, Series, number_colours, pareto_front

AXES = {
    "tokens": "tokens read in training",
    "seconds": "seconds of training",
    "flops": "training FLOPs",
    "joules": "joules, validation included",
}


def choose_colours(ranking: Ranking) -> dict[str, str]:
    """One colour for each entry: the one of its place in the lineage if no other entry has it, as in the studio."""
    wanted = {entry.name: lineage_number(entry.kind or entry.name) for entry in ranking.ranked}
    order = sorted(wanted, key=lambda name: (wanted[name], name))
    return {name: PALETTE[number] for name, number in number_colours({name: wanted[name] for name in order}).items()}


def curve_charts(ranking: Ranking, colours: Mapping[str, str]) -> list[Chart]:
    """Learning curves against each thing that is spent."""
    metric, shown = ranking.track.curve, f"{ranking.track.curve.label} (validation)"
    charts = []
    for axis, label in {**AXES, "tokens": f"{ranking.track.read_unit} read in training"}.items():
        series = [
            Series(
                entry.name,
                colours[entry.name],
                [Point(point[axis], point[metric.field]) for point in entry.curve],
                level=len(entry.curve) == 1 or not all(point[axis] > 0 for point in entry.curve),
                extrapolation=extrapolate(
                    entry.curve, axis, metric=metric.field, better=metric.better, bounds=metric.bounds
                ),
            )
            for entry in ranking.ranked
            if entry.curve
        ]
        if any(not each.level for each in series):
            title = f"Learning curves against {label}"
            charts.append(Chart(_name(ranking, f"curve-{axis}"), title, label, shown, series))
    return charts


def cost_charts(ranking: Ranking, colours: Mapping[str, str]) -> list[Chart]:
    """Quality against cost, with the Pareto front: no system is better in both."""
    score = ranking.track.score
    basis = choose_basis(entry.training for entry in ranking.ranked)
    axes: dict[str, tuple[str, Callable[[Entry], float]]] = {
        "joules": ("joules of training" + ", validation included" * (not basis.alone), _spent(basis.joules)),
        "seconds": ("seconds of training", _spent("seconds")),
        "flops": ("training FLOPs", _spent("flops")),
        "tokens": (f"{ranking.track.read_unit} read in training", _spent("tokens")),
        "parameters": ("parameters", lambda entry: float(entry.parameters)),
    }
    charts = []
    for axis, (label, price) in axes.items():
        points = {entry.name: (price(entry), ranking.score(entry)) for entry in ranking.ranked}
        series = [
            Series(name, colours[name], [Point(*point)], level=point[0] <= 0)
            for name, point in points.items()
            if point[0] > 0 or axis == "flops"
        ]
        front = pareto_front(
            [point for point in points.values() if point[0] > 0], better=ranking.track.score.metric.better
        )
        if any(not each.level for each in series):
            name, shown = _name(ranking, f"cost-{axis}"), f"{score.label} (test)"
            charts.append(Chart(name, f"Quality against {label}", label, shown, series, front))
    return charts


def _name(ranking: Ranking, chart: str) -> str:
    return f"{ranking.track.key}-{chart}" if ranking.track.key else chart


def _spent(name: str) -> Callable[[Entry], float]:
    return lambda entry: float(entry.training.get(name) or 0.0)


def all_charts(rankings: Sequence[Ranking]) -> list[Chart]:
    """Every chart of a comparison."""
    return [
        chart
        for ranking in rankings
        for make in (curve_charts, cost_charts)
        for chart in make(ranking, choose_colours(ranking))
    ]
