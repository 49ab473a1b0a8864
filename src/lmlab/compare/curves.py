"""Learning curves: how well a run did on validation text, against what it had spent until then."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Curve = list[dict[str, float]]
"""Points with `tokens`, `seconds`, `flops`, `joules`, and the measure."""
CURVE = {"next token": "valid_bits_per_byte", "blanks": "valid_loss"}
"""What a learning curve shows, by what a system predicts; the loss of masked systems is in nats per blank."""
AHEAD = 4


def read_curve(path: Path, *, predicts: str) -> Curve:
    """The validations of a run: what was spent until then, and how well it did."""
    measure = CURVE[predicts]
    curve: Curve = []
    for line in read_validations(path):
        if line.get(measure) is None:
            continue
        cost = line["cost"]
        rate = cost.get("tokens_per_second")
        curve.append(
            {
                "tokens": line["tokens"],
                "seconds": line["tokens"] / rate if rate else cost["seconds"],
                "flops": line.get("flops", 0.0),
                "joules": cost["joules"],
                measure: line[measure],
            }
        )
    return curve


def read_validations(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of metrics that tell of a validation; none where there is no such file."""
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


def last_doubling(curve: Sequence[dict[str, float]], *, measure: str = CURVE["next token"]) -> float | None:
    """How much the second half of the training has gained: where the curve is heading."""
    if len(curve) < 3:
        return None
    tokens = np.log([point["tokens"] for point in curve])
    values = [point[measure] for point in curve]
    half = tokens[-1] - math.log(2)
    return float(np.interp(half, tokens, values) - values[-1]) if half >= tokens[0] else None


def heading(
    curve: Sequence[dict[str, float]], axis: str, *, measure: str = CURVE["next token"]
) -> tuple[float, float] | None:
    """Where a curve would come to with `AHEAD` times as much, if doublings went on gaining what the last two did."""
    if len(curve) < 3 or curve[-1][axis] <= 0 or curve[0][axis] <= 0:
        return None
    spent = np.log2([point[axis] for point in curve])
    values = [point[measure] for point in curve]
    earlier = max(spent[0], spent[-1] - 2)
    gain = (float(np.interp(earlier, spent, values)) - values[-1]) / (spent[-1] - earlier)
    return curve[-1][axis] * AHEAD, values[-1] - max(0.0, gain) * math.log2(AHEAD)
