"""Pre-training models that fill masks, small, on a CPU: how far each comes, and how soon.

    python benchmarks/masked_pretraining.py [--text wikitext2] [--budget 1e13flops] [--systems bert albert electra]

BERT (next sentence prediction), RoBERTa (full sentences), ALBERT (sentence order) and ELECTRA (replaced tokens) are
trained on the articles of WikiText-2, or on the built-in corpus, with the same budget each. Printed as Markdown, over
the run: the perplexity and accuracy of masks in the validation text against a unigram model, the accuracy on pairs
against chance, that of the detector against the majority class (every token is original). A second call takes the
runs that it finds in the folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from lmlab.cli.progress import TrainingDisplay
from lmlab.runs import run
from lmlab.runs.held_out import reopen_corpus
from lmlab.runs.jobs import Silent
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import read_record
from lmlab.tokenizers.engines import BOUNDARY
from lmlab.tokenizers.pieces import describe_pieces
from study import clock, need

SYSTEMS = ("bert", "roberta", "albert", "electra")
TITLE = re.compile(r"^ = [^=\n].*[^=\n] = ?$", re.MULTILINE)
SETTINGS: dict[str, Any] = {"evaluations": 8, "evaluation_tokens": 131072}


def unigram_nats(seen: Any, scored: Any, *, special: Any) -> float:
    """Nats per token of one text under the counts of another, one added to each; special tokens do not count."""
    counts = np.bincount(seen, minlength=len(special))[~special] + 1
    wanted = np.bincount(scored, minlength=len(special))[~special]
    return float(math.log(counts.sum()) - (wanted * np.log(counts)).sum() / wanted.sum())


def write_articles(folder: Path) -> dict[str, Any]:
    """WikiText-2 with a line between its articles, and how to read it."""
    need("wikitext2")
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid"):
        text = (Path(os.environ["LMLAB_DATA"]) / "wikitext2" / f"{part}.txt").read_text(encoding="utf-8")
        separated = TITLE.sub(lambda title: f"{BOUNDARY}\n{title[0]}", text)
        (folder / f"{part}.txt").write_text(separated, encoding="utf-8")
    return {"text": str(folder / "train.txt"), "valid": str(folder / "valid.txt"), "documents": "endoftext"}


def unigram_perplexity(corpus: Any) -> float:
    """The perplexity of the validation tokens under the counts of the training tokens, one added to each."""
    text = ~describe_pieces(corpus.tokenizer).special
    counts = np.bincount(corpus.train.tokens, minlength=len(text))[text] + 1
    held_out = np.bincount(corpus.valid.tokens, minlength=len(text))[text]
    return math.exp(math.log(counts.sum()) - (held_out * np.log(counts)).sum() / held_out.sum())


def train(
    kind: str, data: dict[str, Any], output: Path, arguments: argparse.Namespace
) -> tuple[list[dict[str, Any]], Any]:
    """The validations of a run, made now or taken from an earlier call, and its corpus."""
    recipe = make_recipe(
        {
            "data": data,
            "model": {"kind": kind, "size": arguments.size},
            "train": {**SETTINGS, "budget": arguments.budget},
        }
    )
    if not (output / "README.md").is_file():
        with TrainingDisplay() as display:
            if (output / "recipe.json").is_file():
                run.resume(output, reporter=display)
            else:
                run.start(recipe, output, reporter=display)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    corpus = reopen_corpus(read_record(output), output, Silent())
    return [line for line in lines if "valid_loss" in line], corpus


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/masked"))
    parser.add_argument("--text", choices=["wikitext2", "builtin"], default="wikitext2")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--size", default="tiny", help="a preset of every model")
    parser.add_argument("--budget", default="1e13flops")
    arguments = parser.parse_args()
    folder = arguments.folder / arguments.text
    data = write_articles(folder / "articles") if arguments.text == "wikitext2" else {"text": "builtin"}
    print(f"{arguments.text}, {arguments.size}, {arguments.budget} each, {clock()}\n")
    print("| system | CPU s | tokens | perplexity of masks | of a unigram | accuracy | pairs | detector | majority |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in arguments.systems:
        lines, corpus = train(kind, data, folder / kind, arguments)
        unigram = unigram_perplexity(corpus)
        for line in lines:
            cells = [
                kind,
                f"{line['cost']['cpu_seconds']:.0f}",
                f"{line['tokens']:,}",
                f"{math.exp(line['valid_loss']):.1f}",
                f"{unigram:.1f}",
                percent(line.get("valid_accuracy")),
                percent(line.get("valid_pair_accuracy")),
                percent(line.get("valid_detection_accuracy")),
                percent(line.get("valid_original_share")),
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
