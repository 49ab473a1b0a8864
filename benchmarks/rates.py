"""The learning rates of the systems (`System.training`): each tried at several under the same budget in FLOPs.

    python benchmarks/rates.py [FOLDER] [--systems nplm gpt2 …] [--text builtin] [--size tiny] [--budget 1.5e12flops]

A rate is doubled or halved from 0.002 on, until the best one stands between two worse ones. The figure is the
validation loss in nats: of the next token, or of the masks of a masked system. Chosen is the lowest rate whose loss is
within 1% of the best, because longer runs want smaller steps. FLOPs are counted, not timed, so the
table is the same on a busy machine. A second call takes the runs that it finds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from lmlab.models import LINEAGE
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from lmlab.training.metrics_log import NotFiniteError

FIRST = 2e-3
MARGIN = 0.01
MOST = 6
"""Rates tried of one system, at most."""


def measure(system: str, rate: float, arguments: argparse.Namespace) -> float:
    """Validation loss in nats at the end; infinite where training diverged."""
    path = arguments.folder / f"{system}-{arguments.size}-{arguments.budget}-{rate:g}"
    if not (path / "README.md").is_file():
        recipe = make_recipe(
            {
                "data": {"text": [arguments.text]},
                "tokenizer": {"spec": "bpe:4096"},
                "model": {"kind": system, "size": arguments.size},
                "train": {"budget": arguments.budget, "rate": rate, "evaluations": 1, "evaluation_tokens": 200_000},
            }
        )
        try:
            run.start(recipe, path, overwrite=path.exists())
        except NotFiniteError:
            return float("inf")
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return float(next(line["valid_loss"] for line in reversed(lines) if "valid_loss" in line))


def bracket(loss: Callable[[float], float]) -> dict[float, float]:
    """Losses by rate, doubled and halved from `FIRST` on until the least has a worse neighbour on either side."""
    found = {FIRST: loss(FIRST)}
    while len(found) < MOST:
        best = min(found, key=lambda rate: found[rate])
        missing = [rate for rate in (2 * best, best / 2) if rate not in found]
        if not missing:
            break
        found[missing[0]] = loss(missing[0])
    return dict(sorted(found.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/rates"))
    parser.add_argument("--systems", nargs="+", choices=list(LINEAGE), required=True)
    parser.add_argument("--text", default="builtin")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--budget", default="1.5e12flops")
    arguments = parser.parse_args()
    print("| system | chosen | nats per token by rate |\n|---|---|---|")
    for system in arguments.systems:
        found = bracket(lambda rate, system=system: measure(system, rate, arguments))  # type: ignore[misc]
        chosen = next(rate for rate, loss in found.items() if loss <= (1 + MARGIN) * min(found.values()))
        losses = ", ".join(f"{rate:g}: {loss:.3f}" for rate, loss in found.items())
        print(f"| {system} | {chosen:g} | {losses} |", flush=True)


if __name__ == "__main__":
    main()
