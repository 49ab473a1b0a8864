"""What is known of each finished run: its score, what it cost and how it came there; kept in `scores/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmlab.checkpoint import digest, read_json, write_json
from lmlab.compare.curves import read_validations
from lmlab.costs.countries import find_grid
from lmlab.recipe import Recipe
from lmlab.training.costs import Cost
from lmlab.training.progress import Progress

Record = dict[str, Any]
"""Of one run; see `evaluate` and `spent`."""
MEASURES = ("pair_accuracy", "detection_accuracy", "original_share")
"""What an objective may measure besides, on validation text; the last is what a detector gets that never suspects."""


def read_record(folder: Path, name: str) -> Record | None:
    """The record of a run that is finished, if its weights are still those that were scored."""
    path, weights = folder / "scores" / f"{name}.json", folder / name / "model.safetensors"
    if not path.is_file() or not weights.is_file():
        return None
    record: Record = read_json(path)
    return record if record["weights_sha256"] == digest(weights) else None


def write_record(folder: Path, name: str, record: Record) -> None:
    """Keep what is known of a run."""
    (folder / "scores").mkdir(exist_ok=True)
    write_json(folder / "scores" / f"{name}.json", record)


def spent(progress: Progress, recipe: Recipe) -> dict[str, float]:
    """What training took: `seconds` is what a budget in time counts; the rest includes validation and checkpoints."""
    cost = Cost(*progress.cost)
    return {
        "tokens": progress.tokens,
        "steps": progress.step,
        "flops": progress.flops,
        "seconds": progress.seconds,
        "wall_seconds": cost.seconds,
        "cpu_seconds": cost.cpu_seconds,
        "gpu_seconds": cost.gpu_seconds,
        "joules": cost.joules,
        "grams": find_grid(recipe.train.country).grams(cost.joules),
    }


def add_costs(costs: list[dict[str, float]]) -> dict[str, float]:
    """The sum of what several runs took."""
    return {name: sum(cost[name] for cost in costs) for name in costs[0]}


def read_measures(path: Path) -> dict[str, float]:
    """What else was measured of the best weights on validation text: of sentence pairs, of replaced tokens."""
    best: dict[str, Any] = next((line for line in reversed(list(read_validations(path))) if line.get("best")), {})
    return {name: best[f"valid_{name}"] for name in MEASURES if best.get(f"valid_{name}") is not None}
