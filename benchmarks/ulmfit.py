"""The stages of ULMFiT as rows, at 100, 500 and all labels of the sentence polarity set (Pang & Lee 2005).

python benchmarks/ulmfit.py [FOLDER] [--size small] [--general 4Mtokens] [--labels 100,500,all] [--seeds 3]

scratch                     the same net without pre-training
+ general LM                an AWD-LSTM of WikiText-2, all weights learn at once
+ target LM                 the same, tuned on the texts of the task first
+ gradual unfreezing        --how ulmfit
+ backwards                 the mean with a classifier that reads from the end

The test set is a tenth of the sentences, the same for all rows. All budgets are in tokens and epochs, so that a busy
machine gives the same figures; what is found in FOLDER is taken, and what was begun is resumed. About 25 minutes
for each general language model, then about 10 minutes for each number of labels and seed, on 2 cores. For a first look
of about 15 minutes on one core:

python benchmarks/ulmfit.py runs/ulmfit --size tiny --general 1Mtokens --tuning 1epochs --labels 100,500 --seeds 1
"""

from __future__ import annotations

import argparse
import os
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from lmlab.language_model import load_ensemble
from lmlab.transfer.results import score_predictions
from lmlab.transfer.task_data import TaskData, open_data
from lmlab.transfer.trials import Trial, plan_language_model, plan_trial, run_trial
from lmlab.transfer.ulmfit import tune
from study import clock, complete, need
from transferring import Found, Results, Setup, header, percent, row

DATA = Path(os.environ["LMLAB_DATA"])  # set by study where it is not
WAYS = {
    "scratch": ("scratch", 1),
    "+ general LM": ("full", 1),
    "+ target LM": ("full", 1),
    "+ gradual unfreezing": ("gradual", 1),
    "+ backwards": ("gradual", 2),
}
"""How each row learns, and from how many directions."""


def write_sentences(folder: Path) -> Path:
    """The positive and negative sentences as one table."""
    path = folder / "polarity.tsv"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        rows = ["text\tlabel"]
        with zipfile.ZipFile(DATA / "sentence_polarity" / "sentence_polarity.zip") as archive:
            for ending, label in (("pos", "good"), ("neg", "bad")):
                content = archive.read(f"sentence_polarity/rt-polarity.{ending}").decode("latin-1")
                rows += [f"{line.strip()}\t{label}" for line in content.splitlines() if line.strip()]
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def general(folder: Path, *, size: str, budget: str) -> tuple[Path, Path]:
    """The language models of the first stage, forwards and backwards, with one tokenizer."""
    name = f"general-{size}-{budget}"
    values: dict[str, Any] = {
        "data": {"text": str(DATA / "wikitext2" / "train.txt"), "valid": str(DATA / "wikitext2" / "valid.txt")},
        "tokenizer": {"spec": "bpe:8192"},
        "model": {"kind": "awd-lstm", "size": size},
        "train": {"budget": budget},
    }
    ahead = complete(values, folder / name)
    values |= {"tokenizer": {"spec": str(ahead / "tokenizer.json")}, "objective": {"backwards": True}}
    return ahead, complete(values, folder / f"{name}-backwards")


def tuned(origin: Path, data: TaskData, folder: Path, seed: int, budget: str | None) -> Path:
    """The language model of the second stage."""
    path = folder / f"{origin.name}-{budget or 'tuned'}-seed-{seed}-lm"
    language = {} if budget is None else {"budget": budget}
    trial = Trial(origin=origin, method="ulmfit", seed=seed, language=language)
    recipe, texts = plan_language_model(trial, data)
    texts.write()
    assert tune(recipe, path) is not None
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/ulmfit"))
    parser.add_argument("--size", default="small", help="size of the AWD-LSTMs: tiny, small, base")
    parser.add_argument("--general", default="4Mtokens", help="budget of each general language model")
    parser.add_argument("--tuning", default=None, help="budget of tuning each on the target text; by default 5 epochs")
    parser.add_argument("--labels", default="100,500,all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=None)
    arguments = parser.parse_args()
    need("sentence_polarity")
    need("wikitext2")
    folder = arguments.folder
    data = open_data(write_sentences(folder))
    ahead, back = general(folder, size=arguments.size, budget=arguments.general)
    results = Results(folder / "results.jsonl")
    split, test = data.held_out
    print(f"sentence polarity, {len(data.labelled.train):,} for training, {len(test):,} {split}, {clock()}", flush=True)
    table = []
    for size in arguments.labels.split(","):
        take = None if size == "all" else int(size)
        rows: list[list[float]] = []
        for seed in range(arguments.seeds):
            base = Trial(origin=ahead, limit=take, seed=seed, epochs=arguments.epochs)

            def learn(way: str, base: Trial = base) -> Found:
                """One row: the classifier learns in its folder, or goes on there."""
                how, origins = WAYS[way]
                positions = []
                for origin in (ahead, back)[:origins]:
                    begun = origin
                    if way not in ("scratch", "+ general LM"):
                        begun = tuned(origin, data, folder, base.seed, arguments.tuning)
                    trial = replace(base, method=how, origin=begun)
                    positions.append(folder / "trials" / f"{trial.name}-{arguments.epochs or 'usual'}")
                    result = run_trial(plan_trial(trial, data), positions[-1])
                    assert result is not None
                values = result.values
                if origins == 2:
                    both = load_ensemble(positions)
                    values = score_predictions(both.task.metrics, both.predict(test), test)
                accuracy = values["accuracy"]
                return Found(values={"accuracy": [accuracy.value, accuracy.low, accuracy.high]}, seconds=result.seconds)

            model = f"awd-lstm {arguments.size} {arguments.general} {arguments.tuning}"
            usual = {"task": "polarity", "model": model, "seed": seed, "epochs": arguments.epochs, "examples": take}
            rows.append([results.get(Setup(**usual, way=way), partial(learn, way)).value for way in WAYS])
        table.append((size, *(percent(fmean(column)) for column in zip(*rows, strict=True))))
    header("labels", *WAYS)
    for each in table:
        row(*each)


if __name__ == "__main__":
    main()
