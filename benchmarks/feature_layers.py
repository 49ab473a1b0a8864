"""Which layers of a frozen model are the best features? BERT's table of six choices, on CoNLL-2003 with MiniLM.

    python benchmarks/feature_layers.py [FOLDER] [--examples N] [--seeds 3] [--crf] [--task conll]

Vectors of the first piece of each word are computed once for each choice; a linear layer learns the tags over them.
Beside the F1 on the whole dev set stands that of Devlin et al. 2019, table 7: BERT base, with a BiLSTM of two
layers over its vectors. A second call takes what it finds in the folder.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from lmlab.transfer.results import Result
from lmlab.transfer.study import run_study
from lmlab.transfer.study_plans import DECK_LAYERS, plan_layers
from lmlab.transfer.trials import Trial, plan_trial
from study import clock
from transferring import TASKS, header, import_minilm, open_task, percent, row

PUBLISHED = dict(zip(DECK_LAYERS, (91.0, 94.9, 95.6, 95.5, 95.9, 96.1), strict=True))
"""F1 on the dev set of CoNLL-2003 (Devlin et al. 2019, table 7)."""


def tell(result: Result) -> None:
    value = result.values[result.main].value
    print(f"  {result.name} {result.layers} seed {result.seed}: {percent(value)}, {result.seconds:.0f} s", flush=True)


def order(scores: dict[str, float]) -> str:
    """The choices from the best to the worst."""
    return " > ".join(sorted(scores, key=lambda layers: -scores[layers]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/feature-layers"))
    parser.add_argument("--task", choices=TASKS, default="conll")
    parser.add_argument("--examples", type=int, help="training examples; by default all")
    parser.add_argument("--dev", type=int, help="score this number of dev examples only, to try the script")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, help="of the head; by default the library's")
    parser.add_argument("--crf", action="store_true", help="tags by a conditional random field")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    origin = import_minilm(arguments.folder)
    task = open_task(arguments.task, dev=arguments.dev)
    data = replace(task.data, labelled=replace(task.data.labelled, valid=task.dev))  # all of it is scored
    trial = Trial(
        origin=origin,
        limit=arguments.examples,
        epochs=arguments.epochs,
        task={"crf": True} if arguments.crf else {},
        train={"evaluations": 1},
    )
    name = f"{arguments.task}-{arguments.examples or 'all'}{'-crf' if arguments.crf else ''}"
    name += f"-{arguments.dev}" if arguments.dev else ""
    trials = [plan_trial(each, data) for each in plan_layers(trial, seeds=arguments.seeds)]
    study = run_study("layers", trials, data, arguments.folder / name, on_result=tell)
    assert study is not None, "nobody interrupts"
    learnt = arguments.examples or study.counts["train"]
    print(f"\n{clock()}: {study.metric} on {study.counts['valid']:,} dev examples, learnt from {learnt:,}")
    header("layers of MiniLM", study.metric, "95% interval", "seeds", "training s", "BERT base (published)")
    scores: dict[str, float] = {}
    for each in study.table:
        value, baseline = each.values[study.metric], each.method == "baseline"
        published = "" if baseline else f"{PUBLISHED[each.layers]:.1f}"
        bounds = f"{percent(value.low)} to {percent(value.high)}"
        seeds = " ".join(map(percent, each.seeds))
        row(
            each.name if baseline else each.layers,
            percent(value.value),
            bounds,
            seeds,
            f"{each.seconds:.0f}",
            published,
        )
        if not baseline:
            scores[each.layers] = value.value or 0.0
    print(f"\nhere:      {order(scores)}\npublished: {order(PUBLISHED)}")


if __name__ == "__main__":
    main()
