"""WikiText-2, words: the 5-gram in seconds, and an LSTM of 2 x 200 units clearly below it in a bounded time.

python benchmarks/wikitext2.py [FOLDER]      about 25 minutes on 2 cores; a second call takes the runs it finds
"""

from __future__ import annotations

from pathlib import Path

from study import clock, need, perplexity, read_folder, stream_nats, trained


def main(folder: Path) -> None:
    need("wikitext2")
    print(f"WikiText-2, {clock()}\n\n| system | test perplexity | seconds |\n|---|---|---|")
    for name, recipe in (("5-gram, modified Kneser-Ney", "wikitext2-ngram"), ("LSTM 2 x 200", "wikitext2-lstm")):
        lm, corpus, seconds = trained(recipe, folder / recipe)
        print(f"| {name} | {perplexity(stream_nats(lm, corpus.test)):.1f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main(read_folder(__doc__, default="runs/wikitext2"))
