"""The tagger on CoNLL-2003, addition by addition, with all labels and with a tenth of them.

python benchmarks/tagger.py [FOLDER] [--epochs 6] [--share 1,0.1] [--language 20min]

Rows: words · + character CNN · + CRF · + TagLM (states of two LSTM language models, forwards and backwards, pre-trained
here on WikiText-2 and the training sentences, without labels). F1 on all of eng.testa by conlleval's rule. About 15
minutes for each row of all labels and 20 for each language model, on 2 cores; a second call takes what it finds.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from lmlab import load, run
from lmlab.recipe import make_recipe
from lmlab.transfer.evaluation import evaluate_file
from lmlab.transfer.finetune import open_data
from lmlab.transfer.trials import TaskData, Trial, carry_out
from study import clock, need

DATA = Path(os.environ["LMLAB_DATA"])  # set by study where it is not


def language_model(folder: Path, data: TaskData, budget: str, *, backwards: bool) -> Path:
    """An LSTM of the unlabelled text, over pieces of words."""
    path = folder / ("lm-backwards" if backwards else "lm")
    text = folder / "sentences.txt"
    if not text.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        text.write_text("\n".join(" ".join(example.a) for example in data.labelled.train) + "\n", encoding="utf-8")
    if not (path / "README.md").is_file():
        recipe = make_recipe(
            {
                "data": {"text": [str(DATA / "wikitext2" / "train.txt"), str(text)]},
                "tokenizer": {"spec": str(folder / "lm" / "tokenizer.json") if backwards else "bpe:8192"},
                "model": {"kind": "lstm", "size": "base"},
                "objective": {"backwards": backwards},
                "train": {"budget": budget},
            }
        )
        run.start(recipe, path, overwrite=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/tagger"))
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--share", default="1,0.1", help="shares of the labelled sentences")
    parser.add_argument("--language", default="20min", help="budget of each language model")
    parser.add_argument("--train", type=Path, default=None, help="other training sentences, for a quick look")
    arguments = parser.parse_args()
    need("conll2003")
    need("wikitext2")
    test = DATA / "conll2003" / "eng.testa"
    data, _ = open_data(arguments.train or DATA / "conll2003" / "eng.train", valid=test)
    print(
        f"CoNLL-2003, F1 on eng.testa, {arguments.epochs:g} epochs (of a tenth, ten times as many steps), {clock()}\n"
    )
    print("| labels | row | F1 | 95% interval | minutes |\n|---|---|---|---|---|")
    states = [str(language_model(arguments.folder, data, arguments.language, backwards=way)) for way in (False, True)]
    rows: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "words": ({"characters": "none"}, {"crf": False}),
        "+ character CNN": ({}, {"crf": False}),
        "+ CRF": ({}, {}),
        "+ TagLM": ({}, {"states": states}),
    }
    for share in map(float, arguments.share.split(",")):
        take = None if share == 1 else round(share * len(data.labelled.train))
        for name, (model, task) in rows.items():
            path = arguments.folder / f"{name.strip('+ ').replace(' ', '-')}-{share:g}"
            epochs = arguments.epochs * min(5.0, 1 / share)
            trial = Trial(origin=Path("tagger"), take=take, epochs=epochs, model=model, task=task)
            result = carry_out(trial, data, path)
            assert result is not None
            f1 = evaluate_file(load(path).predictor, test).values["f1"]
            interval = f"{100 * (f1.low or 0):.1f} to {100 * (f1.high or 0):.1f}"
            print(
                f"| {share:.0%} | {name} | {100 * (f1.value or 0):.1f} | {interval} | {result.seconds / 60:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
