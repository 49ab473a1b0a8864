"""What weights in int8 and bf16 cost in quality, for runs of any family.

    python benchmarks/rounded_weights.py RUN[=DATA] … [--limit 200]

Each run is measured with weights in fp32, bf16 and int8 by the command for it: `lmlab score --held-out` where it
predicts tokens of a text, else `lmlab evaluate`, on DATA or on what the run held out. Printed: each metric in fp32, and
the difference in bf16 and int8; bits per byte and perplexity relative to fp32.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from functools import partial
from typing import Any
from unittest import mock

from lmlab import language_model
from lmlab.cli import main as run_lmlab

METRICS = (
    "bits_per_byte", "perplexity", "accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman", "bleu", "chrf",
    "exact_match", "word_error_rate", "character_error_rate", "recall@1", "error", "nats",
)  # fmt: skip
RELATIVE = ("bits_per_byte", "perplexity", "nats")


def measure(command: list[str], weights: str) -> dict[str, float]:
    """The metrics that a command prints when models are loaded with these weights."""
    printed = io.StringIO()
    if command[0] == "score":
        command = [*command, "--weights", weights]
    load = language_model.load if command[0] == "score" else partial(language_model.load, weights=weights)
    with (
        mock.patch.object(language_model, "load", load),
        mock.patch.object(sys, "argv", ["lmlab", *command]),
        contextlib.redirect_stdout(printed),
    ):
        try:
            run_lmlab()
        except SystemExit as end:
            if end.code:
                return {}
    return find_metrics(json.loads(printed.getvalue()))


def find_metrics(value: Any) -> dict[str, float]:
    """The metrics anywhere in what a command prints, the outermost of each name."""
    if not isinstance(value, dict):
        return {}
    own = {name: float(value[name]) for name in METRICS if isinstance(value.get(name), (int, float))}
    inner = [find_metrics(each) for name, each in value.items() if name not in ("intervals", "baselines", "cost")]
    return {name: number for part in (*inner, own) for name, number in part.items()}


def commands(run: str, data: str, limit: int) -> list[list[str]]:
    """The commands to try, the first that works counts."""
    score = ["score", run, *([data] if data else ["--held-out"]), "--json"]
    evaluate = ["evaluate", run, *([data] if data else []), "--limit", str(limit), "--json"]
    return [evaluate, score]


def compare(given: str, limit: int) -> None:
    run, _, data = given.partition("=")
    for command in commands(run, data, limit):
        with contextlib.redirect_stderr(io.StringIO()):
            plain = measure(command, "fp32")
        if plain:
            break
    else:
        print(f"{run}: neither scored nor evaluated")
        return
    others = {weights: measure(command, weights) for weights in ("bf16", "int8")}
    print(f"\n{run} (lmlab {command[0]})")
    for name, value in plain.items():
        cells = [f"  {name:22}{value:10.4f}"]
        for weights, found in others.items():
            if name in found:
                change = found[name] - value
                cells.append(f"{weights} {change / value:+.3%}" if name in RELATIVE else f"{weights} {change:+.4f}")
        print("   ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN[=DATA]")
    parser.add_argument("--limit", type=int, default=200, help="items that are evaluated, at most")
    arguments = parser.parse_args()
    for given in arguments.runs:
        compare(given, arguments.limit)


if __name__ == "__main__":
    main()
