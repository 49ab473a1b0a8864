"""The stages of ULMFiT as rows, at 100, 500 and all labels of the sentence polarity set (Pang & Lee 2005).

python benchmarks/ulmfit.py [FOLDER] [--general 20min] [--labels 100,500,all] [--seeds 3]

scratch                     the same net without pre-training
+ general LM                an AWD-LSTM of WikiText-2, all weights learn at once
+ target LM                 the same, tuned on the texts of the task first
+ gradual unfreezing        --how ulmfit
+ backwards                 the mean with a classifier that reads from the end

About 20 minutes for each general language model, then about 10 minutes for each number of labels and seed, on 2 cores.
A second call takes what it finds. The test set is a tenth of the sentences, the same for all rows.
"""

from __future__ import annotations

import argparse
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from lmlab import run
from lmlab.language_model import load_ensemble
from lmlab.recipe import make_recipe
from lmlab.transfer.finetune import open_data
from lmlab.transfer.results import score_predictions
from lmlab.transfer.target_text import tune
from lmlab.transfer.trials import TaskData, Trial, carry_out, plan_language
from study import clock, need

DATA = Path(os.environ["LMLAB_DATA"])  # set by study where it is not


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


def general(folder: Path, budget: str, *, backwards: bool) -> Path:
    """The language model of the first stage."""
    path = folder / ("general-backwards" if backwards else "general")
    if not (path / "README.md").is_file():
        values = {
            "data": {"text": str(DATA / "wikitext2" / "train.txt"), "valid": str(DATA / "wikitext2" / "valid.txt")},
            "tokenizer": {"spec": "bpe:8192"},
            "model": {"kind": "awd-lstm", "size": "small"},
            "objective": {"backwards": backwards},
            "train": {"budget": budget},
        }
        if backwards:
            values["tokenizer"] = {"spec": str(folder / "general" / "tokenizer.json")}
        run.start(make_recipe(values), path, overwrite=True)
    return path


def tuned(origin: Path, data: TaskData, folder: Path, seed: int, budget: str | None) -> Path:
    """The language model of the second stage."""
    path = folder / f"{origin.name}-seed-{seed}-lm"
    language = {} if budget is None else {"budget": budget}
    assert tune(plan_language(Trial(origin=origin, how="ulmfit", seed=seed, language=language), data), path) is not None
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/ulmfit"))
    parser.add_argument("--general", default="20min", help="budget of each general language model")
    parser.add_argument("--tuning", default=None, help="budget of tuning each on the target text; by default 5 epochs")
    parser.add_argument("--labels", default="100,500,all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=None)
    arguments = parser.parse_args()
    need("sentence_polarity")
    need("wikitext2")
    folder = arguments.folder
    data, _ = open_data(write_sentences(folder))
    ahead, back = (general(folder, arguments.general, backwards=way) for way in (False, True))
    split, test = data.held_out
    print(f"sentence polarity, {len(data.labelled.train):,} for training, {len(test):,} {split}, {clock()}\n")
    print("| labels | scratch | + general LM | + target LM | + gradual unfreezing | + backwards |")
    print("|---|---|---|---|---|---|")
    for size in arguments.labels.split(","):
        take = None if size == "all" else int(size)
        rows: list[list[float]] = []
        for seed in range(arguments.seeds):
            base = Trial(origin=ahead, take=take, seed=seed, epochs=arguments.epochs)
            target = tuned(ahead, data, folder, seed, arguments.tuning)
            behind = tuned(back, data, folder, seed, arguments.tuning)
            trials = [
                replace(base, how="scratch"),
                replace(base, how="full"),
                replace(base, how="full", origin=target),
                replace(base, how="gradual", origin=target),
                replace(base, how="gradual", origin=behind),
            ]
            places = [folder / "trials" / trial.name for trial in trials]
            values = []
            for trial, place in zip(trials, places, strict=True):
                result = carry_out(trial, data, place)
                assert result is not None
                values.append(float(result.values["accuracy"].value or 0))
            both = load_ensemble(places[-2:])
            measured = score_predictions(both.task.measures, both.predict(test), test)
            rows.append([*values[:-1], float(measured["accuracy"].value or 0)])
        means = " | ".join(f"{100 * fmean(column):.1f}" for column in zip(*rows, strict=True))
        print(f"| {size} | {means} |", flush=True)


if __name__ == "__main__":
    main()
