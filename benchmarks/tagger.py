"""The tagger on CoNLL-2003, addition by addition, with all labels and with a tenth of them.

python benchmarks/tagger.py [FOLDER] [--epochs 6] [--fraction 1,0.1] [--size tiny] [--language 1Mtokens]
    [--rows "+ CRF,+ ELMo"]

words · + character CNN · + CRF     each beside what is above it
+ TagLM                             and states of two LSTM language models, one forwards and one backwards
+ ELMo                              or a learnt mix of the layers of an ELMo

The language models are pre-trained here on WikiText-2 and the training sentences, without labels. F1 on all of
eng.testa by conlleval's rule. All budgets are in tokens and epochs, so that a busy machine gives the same figures; what
is found in FOLDER is taken, and what was begun is resumed. With --epochs 4 --fraction 0.1 about 12 minutes on one
core; with --size small --language 6Mtokens about 2 hours for the language models and 10 minutes for each row of all
labels.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lmlab import load
from lmlab.transfer.evaluation import evaluate_file
from lmlab.transfer.task_data import TaskData, open_data
from lmlab.transfer.trials import Trial, plan_trial, run_trial
from study import clock, complete, need
from transferring import Found, Results, Setup, header, interval, percent, row, summarise

DATA = Path(os.environ["LMLAB_DATA"])  # set by study where it is not
TEST = DATA / "conll2003" / "eng.testa"


class Row(NamedTuple):
    """What a row has: settings of the body and of the task, and the language models whose states it reads."""

    model: Mapping[str, Any]
    task: Mapping[str, Any]
    language: str = ""


ROWS = {
    "words": Row({"characters": "none"}, {"crf": False}),
    "+ character CNN": Row({}, {"crf": False}),
    "+ CRF": Row({}, {}),
    "+ TagLM": Row({}, {}, "lstm"),
    "+ ELMo": Row({"state_position": "bottom"}, {"state_layers": "mix"}, "elmo"),
}


def language_models(folder: Path, data: TaskData, kind: str, *, size: str, budget: str) -> list[str]:
    """Of LSTMs one for each direction, over pieces of words; one ELMo, over the letters of words."""
    text = folder / "sentences.txt"
    if not text.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        text.write_text("\n".join(" ".join(example.a) for example in data.labelled.train) + "\n", encoding="utf-8")
    values: dict[str, Any] = {
        "data": {"text": [str(DATA / "wikitext2" / "train.txt"), str(text)]},
        "model": {"kind": kind, "size": size},
        "train": {"budget": budget, "evaluations": 2},
    }
    name = f"{kind}-{size}-{budget}"
    if kind == "elmo":
        return [str(complete(values, folder / name))]
    ahead = complete({**values, "tokenizer": {"spec": "bpe:8192"}}, folder / name)
    values |= {"tokenizer": {"spec": str(ahead / "tokenizer.json")}, "objective": {"backwards": True}}
    return [str(ahead), str(complete(values, folder / f"{name}-backwards"))]


def learn(setup: Setup, data: TaskData, folder: Path, *, size: str, budget: str) -> Found:
    """Learn in a folder, or go on there, and score on the whole test file; the folder is removed."""
    model, task, kind = ROWS[setup.way]
    states = {"states": language_models(folder, data, kind, size=size, budget=budget)} if kind else {}
    trial = Trial(
        **{"origin": Path("tagger"), "limit": setup.examples, "seed": setup.seed, "epochs": setup.epochs},
        **{"model": model, "task": {**task, **states}},
    )
    output = folder / f"{setup.model}{setup.way}-{setup.examples}-{setup.epochs}-{setup.seed}".replace(" ", "-")
    result = run_trial(plan_trial(trial, data), output)
    assert result is not None
    values = evaluate_file(load(output).predictor, TEST).values
    shutil.rmtree(output)
    return Found(
        values={"f1": [values["f1"].value, values["f1"].low, values["f1"].high]},
        seconds=result.seconds,
        training=result.seconds,
        examples=result.examples,
        epochs=trial.epochs or 0.0,
        steps=result.steps,
        more={} if result.mix is None else {"mix": result.mix, "gamma": result.gamma},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/tagger"))
    parser.add_argument("--epochs", type=float, default=6, help="of all labels; of fewer up to five times as many")
    parser.add_argument("--fraction", default="1,0.1", help="fractions of the labelled sentences")
    parser.add_argument("--size", default="tiny", help="size of the language models: tiny, small, base")
    parser.add_argument("--language", default="1Mtokens", help="budget of each language model")
    parser.add_argument("--rows", default=",".join(ROWS), help="some of the rows; by default all")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--train", type=Path, default=None, help="other training sentences, for a quick look")
    arguments = parser.parse_args()
    need("conll2003")
    need("wikitext2")
    train = arguments.train or DATA / "conll2003" / "eng.train"
    data = open_data(train, valid=TEST)
    folder = arguments.folder if arguments.train is None else arguments.folder / train.stem
    results = Results(folder / "results.jsonl")
    reported = f"{arguments.epochs:g} epochs (of a tenth, five times as many), language models: {arguments.size}"
    print(f"CoNLL-2003, F1 on eng.testa, {reported}, {arguments.language}, {clock()}")
    table = []
    for fraction in map(float, arguments.fraction.split(",")):
        take = None if fraction == 1 else round(fraction * len(data.labelled.train))
        epochs = arguments.epochs * min(5.0, 1 / fraction)
        for name in arguments.rows.split(","):
            kind = ROWS[name].language
            model = f"tagger with {kind} {arguments.size} {arguments.language}" if kind else "tagger"
            usual = {"task": "conll", "model": model, "way": name, "epochs": epochs, "examples": take, "batch": 16}
            setups = [Setup(**usual, seed=seed) for seed in range(arguments.seeds)]
            made = partial(learn, data=data, folder=folder, size=arguments.size, budget=arguments.language)
            found = [results.get(setup, partial(made, setup)) for setup in setups]
            table.append((fraction, name, found))
    header("labels", "row", "F1", "95% interval", "minutes")
    for fraction, name, found in table:
        score, seconds = summarise(found), sum(each.seconds for each in found)
        row(f"{fraction:.0%}", name, percent(score.value), interval(score), f"{seconds / 60:.1f}")
    for fraction, name, found in table:
        if "mix" in found[0].more:
            fractions = " ".join(f"{each:.2f}" for each in found[0].more["mix"])
            print(f"\n{name} at {fraction:.0%}: layers {fractions}, gamma {found[0].more['gamma']:.2f}")


if __name__ == "__main__":
    main()
