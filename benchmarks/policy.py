"""Policy: how often it succeeds in the built-in world, with and without co-training, with and without the command.

Three policies of the size `small` learn for the same number of steps: from demonstrations alone, from demonstrations
with captions and questions (co-training), and from demonstrations whose commands are hidden, the control that can only
guess which shape is meant. Each tries missions in held-out scenes, and missions whose goals are pairs of colour and
shape that no training data have; with its command and with an empty one. A film of one mission is written as GIF.

    python benchmarks/policy.py [FOLDER] [--seeds 3] [--steps 1500]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import lmlab
from lmlab.analysis.policies.success_rates import measure_success
from lmlab.data.readers.robot_world import MISSIONS
from lmlab.decoding.actor import write_film
from lmlab.metrics.statistics import mean_interval, wilson

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "demonstrations": ("builtin:world", {}),
    "demonstrations, captions and questions": ("builtin:world-and-words", {}),
    "demonstrations without commands": ("builtin:world", {"objective.hide_command": True}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/policy"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    found: dict[str, list[list[float]]] = {name: [] for name in POLICIES}
    names: list[str] = []
    for seed in range(options.seeds):
        for name, (data, settings) in POLICIES.items():
            run = options.folder / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
            if not (run / "README.md").is_file():
                lmlab.train(
                    "policy",
                    data,
                    output=run,
                    budget=f"{options.steps}steps",
                    settings={**settings, "train.seed": seed, "train.evaluations": 8},
                    resume=run.exists(),
                )
            rates, first = measure_success(lmlab.load(run).command_follower, run=run.name, missions=MISSIONS["test"])
            write_film(first.frames, options.folder / f"{run.name}.gif", frames_per_second=3)
            names = [f"{row.missions}, command {'given' if row.command else 'hidden'}" for row in rates.rows]
            found[name].append([row.success for row in rates.rows])
            print(run.name, json.dumps(dict(zip(names, found[name][-1], strict=True))), flush=True)
    print(f"\n{options.steps:,} steps, {options.seeds} seeds\n")
    print(f"| learnt from | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for name, seeds in found.items():
        print(f"| {name} | {' | '.join(describe(list(each)) for each in zip(*seeds, strict=True))} |")


def describe(rates: list[float]) -> str:
    """The mean success rate with its 95% interval: over seeds, or of one seed over missions (Wilson)."""
    missions = MISSIONS["test"]
    estimate = mean_interval(rates) if len(rates) > 1 else wilson(round(rates[0] * missions), missions)
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1%}"
    return f"{estimate.value:.1%} ({max(0.0, estimate.low):.1%} to {min(1.0, estimate.high):.1%})"


if __name__ == "__main__":
    main()
