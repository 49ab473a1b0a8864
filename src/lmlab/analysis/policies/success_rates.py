"""How often a policy succeeds in the missions of the built-in world, with its command and without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lmlab.analysis.view import Viewed
from lmlab.data.readers.pictures.scenes import Part
from lmlab.data.readers.robot_world import MISSIONS, make_mission
from lmlab.decoding.command_follower import Attempt, CommandFollower
from lmlab.metrics.statistics import wilson
from lmlab.pages.views import Table

TESTED: tuple[Part, ...] = ("test", "unseen")
MISSIONS_OF = {"test": "missions of new scenes", "unseen": "goals of unseen colour and shape"}


class Rate(NamedTuple):
    """The fraction of missions that were a success, with its 95% interval."""

    missions: str
    command: bool  # whether the policy was given the command
    success: float
    low: float | None
    high: float | None
    number: int
    steps: float  # on average


@dataclass(frozen=True)
class SuccessRates(Viewed):
    """The success rates of a run."""

    run: str
    rows: list[Rate]

    @property
    def title(self) -> str:  # type: ignore[override]
        return "Success rates in the built-in world"

    def lead(self) -> str:
        first = self.rows[0]
        return f"{self.run} succeeds in {first.success:.1%} of {first.number} {first.missions}."

    def table(self) -> Table:
        rows = [
            (row.missions, "given" if row.command else "hidden", row.success, row.low, row.high, row.number, row.steps)
            for row in self.rows
        ]
        columns = ("missions", "command", "success", "from (95%)", "to", "number", "steps")
        return Table(columns, rows, formats=("", "", ".1%", ".1%", ".1%", "d", ".1f"))

    def notes(self) -> Sequence[str]:
        return [
            "A mission is a success if the hand is on its goal when the policy stays, or after 16 steps. Where the "
            "command is hidden, the policy can only guess which of the shapes is the goal."
        ]


class Tried(NamedTuple):
    """Success rates, and the first mission as a film."""

    rates: SuccessRates
    first: Attempt


def measure_success(
    follower: CommandFollower,
    *,
    run: str,
    missions: int,
    progress: Callable[[int, int], None] | None = None,
) -> Tried:
    """Return the success rates of held-out missions and of unseen combinations, with the command and without."""
    rows, first = [], None
    for part in TESTED:
        chosen = [make_mission(part, index) for index in range(min(missions, MISSIONS[part]))]
        for hidden in (False, True):
            tried = follower.try_missions(chosen, hide_command=hidden, progress=progress)
            first = first or tried[0]
            found = wilson(sum(each.success for each in tried), len(tried))
            steps = sum(each.steps for each in tried) / len(tried)
            rows.append(Rate(MISSIONS_OF[part], not hidden, *found[:3], len(tried), steps))
    assert first is not None, "there are missions"
    return Tried(SuccessRates(run, rows), first)
