"""Pre-training models that fill masks, small, on a CPU: how far each comes, and how soon.

    python benchmarks/masked_pretraining.py [--text wikitext2] [--budget 1e13flops] [--systems bert albert electra]
    python benchmarks/masked_pretraining.py --text books --systems bert --schedules none 16:0.6 16,64:0.6

BERT (next sentence prediction), RoBERTa (full sentences), ALBERT (sentence order) and ELECTRA (replaced tokens) are
trained on the articles of WikiText-2, on the books, or on the built-in corpus, with the same budget each. Printed as
Markdown, over the run: the perplexity and accuracy of masks in the validation text against a unigram model, the
accuracy on pairs against chance, that of the detector against the majority class (every token is original). With
`--schedules`, each system is trained once for each schedule of row lengths, such as 16,64:0.6 (rows of 16, then of 64
tokens for 60% of the steps, then of the whole window); validation always has rows of the whole window. The last column
is the largest mean attention of a head to the token before or after. A second call takes the runs that it finds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lmlab import load
from lmlab.cli.progress import TrainingDisplay
from lmlab.runs import run
from lmlab.runs.held_out import reopen_corpus
from lmlab.runs.jobs import Silent
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import read_record
from lmlab.tokenizers.engines import BOUNDARY
from lmlab.tokenizers.pieces import describe_pieces
from study import clock, need, unpack_books

SYSTEMS = ("bert", "roberta", "albert", "electra")
ROWS = 32
"""Texts over which attention is averaged."""
USUAL = "default"
"""The schedule that is the system's own."""
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


def write_books(folder: Path) -> dict[str, Any]:
    """The books, unpacked, and how to read them."""
    unpack_books(folder)
    return {"text": str(folder / "train.txt"), "valid": str(folder / "valid.txt"), "documents": "blank"}


def schedule_settings(name: str) -> dict[str, Any]:
    """The settings of the objective for a schedule such as 16,64:0.6."""
    if name in (USUAL, "none"):
        return {} if name == USUAL else {"short": None}
    lengths, _, fraction = name.partition(":")
    return {"short": [int(length) for length in lengths.split(",")], "short_fraction": float(fraction)}


def neighbour_attention(path: Path, corpus: Any) -> float:
    """The largest mean attention that a head of a run pays to the token before, or to the one after."""
    lm, means = load(path), []
    size = int(lm.model.config.window) // 2  # leaves room for the special tokens
    for start in np.linspace(0, len(corpus.valid.tokens) - size, ROWS).astype(int):
        text = lm.tokenizer.decode(corpus.valid.tokens[start : start + size])
        means.append([(head.previous, head.following) for head in lm.attention(text).heads()])
    return float(np.mean(means, axis=0).max())


def unigram_perplexity(corpus: Any) -> float:
    """The perplexity of the validation tokens under the counts of the training tokens, one added to each."""
    text = ~describe_pieces(corpus.tokenizer).special
    counts = np.bincount(corpus.train.tokens, minlength=len(text))[text] + 1
    held_out = np.bincount(corpus.valid.tokens, minlength=len(text))[text]
    return math.exp(math.log(counts.sum()) - (held_out * np.log(counts)).sum() / held_out.sum())


def train(
    kind: str, data: dict[str, Any], output: Path, arguments: argparse.Namespace, schedule: str = USUAL
) -> tuple[list[dict[str, Any]], Any]:
    """The validations of a run, made now or taken from an earlier call, and its corpus."""
    recipe = make_recipe(
        {
            "data": data,
            "model": {"kind": kind, "size": arguments.size},
            "objective": schedule_settings(schedule),
            "tokenizer": {} if arguments.tokenizer is None else {"spec": arguments.tokenizer},
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
    parser.add_argument("--text", choices=["wikitext2", "books", "builtin"], default="wikitext2")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--size", default="tiny", help="a preset of every model")
    parser.add_argument("--budget", default="1e13flops")
    parser.add_argument("--tokenizer", help="a tokenizer for all; by default each system's own")
    parser.add_argument("--schedules", nargs="+", default=[USUAL], help="lengths:fraction, none, or default")
    arguments = parser.parse_args()
    folder = arguments.folder / arguments.text
    data = open_text(arguments.text, folder)
    print(f"{arguments.text}, {arguments.size}, {arguments.budget} each, {clock()}\n")
    columns = ("system", "rows", "CPU s", "tokens", "perplexity of masks", "of a unigram", "accuracy", "pairs")
    print(f"| {' | '.join((*columns, 'detector', 'majority', 'attention to a neighbour'))} |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for kind, schedule in product(arguments.systems, arguments.schedules):
        output = folder / (kind if schedule == USUAL else f"{kind}-{schedule.replace(':', '-')}")
        lines, corpus = train(kind, data, output, arguments, schedule)
        unigram, attention = unigram_perplexity(corpus), neighbour_attention(output, corpus)
        for line in lines:
            cells = [
                kind,
                schedule,
                f"{line['cost']['cpu_seconds']:.0f}",
                f"{line['tokens']:,}",
                f"{math.exp(line['valid_loss']):.1f}",
                f"{unigram:.1f}",
                percent(line.get("valid_accuracy")),
                percent(line.get("valid_pair_accuracy")),
                percent(line.get("valid_detection_accuracy")),
                percent(line.get("valid_original_share")),
                percent(attention) if line is lines[-1] else "",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


def open_text(name: str, folder: Path) -> dict[str, Any]:
    """The settings that read one of the texts, which is written into the folder first."""
    if name == "builtin":
        return {"text": "builtin"}
    return write_articles(folder / "articles") if name == "wikitext2" else write_books(folder / "books")


if __name__ == "__main__":
    main()
