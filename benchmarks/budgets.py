"""What is each family worth per FLOP, per second and per token? Every system on two texts under three budgets.

    python benchmarks/budgets.py [FOLDER] [--texts brown wikitext2] [--budgets 3e11 1.5e12 7.5e12] [--size tiny]

Each text and budget is one `lmlab compare --models all` (test text of the corpus, bpe:4096, one seed, the learning rate
of each family), so each score is exact bits per byte with its interval; a second call takes what it finds. Budgets are
in FLOPs, which are counted; seconds are CPU seconds of training, which other work on the machine changes little.
Printed as Markdown:

- per FLOP: the scores at the three budgets, with the tokens read and the CPU seconds spent,
- per token and per second: scores at the same number of tokens, or of seconds, for all, read off a line between the
  budgets (bits against the logarithm), and only between them: nothing is extrapolated.

With matplotlib the curves are drawn, too: budgets.png in the folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lmlab.cli.leaderboard import LiveTable
from lmlab.comparison.folder import run_comparison
from lmlab.comparison.plan import make_conditions
from lmlab.models import LINEAGE
from study import clock, need

TOKENS = (190_000, 600_000, 1_900_000)
SECONDS = (12, 40, 140)
TITLES = {"flops": "training FLOPs", "tokens": "training tokens", "cpu_seconds": "CPU seconds of training, 1 core"}


class Point(NamedTuple):
    """One system after one budget."""

    bits: float
    low: float
    high: float
    flops: float
    tokens: float
    cpu_seconds: float


Curves = dict[str, list[Point]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/budgets"))
    parser.add_argument("--texts", nargs="+", choices=["brown", "wikitext2"], default=["brown", "wikitext2"])
    parser.add_argument("--budgets", nargs="+", type=float, default=[3e11, 1.5e12, 7.5e12])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--models", default="all")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    every: dict[str, Curves] = {}
    for text in arguments.texts:
        curves: Curves = {}
        for budget in sorted(arguments.budgets):
            for entry in board(text, budget, arguments)["entries"]:
                cost = entry["training"]
                figures = (cost["flops"], cost["tokens"], cost["cpu_seconds"])
                curves.setdefault(entry["kind"], []).append(
                    Point(entry["bits_per_byte"], entry["low"], entry["high"], *figures)
                )
        every[text] = curves
        print_text(text, sorted(arguments.budgets), curves)
    draw(every, arguments.folder / "budgets.png")


def board(text: str, budget: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """The leaderboard of one comparison, made now or earlier."""
    need(text)
    data = Path(os.environ["LMLAB_DATA"]) / text
    folder = arguments.folder / f"{text}-{budget:g}"
    found = folder / "leaderboard.json"
    if not found.is_file():
        conditions = make_conditions(
            [str(data / "train.txt")],
            models=arguments.models,
            budget=f"{budget:g}flops",
            size=arguments.size,
            data={"valid": [str(data / "valid.txt")], "test": [str(data / "test.txt")]},
            train={"evaluations": 3},
        )
        with LiveTable() as watcher:
            run_comparison(conditions, folder, watcher=watcher)
    read: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return read


def print_text(text: str, budgets: list[float], curves: Curves) -> None:
    order = sorted(curves, key=lambda system: curves[system][-1].bits)
    print(f"\n### {text}, {clock()}: bits per byte of the test text\n\nper FLOP\n")
    cells = [f"{budget:g} FLOPs | tokens | CPU s".replace("+", "") for budget in budgets]
    print(f"| system | {' | '.join(cells)} |\n|{'---|' * (1 + 3 * len(budgets))}")
    best = [min(curves[system][i].bits for system in order) for i in range(len(budgets))]
    for system in order:
        cells = []
        for point, least in zip(curves[system], best, strict=True):
            bits = f"**{point.bits:.3f}**" if point.bits == least else f"{point.bits:.3f}"
            spread = (point.high - point.low) / 2
            cells.append(f"{bits} ±{spread:.3f} | {point.tokens / 1e6:.2f}M | {point.cpu_seconds:.0f}")
        print(f"| `{system}` | {' | '.join(cells)} |")
    print_at("tokens", TOKENS, order, curves)
    print_at("cpu_seconds", SECONDS, order, curves)


def print_at(axis: str, positions: tuple[int, ...], order: list[str], curves: Curves) -> None:
    """The scores read off at the same places of an axis; an n-gram, which counts all at once, from there on."""
    columns = [{system: read_off(curves[system], axis, position) for system in order} for position in positions]
    print(f"\n{TITLES[axis]}\n\n| system | {' | '.join(f'{position:,}' for position in positions)} |")
    print(f"|{'---|' * (len(positions) + 1)}")
    for system in order:
        cells = []
        for column in columns:
            value, known = column[system], [each for each in column.values() if each is not None]
            cells.append("" if value is None else f"**{value:.3f}**" if value == min(known) else f"{value:.3f}")
        print(f"| `{system}` | {' | '.join(cells)} |")


def read_off(points: list[Point], axis: str, position: float) -> float | None:
    """Bits at a place between two points, on the line over the logarithm; None where there is none."""
    spent = [getattr(point, axis) for point in points]
    if points[0].flops == 0:  # counted, once for all budgets
        return points[0].bits if position >= spent[0] else None
    for (left, a), (right, b) in pairwise(zip(spent, points, strict=True)):
        if left <= position <= right:
            fraction = math.log(position / left) / math.log(right / left)
            return a.bits + fraction * (b.bits - a.bits)
    return None


def draw(every: dict[str, Curves], path: Path) -> None:
    """One row of three charts for each text."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("\nNo picture: install matplotlib (lmlab[report]).")
        return
    figure = Figure(figsize=(13, 4.2 * len(every)), layout="constrained")
    grid = figure.subplots(len(every), 3, squeeze=False, sharey="row")
    for row, (text, curves) in zip(grid, every.items(), strict=True):
        for axes, (axis, title) in zip(row, TITLES.items(), strict=True):
            for number, system in enumerate(name for name in LINEAGE if name in curves):
                colour, points = f"C{number}", curves[system]
                if points[0].flops == 0:
                    axes.axhline(points[0].bits, color=colour, linestyle=":", label=system)
                    continue
                spent = [getattr(point, axis) for point in points]
                axes.plot(spent, [point.bits for point in points], "o-", color=colour, label=system)
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter("")
            axes.set_xlabel(title)
            axes.grid(alpha=0.25)
            axes.set_title(text)
        row[0].set_ylabel("bits per byte of test text")
    grid[0, 2].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    figure.savefig(path, dpi=110)
    print(f"\n{path}")


if __name__ == "__main__":
    main()
