"""word2vec on WikiText-2 against gensim in the same run: words per second, and what the vectors know.

python benchmarks/word2vec.py [--epochs 5] [--threads 2] [--text FILE]

Both: skip-gram, 100 dimensions, 5 words to each side, 5 negatives, threshold 1e-3, words seen 5 times. Without gensim
(pip install gensim) only lmlab's rows are printed, and that is said. About 5 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lmlab import run
from lmlab.analysis.neighbours import WordVectors, read_analogies, read_pairs, score_analogies, similarity
from lmlab.interop.word_vector_runs import vectors_of
from lmlab.recipe import make_recipe
from study import clock, need

DATA = Path(os.environ["LMLAB_DATA"])  # set by study where it is not


def judge(vectors: WordVectors) -> str:
    """Analogies answered rightly, and the correlation with people's judgements, of what is known."""
    kinds = score_analogies(vectors, read_analogies(DATA / "analogies" / "questions-words.txt")).values()
    right, asked = sum(each.right for each in kinds), sum(each.asked for each in kinds)
    said = similarity(vectors, read_pairs(DATA / "analogies" / "wordsim353.tsv"))
    return f"{right / max(1, asked):.1%} of {asked:,} | {said.spearman or float('nan'):.3f} of {said.asked}"


def ours(text: Path, epochs: float, variant: str) -> tuple[WordVectors, float, int]:
    recipe = make_recipe(
        {
            "data": {"text": str(text), "split": [0.99, 0.01, 0.0]},
            "tokenizer": {"spec": "words:min=5"},
            "model": {"kind": "word2vec", "size": "small"},
            "objective": {"variant": variant},
            "train": {"budget": f"{epochs}epochs", "evaluations": 1},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        outcome = run.start(recipe, Path(folder) / "run")
        return vectors_of(Path(folder) / "run"), outcome.progress.seconds, outcome.progress.tokens


def theirs(text: Path, epochs: int, threads: int, variant: str) -> tuple[WordVectors, float, int] | None:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        return None
    sentences = [line.split() for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    model = Word2Vec(
        vector_size=100, window=5, negative=5, sample=1e-3, min_count=5, workers=threads, sg=variant == "skip-gram"
    )
    model.build_vocab(sentences)
    begin = time.perf_counter()
    model.train(sentences, total_examples=len(sentences), epochs=epochs)
    seconds = time.perf_counter() - begin
    found = WordVectors(list(model.wv.index_to_key), np.asarray(model.wv.vectors, np.float32))
    return found, seconds, epochs * sum(map(len, sentences))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text", type=Path, default=None)
    arguments = parser.parse_args()
    need("analogies")
    if arguments.text is None:
        need("wikitext2")
    torch.set_num_threads(arguments.threads)
    text = arguments.text or DATA / "wikitext2" / "train.txt"
    print(f"word2vec, {arguments.epochs} epochs of {text.name}, {arguments.threads} threads, {clock()}\n")
    print("| system | words/s | analogies | WordSim-353 |\n|---|---|---|---|")
    for variant in ("skip-gram", "cbow"):
        for name, found in (
            ("lmlab", ours(text, arguments.epochs, variant)),
            ("gensim", theirs(text, arguments.epochs, arguments.threads, variant)),
        ):
            if found is None:
                print(f"| {name} {variant} | not installed: pip install gensim | | |")
                continue
            vectors, seconds, words = found
            print(f"| {name} {variant} | {words / seconds:,.0f} | {judge(vectors)} |", flush=True)


if __name__ == "__main__":
    main()
