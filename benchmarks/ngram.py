"""How fast a 5-gram is estimated and scores, beside KenLM's queries on the same model in the same process.

    python benchmarks/ngram.py [--words 1000000] [--order 5] [--rounds 7]

The text is Brown and WikiText-2 from LMLAB_DATA; where they are absent, or more words are wanted than they have, words
drawn from Zipf's law, half of them depending on the word before. KenLM's estimator is no part of its Python package, so
its times are printed as they were measured separately on a machine of the same kind.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from lmlab.interop.arpa import escape, write_arpa
from lmlab.models.ngram import NGram

DATA = Path(os.environ.get("LMLAB_DATA", Path(__file__).parents[2] / "shared" / "data"))
SEPARATELY = {1_000_000: 1.9, 10_000_000: 8.9}  # seconds of KenLM's lmplz, order 5, on 2 cores


def real_lines() -> Iterator[list[str]]:
    for name in ("brown", "wikitext2"):
        for split in ("train", "valid", "test"):
            path = DATA / name / f"{split}.txt"
            if path.is_file():
                yield from (line.split() for line in path.open(encoding="utf-8") if line.strip())


def synthetic_lines(words: int, *, vocabulary: int = 50_000) -> Iterator[list[str]]:
    random = np.random.default_rng(0)
    drawn = random.zipf(1.25, words) % vocabulary
    follow = np.flatnonzero(random.random(words) < 0.5)[1:]
    drawn[follow] = (drawn[follow - 1] * 7 + random.integers(0, 20, len(follow))) % vocabulary
    for start in range(0, words, 20):
        yield [f"w{word}" for word in drawn[start : start + 20].tolist()]


def take(words: int, held_out: int) -> tuple[str, list[list[str]], list[list[str]]]:
    """Lines of about `words` words to learn from, and `held_out` more to score."""
    for source, lines in (("Brown + WikiText-2", real_lines()), ("synthetic", synthetic_lines(words + 2 * held_out))):
        parts: list[list[list[str]]] = []
        for wanted in (words, held_out):
            part: list[list[str]] = []
            have = 0
            for line in lines:
                part.append(line)
                have += len(line)
                if have >= wanted:
                    parts.append(part)
                    break
        if len(parts) == 2:
            return source, parts[0], parts[1]
    raise AssertionError("the synthetic text is long enough")


def encode(lines: list[list[str]], index: dict[str, int]) -> np.ndarray:
    unknown = index["<unk>"]
    return np.array([0, *(token for line in lines for token in (*(index.get(word, unknown) for word in line), 0))])


def interleaved(rounds: int, **tasks: Callable[[], object]) -> dict[str, float]:
    """The median time of each task, run in turns."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)

    source, train, test = take(options.words, 200_000)
    vocabulary = ["</s>", "<unk>", *dict.fromkeys(word for line in train for word in line if word != "<unk>")]
    index = {word: token for token, word in enumerate(vocabulary)}
    tokens, stream = encode(train, index), torch.from_numpy(encode(test, index))[None]
    print(f"{source}: {len(tokens):,} tokens with sentence ends, {len(vocabulary):,} types; one thread")

    config = NGram.Config(vocabulary=len(vocabulary), order=options.order)
    fitted = interleaved(min(options.rounds, 5), fit=lambda: NGram.fit(tokens, config=config))["fit"]
    model = NGram.fit(tokens, config=config)
    print(f"estimate, order {options.order}: {fitted:.2f} s, {model.parameters:,} stored numbers")
    for words, seconds in SEPARATELY.items():
        print(f"  (KenLM estimates order 5 of {words:,} words in {seconds} s, measured separately)")

    def ours() -> torch.Tensor:
        return model.score(stream[:, :-1], stream[:, 1:], model.start(1))[0]

    nats = ours()[0]
    print(f"held-out perplexity {math.exp(nats.double().mean()):.1f} over {len(nats):,} tokens")
    try:
        import kenlm
    except ImportError:
        seconds = interleaved(options.rounds, ours=ours)["ours"]
        print(f"scoring: {len(nats) / seconds:,.0f} tokens/s; KenLM is not installed (pip install kenlm)")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        write_arpa(model, path, words=vocabulary)
        theirs = kenlm.Model(str(path))
    sentences = [" ".join(escape(word) if word in index else "<unk>" for word in line) for line in test]
    logs = [log for sentence in sentences for log, _, _ in theirs.full_scores(sentence)]
    apart = np.abs(np.array(logs) + nats.double().numpy() / math.log(10)).max()
    print(f"agreement with KenLM on our ARPA file: largest difference of log10 p {apart:.1e}")
    medians = interleaved(options.rounds, ours=ours, kenlm=lambda: [theirs.score(sentence) for sentence in sentences])
    for name, seconds in medians.items():
        print(f"scoring, {name}: {len(nats) / seconds:,.0f} tokens/s")
    print(f"ratio ours / KenLM: {medians['kenlm'] / medians['ours']:.2f}")


if __name__ == "__main__":
    main()
