"""GPT-2 pre-trained here and fine-tuned with task inputs, against itself from scratch, for the same number of steps.

    python benchmarks/gpt2_transfer.py [FOLDER] [--tasks sst2 mrpc …] [--budget 20min] [--seeds 3] [--epochs 3]

GPT-2 is pre-trained on WikiText-2. Tasks are given to it as Radford et al. (2018) do: texts with a delimiter between
them, a linear layer over the last token, both orders added where likeness is judged, and with --auxiliary 0.5 the
loss of the language model beside that of the task. From scratch it has the same shape, examples, batches and steps, and
the larger learning rate that a net without pre-training needs (--same-rate: the same). Scores are on the whole dev set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from lmlab.metrics.statistics import Estimate, mean_interval
from lmlab.training.devices import keep_buffers
from study import clock
from transferring import (
    BASELINES,
    TASKS,
    Found,
    OpenTask,
    Results,
    Setup,
    header,
    interval,
    learn,
    open_task,
    percent,
    pretrain,
    row,
    summarise,
)

USUAL = ["sst2", "mrpc", "rte", "cola", "stsb"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=USUAL)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--examples", type=int, help="training examples, drawn anew for each seed; by default all")
    parser.add_argument("--dev", type=int, help="score this number of dev examples only, to try the script")
    parser.add_argument("--rate", type=float, help="of fine-tuning; by default the library's")
    parser.add_argument("--same-rate", action="store_true", help="the rate of fine-tuning from scratch, too")
    parser.add_argument("--auxiliary", type=float, default=0.0, help="weight of the language model's loss")
    parser.add_argument("--size", default="small")
    parser.add_argument("--budget", default="20min", help="of pre-training")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    origin = pretrain("gpt2", arguments.folder / "pretrained", size=arguments.size, budget=arguments.budget)
    results = Results(arguments.folder / "results.jsonl")
    rows = []
    for name in arguments.tasks:
        task = open_task(name, dev=arguments.dev)
        baselines = [results_of(arguments, results, task, origin, way)[0] for way in BASELINES]
        full = results_of(arguments, results, task, origin, "full")
        scratch = results_of(arguments, results, task, origin, "scratch", rate=full[0].rate)
        if full[0].steps != scratch[0].steps:
            raise SystemExit(f"{name}: {full[0].steps} steps against {scratch[0].steps}")
        gains = mean_interval([mine.value - other.value for mine, other in zip(full, scratch, strict=True)])
        rows.append((name, full, scratch, gains, baselines))
    print(f"\n{clock()}: {origin.name}, {arguments.epochs:g} epochs, auxiliary loss {arguments.auxiliary:g}")
    columns = ("pre-trained", "seeds", "from scratch", "seeds", "gain", "95% interval", "majority", "words", "steps")
    header("task", "metric", *columns, "training s")
    for name, full, scratch, gains, baselines in rows:
        both = [cell for found in (full, scratch) for cell in (percent(summarise(found).value), reported(found))]
        cells = (*both, percent(gains.value), interval(gains), *(percent(each.value) for each in baselines))
        row(name, full[0].metric, *cells, full[0].steps, f"{full[0].training:.0f}")
    wins = [name for name, _, _, gains, _ in rows if gains.value > 0]
    sure = [name for name, _, _, gains, _ in rows if is_sure(gains)]
    print(f"\npre-training helps on {len(wins)} of {len(rows)} tasks, beyond the interval on {len(sure)}: {sure}")


def reported(found: list[Found]) -> str:
    return " ".join(percent(each.value) for each in found)


def is_sure(gains: Estimate) -> bool:
    return gains.low is not None and gains.low > 0


def results_of(
    arguments: argparse.Namespace, results: Results, task: OpenTask, origin: Path, way: str, rate: float | None = None
) -> list[Found]:
    """The results of all seeds of one way; a baseline has one."""
    found = []
    baseline = way in BASELINES
    for seed in range(1 if baseline else arguments.seeds):
        setup = Setup(
            task=task.name,
            model="–" if baseline else origin.name,
            way=way,
            seed=seed,
            epochs=None if baseline else arguments.epochs,
            examples=arguments.examples,
            rate=arguments.rate if way == "full" else rate if arguments.same_rate else None,
            auxiliary=0.0 if baseline else arguments.auxiliary,
            dev=arguments.dev,
            threads=arguments.threads,
        )
        found.append(results.get(setup, lambda setup=setup: learn(setup, task, origin, arguments.folder)))
    return found


if __name__ == "__main__":
    main()
