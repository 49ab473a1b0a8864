"""How well can replaced tokens be detected at all? A detector that counts pairs of tokens, against ELECTRA's task.

    python benchmarks/detector.py [--text builtin]      seconds; nothing but a tiny net over six numbers is trained

Of the validation text 15% of the tokens are replaced by draws from the unigram distribution, which is what a generator
draws before it has learnt to look around. For each token a Kneser-Ney bigram model of the training text tells how well
it fits the tokens before and after; a net with 32 hidden units, trained on the first half of the validation text, makes
a verdict of that, measured on the second half. Printed beside the majority class: what ELECTRA has to beat.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from lmlab.data import prepare
from lmlab.runs.recipe import make_recipe
from masked_pretraining import write_articles
from study import clock

Integers = NDArray[np.int64]
DISCOUNT = 0.75
SHARE = 0.15
MOST = 200_000


class Bigrams:
    """P(b | a) by interpolated Kneser-Ney, and the unigram distribution."""

    def __init__(self, tokens: Integers, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.counts = np.bincount(tokens, minlength=vocabulary)
        self.unigram = (self.counts + 0.1) / (self.counts + 0.1).sum()
        self.pairs, self.seen = np.unique(tokens[:-1] * vocabulary + tokens[1:], return_counts=True)
        self.followers = np.bincount(self.pairs // vocabulary, minlength=vocabulary)
        continued = np.bincount(self.pairs % vocabulary, minlength=vocabulary) + 0.05
        self.continuation = continued / continued.sum()

    def fit(self, a: Integers, b: Integers) -> NDArray[np.float64]:
        """log P(b | a) / P(b)."""
        keys = a * self.vocabulary + b
        at = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        seen = np.where(self.pairs[at] == keys, self.seen[at], 0)
        before = np.maximum(self.counts[a], 1)
        left = np.where(self.counts[a] > 0, DISCOUNT * self.followers[a] / before, 1.0)
        probability = np.maximum(seen - DISCOUNT, 0) / before + left * self.continuation[b]
        return np.log(probability / self.unigram[b])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", choices=["wikitext2", "builtin"], default="builtin")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = write_articles(Path(folder)) if arguments.text == "wikitext2" else {"text": "builtin"}
        recipe = make_recipe({"data": data, "model": {"kind": "electra"}, "train": {"budget": "1steps"}})
        corpus = prepare(recipe.data, processor=recipe.tokenizer.spec)
    train, valid = (np.asarray(split.tokens).astype(np.int64) for split in (corpus.train, corpus.valid))
    bigrams = Bigrams(train, corpus.tokenizer.vocabulary)
    generator = np.random.default_rng(0)
    tokens = valid[:MOST].copy()
    chosen = generator.random(len(tokens)) < SHARE
    tokens[chosen] = generator.choice(bigrams.vocabulary, size=chosen.sum(), p=bigrams.unigram)
    replaced = (tokens != valid[:MOST])[1:-1]

    before, after = bigrams.fit(tokens[:-2], tokens[1:-1]), bigrams.fit(tokens[1:-1], tokens[2:])
    rarity = np.log(bigrams.unigram[tokens[1:-1]])
    features = np.stack([before, after, np.minimum(before, 0), np.minimum(after, 0), rarity, before * after], axis=1)
    x = torch.from_numpy((features - features.mean(0)) / features.std(0)).float()
    y, half = torch.from_numpy(replaced).float(), len(replaced) // 2
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(x.shape[1], 32), nn.Tanh(), nn.Linear(32, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(net(x[:half]), y[:half]).backward()
        optimizer.step()
    with torch.no_grad():
        scores = net(x[half:])
    truth = y[half:]
    loss = F.binary_cross_entropy_with_logits(scores, truth).item()
    fraction = truth.mean().item()
    constant = -fraction * math.log(fraction) - (1 - fraction) * math.log(1 - fraction)
    found = (scores > 0) == truth.bool()
    print(f"{arguments.text}, {clock()}: {len(train):,} tokens to count, {len(truth):,} to judge")
    print(f"accuracy {found.float().mean():.1%} (majority {1 - fraction:.1%})")
    print(f"recall {found[truth.bool()].float().mean():.1%}")
    print(f"nats {loss:.3f} (constant {constant:.3f}): {loss / constant:.1%} of it")


if __name__ == "__main__":
    main()
