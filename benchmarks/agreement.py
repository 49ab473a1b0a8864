"""What do five families know of grammar after the same budget? BLiMP, agreement and probes, beside published figures.

    python benchmarks/agreement.py [FOLDER] [--budget 2e13flops] [--limit 200] [--probe-sentences 600]

n-gram, LSTM, GPT-2, Transformer-XL and BERT are trained on WikiText-2 (2 million words) with the same subwords and the
same FLOPs (an n-gram counts the text once); a second call takes the runs that it finds. BLiMP is judged by whole
sentences, `limit` pairs of each of the 67 paradigms; Gulordava's items, and `limit` of Linzen's for each number of
attractors, by the verb; BERT by pseudo-log-likelihood. The text is tokenised, so sentences are given with spaces
around punctuation. Probes read parts of speech and number off each layer (UD English EWT, dev to learn from, test to be
judged by) with selectivity.
Printed as Markdown; about 30 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from lmlab import load
from lmlab.analysis.minimal_pairs import PUBLISHED, MinimalPairs, compare_pairs
from lmlab.analysis.pair_sets import Pair, PairSet, read_pairs
from lmlab.analysis.probing import probe
from lmlab.analysis.probing_sets import ask
from lmlab.analysis.readers import read_treebank
from lmlab.cli.progress import TrainingDisplay
from lmlab.language_model import LanguageModel
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from study import clock, need

SYSTEMS = {"ngram": "5-gram", "lstm": "LSTM", "gpt2": "GPT-2 large", "transformer-xl": "Transformer-XL", "bert": ""}
"""Ours, and the published system that each stands beside."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/agreement"))
    parser.add_argument("--budget", default="2e13flops")
    parser.add_argument("--size", default="small")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--probe-sentences", type=int, default=600)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    given = parser.parse_args()
    for name in ("wikitext2", "blimp", "colorlessgreen", "ud_english_ewt"):
        need(name)
    data = Path(os.environ["LMLAB_DATA"])
    models = {name: trained(name, given.folder / name, size=given.size, budget=given.budget) for name in given.systems}
    blimp = first_of_each(read_pairs(data / "blimp"), given.limit)
    linzen = read_pairs(data / "colorlessgreen" / "linzen_testset" / "subj_agr_filtered.gold")
    sets = {
        "BLiMP": PairSet("BLiMP", [spaced(pair) for pair in blimp]),
        "Gulordava": read_pairs(data / "colorlessgreen" / "English" / "generated.gold"),
        "Linzen": PairSet("Linzen", first_of_each(linzen, given.limit)),
    }
    print(f"\n{clock()}, WikiText-2, {given.size}, {given.budget}; {len(blimp):,} pairs of BLiMP\n")
    found = {name: {key: compare_pairs(lm, pairs) for key, pairs in sets.items()} for name, lm in models.items()}
    print_pairs(found)
    print_probes(models, data / "ud_english_ewt", sentences=given.probe_sentences)


def trained(kind: str, output: Path, *, size: str, budget: str) -> LanguageModel:
    """A run of a system, trained now or found."""
    if not (output / "README.md").is_file():
        values = {
            "model": {"kind": kind, "size": size},
            "tokenizer": {"spec": "wordpiece:8000" if kind == "bert" else "bpe:8000"},
            "data": {"text": "$LMLAB_DATA/wikitext2/train.txt", "documents": "lines"},
            "train": {} if kind == "ngram" else {"budget": budget},
        }
        with TrainingDisplay() as display:
            run.start(make_recipe(values), output, reporter=display)
    return load(output)


def first_of_each(pairs: PairSet, limit: int) -> list[Pair]:
    """The first pairs of each paradigm."""
    seen: dict[tuple[str, str], int] = {}
    kept = []
    for pair in pairs.pairs:
        key = (pair.phenomenon, pair.paradigm)
        seen[key] = seen.get(key, 0) + 1
        kept += [pair] * (seen[key] <= limit)
    return kept


def spaced(pair: Pair) -> Pair:
    """As the text is written: spaces around punctuation, n't and 's apart."""
    good, bad = (re.sub(r"n't\b", " n't", re.sub(r"('s|[.,?!;])", r" \1", text)) for text in (pair.good, pair.bad))
    return Pair(good, bad, pair.phenomenon, pair.paradigm)


def print_pairs(found: dict[str, dict[str, MinimalPairs]]) -> None:
    """One table: phenomena in rows, systems in columns, published figures in brackets."""
    print("| | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
    for key in ("BLiMP", "Gulordava", "Linzen"):
        phenomena = ["", *(group.phenomenon for group in next(iter(found.values()))[key].groups())]
        for phenomenon in phenomena:
            cells = []
            for name, results in found.items():
                groups = {group.phenomenon: group for group in results[key].groups()}
                value, low, high = results[key].accuracy if not phenomenon else groups[phenomenon][2:5]
                published = PUBLISHED.get(key, {}).get(phenomenon, {}).get(SYSTEMS[name].removesuffix(" "))
                beside = f" ({100 * published:.1f})" if published is not None else ""
                cells.append(f"{100 * value:.1f} [{100 * (low or 0):.1f}, {100 * (high or 0):.1f}]{beside}")
            print(f"| {key}{': ' + phenomenon if phenomenon else ''} | " + " | ".join(cells) + " |")
    print("\nIn brackets after each: the 95% interval; in parentheses the published figure of the nearest system.")


def print_probes(models: dict[str, LanguageModel], folder: Path, *, sentences: int) -> None:
    """Accuracy, selectivity and the random twin by layer."""
    learn, test = (read_treebank(folder / f"en_ewt-ud-{split}.conllu")[:sentences] for split in ("dev", "test"))
    print("\n| probe | system | layer | accuracy | control | selectivity | random |\n" + "|---" * 7 + "|")
    for what in ("pos", "number"):
        for name, lm in models.items():
            if name == "ngram":
                continue
            result = probe(lm, ask(learn, what), ask(test, what), name=what)
            for each in result.layers:
                fractions = [each.accuracy, each.control or 0.0, each.selectivity or 0.0, each.random or 0.0]
                reported = " | ".join(f"{100 * fraction:.1f}" for fraction in fractions)
                print(f"| {what} | {name} | {each.layer} | {reported} |")


if __name__ == "__main__":
    main()
