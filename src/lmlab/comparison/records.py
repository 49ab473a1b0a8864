"""What is known of each finished run: its score, what it cost and its learning curve; kept in `scores/`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lmlab.costs.countries import find_grid
from lmlab.files import digest_file
from lmlab.metrics.metric import Direction
from lmlab.runs.recipe import Recipe
from lmlab.runs.storage import read_json, write_json
from lmlab.training.energy_meter import Cost
from lmlab.training.progress import TrainingProgress
from lmlab.units import main_unit, read_speed, training_seconds

Curve = list[dict[str, float]]
"""Points with `tokens`, `seconds`, `flops`, `joules`, and the metric; `seconds` are of training alone."""
COSTS = ("tokens", "steps", "flops", "seconds", "wall_seconds", "cpu_seconds", "gpu_seconds", "joules", "grams")
"""What every finished run has. `tokens` are examples where no tokens are counted; `seconds` are of training alone, what
follows them includes validation."""
TRAINING_JOULES = "training_joules"
"""Joules of training alone, where they were metered apart."""
NOTABLE_VALIDATION = 0.05
EXTRAPOLATED = 4


@dataclass(frozen=True, kw_only=True)
class TrackScores:
    """What was measured of a run in one track."""

    measured: Mapping[str, Any]
    """What the track ranks by and what only it measures, by name: `bits` of each unit of the test text, `nats` …"""
    lossy: bool
    """Whether the tokenizer loses part of the test text."""
    unknown: int = 0
    """Unknown tokens of the test text."""
    passage: Sequence[tuple[str, float]] = ()
    """A passage of the test text in pieces, with the bits of each."""
    sample: str = ""
    """What the run writes: a continuation, or a sentence with its masks filled."""
    curve: Curve = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The scores as in a file: what is measured is beside the rest."""
        shared = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "measured"}
        return {**shared, **self.measured}


class RunScores(NamedTuple):
    """What was measured of a run in all of its tracks."""

    own: TrackScores  # in the track that its system is known for
    also: Mapping[str, TrackScores] = {}  # in others, by their names
    data: str = ""  # the kind of the tokenizer, for data that are not text

    def in_track(self, name: str) -> TrackScores:
        """The scores in one track."""
        return self.also.get(name, self.own)


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run of a comparison: the content of `scores/RUN.json`."""

    name: str
    system: str
    seed: int | None
    weights_sha256: str
    parameters: int
    embedding_parameters: int
    rate: float | None
    sweep: Sequence[Mapping[str, Any]]
    training: Mapping[str, float]
    """What training took (`spent`)."""
    energy_method: str | None
    scores: RunScores
    run: str | None = None
    """Of a run that was added: its directory."""
    tokenizer: str | None = None
    """Of a run that was added: the fingerprint of its tokenizer."""
    added: str | None = None
    """Of a run that was added: what is known of its training text."""

    def as_json(self) -> dict[str, Any]:
        """The content of a file; the scores in the own track are beside the rest."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "scores"}
        own, also, data = self.scores
        found = {name: value for name, value in values.items() if name not in ADDED or value is not None}
        found |= {"data": data} if data else {}
        found |= own.as_json()
        return found | ({"also": {name: each.as_json() for name, each in also.items()}} if also else {})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ComparedRun:
        """The record that a file of any version has."""
        values = upgrade_record(values)
        names = {each.name for each in fields(cls)} - {"scores"}
        also, data = values.get("also", {}), values.get("data", "")
        rest = {name: value for name, value in values.items() if name not in {*names, "also", "data"}}
        own = _read_scores(rest, {})
        scores = RunScores(own, {name: _read_scores(each, rest) for name, each in also.items()}, data)
        return cls(**{name: values[name] for name in names if name in values}, scores=scores)


ADDED = ("run", "tokenizer", "added")
"""Fields that only runs have that were added."""


def _read_scores(values: Mapping[str, Any], own: Mapping[str, Any]) -> TrackScores:
    """The scores in a track; fields that these values lack are those of the own track."""
    shared = {each.name for each in fields(TrackScores)} - {"measured"}
    known = {name: {**own, **values}[name] for name in shared if name in values or name in own}
    return TrackScores(measured={name: value for name, value in values.items() if name not in shared}, **known)


def read_record(folder: Path, name: str) -> ComparedRun | None:
    """The record of a run that is finished, if its weights are still those that were scored."""
    path, weights = folder / "scores" / f"{name}.json", folder / name / "model.safetensors"
    if not path.is_file() or not weights.is_file():
        return None
    record = ComparedRun.from_json(read_json(path))
    return record if record.weights_sha256 == digest_file(weights) else None


def upgrade_record(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file with the present names; until version 0.6 masked tokens were called blanks."""
    tracks = values.get("also", {}).items()
    also = {"masks" if track == "blanks" else track: upgrade_record(own) for track, own in tracks}
    renamed = {"masked_tokens" if name == "blanks" else name: value for name, value in values.items()}
    return {**renamed, "also": also} if also else renamed


def write_record(folder: Path, record: ComparedRun) -> None:
    """Write the record of a run."""
    (folder / "scores").mkdir(exist_ok=True)
    write_json(folder / "scores" / f"{record.name}.json", record.as_json())


def spent(progress: TrainingProgress, recipe: Recipe) -> dict[str, float]:
    """What training took, by the names in `COSTS`; joules of training alone besides, where the run metered them."""
    cost = Cost(*progress.cost)
    alone = Cost(*progress.training_cost)
    whole = alone.seconds > 0 and math.isclose(alone.seconds, progress.seconds, rel_tol=0.01)  # from the first step on
    return {
        "tokens": progress.units.get(main_unit(progress.units), 0),
        "steps": progress.step,
        "flops": progress.flops,
        "seconds": progress.seconds,
        "wall_seconds": cost.seconds,
        "cpu_seconds": cost.cpu_seconds,
        "gpu_seconds": cost.gpu_seconds,
        "joules": cost.joules,
        "grams": find_grid(recipe.train.country).grams(cost.joules),
        **({TRAINING_JOULES: alone.joules} if whole else {}),
    }


def add_costs(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sum of what several runs took, of what is known of all."""
    return {name: sum(cost[name] for cost in costs) for name in costs[0] if all(name in cost for cost in costs)}


def mean_costs(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of what several runs took, of what is known of all."""
    return {
        name: mean([cost[name] for cost in costs])
        for name in (*COSTS, TRAINING_JOULES)
        if all(name in cost for cost in costs)
    }


class Basis(NamedTuple):
    """What the seconds and joules of a table include: training alone, or the whole run."""

    alone: bool
    seconds: str  # names of costs
    joules: str


def choose_basis(costs: Iterable[Mapping[str, float]]) -> Basis:
    """Training alone where it was metered apart in every run, else everything."""
    alone = all(TRAINING_JOULES in cost for cost in costs if cost)
    return Basis(True, "seconds", TRAINING_JOULES) if alone else Basis(False, "wall_seconds", "joules")


def validation_seconds(cost: Mapping[str, float]) -> float:
    """What validation and checkpoints took besides training; 0 where that is not worth a word."""
    more = cost.get("wall_seconds", 0.0) - cost.get("seconds", 0.0)
    return more if more > NOTABLE_VALIDATION * cost.get("seconds", 0.0) else 0.0


def read_curve(path: Path, *, metric: str) -> Curve:
    """The validations of a run: what was spent until then, and how well it did."""
    curve: Curve = []
    for line in read_validations(path):
        if line.get(metric) is None:
            continue
        curve.append(
            {
                "tokens": line["tokens"] if "tokens" in line else line[(read_speed(line) or ("step",))[0]],
                "seconds": training_seconds(line),
                "flops": line.get("flops", 0.0),
                "joules": line["cost"]["joules"],
                metric: line[metric],
            }
        )
    return curve


def read_validations(path: Path) -> Iterator[dict[str, Any]]:
    """The validation lines of the metrics; none if there is no such file."""
    if not (path / "metrics.jsonl").is_file():
        return
    for text in (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line.get("valid_loss") is not None:
            yield line


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds, point by point; the first where their points do not correspond."""
    if len({len(curve) for curve in curves}) > 1 or not curves[0]:
        return curves[0]
    return [{key: mean([point[key] for point in points]) for key in points[0]} for points in zip(*curves, strict=True)]


def mean(values: Sequence[float]) -> float:
    """The mean; of equal values exactly that value, so that whole numbers stay whole."""
    return values[0] if len(set(values)) == 1 else float(np.mean(values))


def last_doubling(curve: Sequence[dict[str, float]], *, metric: str, better: Direction = "lower") -> float | None:
    """Improvement of the metric over the second half of the training; None if the curve is too short."""
    if len(curve) < 3:
        return None
    tokens = np.log([point["tokens"] for point in curve])
    values = [point[metric] for point in curve]
    half = tokens[-1] - math.log(2)
    if half < tokens[0]:
        return None
    gain = float(np.interp(half, tokens, values) - values[-1])
    return gain if better == "lower" else -gain


def extrapolate(
    curve: Sequence[dict[str, float]],
    axis: str,
    *,
    metric: str,
    better: Direction = "lower",
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[float, float] | None:
    """The end of a curve at `EXTRAPOLATED` times the cost, if each doubling gains as much as the last two did."""
    if len(curve) < 3 or curve[-1][axis] <= 0 or curve[0][axis] <= 0:
        return None
    spent = np.log2([point[axis] for point in curve])
    values = [point[metric] for point in curve]
    earlier = max(spent[0], spent[-1] - 2)
    change = (values[-1] - float(np.interp(earlier, spent, values))) / (spent[-1] - earlier)
    change = min(0.0, change) if better == "lower" else max(0.0, change)
    end = min(bounds[1], max(bounds[0], values[-1] + change * math.log2(EXTRAPOLATED)))
    return curve[-1][axis] * EXTRAPOLATED, end
