"""word2vec on WikiText-2 against gensim in the same run: words per second, and what the vectors know.

python benchmarks/word2vec.py [--epochs 5] [--threads 1] [--seeds 1] [--precision auto] [--batch 16] [--gensim FOLDER]

Both: skip-gram and CBOW, 100 dimensions, 5 words to each side, 5 negatives, threshold 1e-3, words seen 5 times. gensim
updates by SGD (0.025 down to 0) pair by pair, lmlab by Adagrad (0.1 down to 0) in batches of 2,048 words. Words per
second of the clock and of the processor: the second is fair on a busy machine too. Without gensim (pip install gensim,
or pip install --target FOLDER and --gensim FOLDER) only lmlab's rows are printed, with a note. About 2 minutes for
each seed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from lmlab.analysis.neighbours import WordVectors, read_analogies, read_pairs, score_analogies, similarity
from lmlab.interop.word_vector_runs import vectors_of
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from study import clock, need

DATA = Path(os.environ["LMLAB_DATA"])  # set by study where it is not


class Trained(NamedTuple):
    vectors: WordVectors
    words: int
    seconds: float
    processor: float


class Judged(NamedTuple):
    """Analogies answered rightly, and the correlation with people's judgements, of what is known."""

    analogies: float
    asked: int
    spearman: float
    pairs: int


def judge(vectors: WordVectors) -> Judged:
    kinds = score_analogies(vectors, read_analogies(DATA / "analogies" / "questions-words.txt")).values()
    right, asked = sum(each.right for each in kinds), sum(each.asked for each in kinds)
    said = similarity(vectors, read_pairs(DATA / "analogies" / "wordsim353.tsv"))
    return Judged(right / max(1, asked), asked, said.spearman or float("nan"), said.asked)


def ours(text: Path, epochs: int, variant: str, seed: int, settings: dict[str, Any]) -> Trained:
    recipe = make_recipe(
        {
            "data": {"text": str(text), "split": [0.99, 0.01, 0.0]},
            "tokenizer": {"spec": "words:min=5"},
            "model": {"kind": "word2vec", "size": "small"},
            "objective": {"variant": variant},
            "train": {"budget": f"{epochs}epochs", "evaluations": 1, "seed": seed, **settings},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        used = time.process_time()
        progress = run.start(recipe, Path(folder) / "run").progress
        used = time.process_time() - used  # with reading the text, which is little
        return Trained(vectors_of(Path(folder) / "run"), progress.tokens, progress.seconds, used)


def theirs(text: Path, epochs: int, threads: int, variant: str, seed: int) -> Trained | None:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        return None
    sentences = [line.split() for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    skips = variant == "skip-gram"
    usual = {"vector_size": 100, "window": 5, "negative": 5, "sample": 1e-3, "min_count": 5}
    model = Word2Vec(**usual, workers=threads, sg=skips, seed=seed + 1)
    model.build_vocab(sentences)
    begin, used = time.perf_counter(), time.process_time()
    model.train(sentences, total_examples=len(sentences), epochs=epochs)
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    found = WordVectors(list(model.wv.index_to_key), np.asarray(model.wv.vectors, np.float32))
    return Trained(found, epochs * sum(map(len, sentences)), seconds, used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--text", type=Path, default=None)
    parser.add_argument("--gensim", type=Path, default=None, help="folder that has gensim")
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16"])
    parser.add_argument("--batch", type=int, default=16, help="rows of 128 words in a batch of lmlab")
    arguments = parser.parse_args()
    settings = {"precision": arguments.precision, "batch": arguments.batch}
    need("analogies")
    if arguments.text is None:
        need("wikitext2")
    if arguments.gensim is not None:
        sys.path.append(str(arguments.gensim))
    torch.set_num_threads(arguments.threads)
    text = arguments.text or DATA / "wikitext2" / "train.txt"
    seeds = range(arguments.seeds)
    reported = f"{arguments.epochs} epochs of {text.name}, {arguments.threads} threads, mean of {arguments.seeds} seeds"
    print(f"word2vec, {reported}, {clock()}\n")
    print("| system | words/s | words/s of the processor | analogies | WordSim-353 |\n|---|---|---|---|---|")
    for variant in ("skip-gram", "cbow"):
        pairs = [
            (
                ours(text, arguments.epochs, variant, seed, settings),
                theirs(text, arguments.epochs, arguments.threads, variant, seed),
            )
            for seed in seeds
        ]
        for name, column in zip(("lmlab", "gensim"), zip(*pairs, strict=True), strict=True):
            found = [each for each in column if each is not None]
            if not found:
                print(f"| {name} {variant} | not installed: pip install gensim | | | |")
                continue
            judged = [judge(each.vectors) for each in found]
            speeds = [
                fmean(each.words / each.seconds for each in found),
                fmean(each.words / each.processor for each in found),
            ]
            right, said = fmean(each.analogies for each in judged), fmean(each.spearman for each in judged)
            quality = f"{right:.1%} of {judged[0].asked:,} | {said:.3f} of {judged[0].pairs}"
            print(f"| {name} {variant} | {speeds[0]:,.0f} | {speeds[1]:,.0f} | {quality} |", flush=True)


if __name__ == "__main__":
    main()
