"""AWD-LSTM against plain LSTMs of 2 x 200 on WikiText-2, words, at an equal budget of tokens, or of time.

python benchmarks/awd_lstm.py [FOLDER] [--budget 3epochs] [--words 929589] [--types 10000] [--rows "AWD-LSTM"]

What an AWD-LSTM is for shows when a text is read often, so --words takes that many words from the beginning of the
training text and its --types most frequent words, the rest unknown: by default as many as Penn Treebank has. With
--words 0 all of WikiText-2. The LSTM of Zaremba et al. 2014 (recipes/penn-treebank-lstm.toml) is there with its own
optimizer; the other two have the same weights, optimizer, rate and batches. Tokens and epochs give the same figures on
a busy machine, a time (15min) what each reaches in it. What is found in FOLDER is taken, and what was begun is gone on
with. About 45 minutes a row on one core for 13 epochs.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from itertools import accumulate
from pathlib import Path

from study import clock, need, perplexity, stream_nats, trained

DATA = Path(os.environ["LMLAB_DATA"])  # set by study where it is not
SAME = ("model.tied=true", "model.softmax=full", "train.batch=20", "train.rate=5e-3")
ROWS = {
    "Zaremba's small LSTM": ("penn-treebank-lstm", ()),
    "LSTM with dropout": ("wikitext2-lstm", SAME),
    "AWD-LSTM": ("wikitext2-awd-lstm", SAME[2:]),
}
SPLITS = {"train": 929_589, "valid": 73_760, "test": 82_430}
"""Words and line ends of Penn Treebank."""


def shorten(folder: Path, *, words: int, types: int) -> Path:
    """Write texts as large as Penn Treebank's into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    known: set[str] = set()
    for name, most in {**SPLITS, "train": words}.items():
        lines = [line.split() for line in (DATA / "wikitext2" / f"{name}.txt").read_text(encoding="utf-8").splitlines()]
        lines = [line for line in lines if line]
        read = accumulate(len(line) + 1 for line in lines)
        taken = [line for line, so_far in zip(lines, read, strict=True) if so_far <= most]
        if name == "train":
            counts = Counter(word for line in taken for word in line if word != "<unk>")
            known = {word for word, _ in counts.most_common(types - 2)}
        shown = [" ".join(word if word in known else "<unk>" for word in line) for line in taken]
        (folder / f"{name}.txt").write_text("\n".join(shown) + "\n", encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/awd-lstm"))
    parser.add_argument("--budget", default="3epochs", help="of each: epochs, tokens, or a time")
    parser.add_argument("--words", type=int, default=SPLITS["train"], help="of the training text; 0 for all of it")
    parser.add_argument("--types", type=int, default=10_000, help="distinct words that are kept")
    parser.add_argument("--rows", default=",".join(ROWS), help="some of the rows")
    parser.add_argument("--test", type=int, default=None, help="number of words of the test text to score")
    arguments = parser.parse_args()
    need("wikitext2")
    name = f"{arguments.words}-{arguments.types}" if arguments.words else "all"
    texts = DATA / "wikitext2"
    if arguments.words:
        texts = shorten(arguments.folder / name, words=arguments.words, types=arguments.types)
    data = [f"data.{'text' if split == 'train' else split}={texts / split}.txt" for split in SPLITS]
    table = []
    for row in arguments.rows.split(","):
        recipe, settings = ROWS[row]
        output = arguments.folder / f"{recipe}-{name}-{arguments.budget}"
        lm, corpus, seconds = trained(recipe, output, *data, *settings, f"train.budget={arguments.budget}")
        parameters = sum(parameter.numel() for parameter in lm.model.parameters())
        table.append((row, parameters, seconds, perplexity(stream_nats(lm, corpus.test, most=arguments.test))))
    reported = f"the first {arguments.test:,} words of" if arguments.test else "all of"
    text = f"{arguments.words:,} words, {arguments.types:,} types" if arguments.words else "all words"
    print(f"\nWikiText-2, {text}, {arguments.budget} of training each, {reported} the test text, {clock()}\n")
    print("| system, 2 x 200 | parameters | minutes | test perplexity |\n|---|---|---|---|")
    for row, parameters, seconds, found in table:
        print(f"| {row} | {parameters:,} | {seconds / 60:.1f} | {found:.1f} |", flush=True)


if __name__ == "__main__":
    main()
