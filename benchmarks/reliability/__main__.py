"""Measure the figures of reliability, and print a line for each.

python -m benchmarks.reliability [NAME …] [--quick] [--folder DIR] [--seed N]

Without names all are measured. `--quick` takes the sizes of the tests, which need seconds. Scratch files, and what a
long figure needs to be continued, are in the folder.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

import torch
from benchmarks.reliability.figures import Scale
from benchmarks.reliability.processes import import_everything

FIGURES = {
    "kills": "kills",
    "fuzzing": "fuzzing",
    "damage": "damage",
    "faults": "faults",
    "payloads": "payloads",
    "bombs": "payloads",
    "round-trips": "round_trips",
    "full-disk": "faults",
    "releases": "inputs",
    "nan": "inputs",
    "corpora": "inputs",
    "widths": "inputs",
    "sharing": "together",
    "sigterm": "together",
    "network": "together",
    "restarts": "together",
    "soak": "soak",
}
"""The figures by name, each a function of that name in the module."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("reliability"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if unknown := set(given.names) - set(FIGURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))} (known: {', '.join(FIGURES)})")
    given.folder.mkdir(parents=True, exist_ok=True)
    os.environ["LMLAB_CACHE"] = str((given.folder / "cache").resolve())
    import_everything()
    torch.set_num_threads(1)  # processes that are forked would wait for the threads of this one
    failed = 0
    for name in given.names or FIGURES:
        failed += measure(name, Scale(given.folder.resolve(), given.quick, given.seed))
    sys.exit(1 if failed else 0)


def measure(name: str, scale: Scale) -> int:
    """Print the lines of a figure, and append them to `figures.jsonl`; returns how many cases went wrong."""
    function = getattr(importlib.import_module(f"benchmarks.reliability.{FIGURES[name]}"), name.replace("-", "_"))
    started, failed = time.monotonic(), 0
    for figure in function(scale):
        failed += len(figure.wrong)
        line = {
            **{"name": name, "figure": figure.name, "tried": figure.tried, "result": figure.result},
            **{"wrong": figure.wrong, "quick": scale.quick, "seed": scale.seed},
            **{"date": datetime.date.today().isoformat(), "seconds": round(time.monotonic() - started, 1)},
            **{"machine": f"{os.cpu_count()} × {platform.machine()}", "python": platform.python_version()},
        }
        with open(scale.folder / "figures.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"| {line['date']} | {figure.name} | {figure.result} | {len(figure.wrong)} wrong |", flush=True)
        for each in figure.wrong:
            print(f"    {each}", flush=True)
    return failed


if __name__ == "__main__":
    main()
