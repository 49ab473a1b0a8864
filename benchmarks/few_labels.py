"""How many steps does fine-tuning on few labels need? Accuracy on SST-2's dev set against steps.

    python benchmarks/few_labels.py RUN [FOLDER] [--labels 100 300 1000] [--ways full scratch] [--steps 50 150 500]

A pre-trained run learns SST-2 (whole sentences) from 100, 300 and 1,000 labels, each time for several numbers of steps
of 32 examples, with all weights, with its head alone (frozen), layer by layer (gradual), and from random weights
(scratch). The labels are the same for all; each seed has its own. Printed: the mean accuracy on the dev set at the end
of training, with the values of the seeds, beside a bag of words. A second call takes the results that it finds.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from study import clock
from transferring import Found, OpenTask, Results, Setup, header, learn, open_task, percent, row, summarise

WAYS = ("full", "frozen", "mix", "gradual", "scratch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the pre-trained run")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/few-labels"))
    parser.add_argument("--labels", nargs="+", type=int, default=[100, 300, 1000])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["full", "scratch"])
    parser.add_argument("--steps", nargs="+", type=int, default=[50, 150, 500])
    parser.add_argument("--rates", nargs="+", type=float, help="by default the library's for each way")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    task, results = open_task("sst2"), Results(given.folder / "results.jsonl")
    print(f"SST-2, sentences, {given.run.name}, {given.seeds} seeds, {clock()}")
    header("labels", "way", "rate", *(f"{steps} steps" for steps in given.steps))
    for labels in given.labels:
        words = learn_all("words", labels, given, task, results)
        row(labels, "bag of words", "", *[summary(words)] * len(given.steps))
        for way, rate in product(given.ways, given.rates or [None]):
            found = [learn_all(way, labels, given, task, results, steps=steps, rate=rate) for steps in given.steps]
            row(labels, way, f"{found[0][0].rate:.2g}", *map(summary, found))


def learn_all(
    way: str,
    labels: int,
    given: argparse.Namespace,
    task: OpenTask,
    results: Results,
    *,
    steps: int | None = None,
    rate: float | None = None,
) -> list[Found]:
    """The results of all seeds."""
    batch = min(32, labels)
    epochs = None if steps is None else steps / -(-labels // batch)
    found = []
    for seed in range(given.seeds):
        model = "–" if steps is None else given.run.name
        setup = Setup(
            task=task.name, model=model, way=way, seed=seed, epochs=epochs, examples=labels, rate=rate, threads=1
        )
        found.append(results.get(setup, lambda setup=setup: learn(setup, task, given.run, given.folder)))
    return found


def summary(found: list[Found]) -> str:
    return f"{percent(summarise(found).value)} ({' '.join(percent(each.value) for each in found)})"


if __name__ == "__main__":
    main()
