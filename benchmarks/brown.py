"""Brown corpus: Kneser-Ney n-grams against Bengio's neural net, unmixed and mixed (Bengio et al. 2003, table 1).

    python benchmarks/brown.py [FOLDER]      about 6 CPU minutes; a second call takes the runs it finds

The vocabulary holds the words seen at least four times in the whole corpus: only so can the paper's figures be met;
with words counted in the training text alone rare test words fall together in an easily predicted <unk>. Perplexity is
given over all tokens (line ends are tokens here) and over words alone (the paper's text has no line ends).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from lmlab.decoding.interpolation import InterpolatedModel, learn_weights
from lmlab.tokenizers import train as train_tokenizer
from study import clock, need, perplexity, read_folder, stream_nats, trained

PUBLISHED = {"3-gram": 323, "4-gram": 321, "5-gram": 321, "nplm": 276, "nplm + 3-gram": 252}


def main(folder: Path) -> None:
    need("brown")
    folder.mkdir(parents=True, exist_ok=True)
    texts = [Path(os.environ["LMLAB_DATA"], "brown", f"{part}.txt").read_text() for part in ("train", "valid", "test")]
    train_tokenizer("words:min=4", texts).save(folder / "tokenizer.json")
    shared = f"tokenizer.spec={folder / 'tokenizer.json'}"
    valid, test, cost = {}, {}, {}
    for name, recipe, *settings in (
        ("3-gram", "brown-ngram", "model.order=3"),
        ("4-gram", "brown-ngram", "model.order=4"),
        ("5-gram", "brown-ngram", "model.order=5"),
        ("nplm", "brown-nplm"),
    ):
        lm, corpus, cost[name] = trained(recipe, folder / name, shared, *settings)
        valid[name], test[name] = stream_nats(lm, corpus.valid), stream_nats(lm, corpus.test)
    weights = learn_weights([valid["nplm"], valid["3-gram"]])
    mixed = "nplm + 3-gram"
    test[mixed] = InterpolatedModel([lm.model, lm.model], weights=weights).mix_nats([test["nplm"], test["3-gram"]])
    cost[mixed] = cost["nplm"] + cost["3-gram"]
    words = np.asarray(corpus.test.tokens[1:]) != corpus.tokenizer.boundary
    print(f"Brown, {clock()}: {corpus.tokenizer.vocabulary:,} types; test {len(words):,} tokens, {words.sum():,} words")
    print(f"mixture weights learnt on validation text: nplm {weights[0]:.2f}, 3-gram {weights[1]:.2f}\n")
    print("| system | perplexity of words | of all tokens | published | seconds |\n|---|---|---|---|---|")
    for name, nats in test.items():
        both = f"{perplexity(nats[words]):.1f} | {perplexity(nats):.1f}"
        print(f"| {name} | {both} | {PUBLISHED[name]} | {cost[name]:.0f} |")


if __name__ == "__main__":
    main(read_folder(__doc__, default="runs/brown"))
