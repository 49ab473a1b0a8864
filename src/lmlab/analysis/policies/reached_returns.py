"""The returns that a policy reaches, against those that it is asked for (Chen et al. 2021, figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lmlab.analysis.view import Viewed
from lmlab.decoding.actor import Played
from lmlab.metrics.episode_return import EpisodeReturn
from lmlab.metrics.statistics import estimate
from lmlab.pages.figures import PALETTE, Chart, Figure, Point, Series
from lmlab.pages.views import Table
from lmlab.tokenizers.processors.episode_scaling import EpisodeProcessor


class Reached(NamedTuple):
    """The mean return of the episodes for one return that was asked for, with its 95% interval."""

    asked: float
    reached: float
    low: float | None
    high: float | None
    returns: list[float]  # of each episode


@dataclass(frozen=True)
class ReachedReturns(Viewed):
    """The returns that a run reached in an environment."""

    run: str
    environment: str
    rows: list[Reached]
    best_of_data: float
    mean_of_data: float

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"Returns in {self.environment}"

    def lead(self) -> str:
        best = max(self.rows, key=lambda row: row.reached)
        return f"{self.run} reaches {best.reached:.4g} where {best.asked:g} is asked for."

    def table(self) -> Table:
        rows = [(row.asked, row.reached, row.low, row.high, len(row.returns)) for row in self.rows]
        columns = ("asked return", "reached return", "from (95%)", "to", "episodes")
        return Table(columns, rows, formats=("g", ".1f", ".1f", ".1f", "d"))

    def figures(self) -> Sequence[Figure]:
        if len(self.rows) < 2:
            return []
        rows = sorted(self.rows)
        lines = {
            "reached": [Point(row.asked, row.reached, row.low, row.high) for row in rows],
            "asked": [Point(row.asked, row.asked) for row in rows],
            "best of the data": [Point(row.asked, self.best_of_data) for row in rows],
        }
        series = [
            Series(name, colour, points, dashed=name != "reached")
            for (name, points), colour in zip(lines.items(), PALETTE, strict=False)
        ]
        title = "The return that is reached against the return that is asked for"
        return [Chart("returns", title, "asked return", "reached return", series, logarithmic=False, unit=".0f")]

    def notes(self) -> Sequence[str]:
        return [
            f"Training episodes: best return {self.best_of_data:.4g}, mean {self.mean_of_data:.4g}. "
            "Intervals are over episodes of this run; another run may differ more."
        ]


def summarise(played: dict[float, list[Played]], scales: EpisodeProcessor, *, run: str, env: str) -> ReachedReturns:
    """Return the mean return of the episodes for each return that was asked for."""
    rows = []
    for asked, own in played.items():
        rewards = [each.rewards for each in own]
        value, low, high = estimate(EpisodeReturn(), rewards, list(range(len(rewards))))[:3]
        rows.append(Reached(asked, value, low, high, [sum(each) for each in rewards]))
    return ReachedReturns(run, env, rows, scales.best, scales.mean)
