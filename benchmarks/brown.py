"""Brown corpus: Kneser-Ney n-grams against Bengio's neural net, unmixed and mixed (Bengio et al. 2003, table 1).

python benchmarks/brown.py [FOLDER]      about 15 minutes on 2 cores; a second call takes the runs it finds
"""

from __future__ import annotations

import sys
from pathlib import Path

from lmlab.decoding.mixture import Mixture, learn_weights
from study import clock, need, perplexity, stream_nats, trained

PUBLISHED = {"3-gram": 323, "4-gram": 321, "5-gram": 321, "nplm": 276, "nplm + 3-gram": 252}


def main(folder: Path) -> None:
    need("brown")
    rows: dict[str, tuple[float, float]] = {}
    valid, test = {}, {}
    for order in (3, 4, 5):
        name = f"{order}-gram"
        lm, corpus, seconds = trained("brown-ngram", folder / name, f"model.order={order}")
        valid[name], test[name] = stream_nats(lm, corpus.valid), stream_nats(lm, corpus.test)
        rows[name] = perplexity(test[name]), seconds
    lm, corpus, seconds = trained("brown-nplm", folder / "nplm")
    valid["nplm"], test["nplm"] = stream_nats(lm, corpus.valid), stream_nats(lm, corpus.test)
    rows["nplm"] = perplexity(test["nplm"]), seconds
    weights = learn_weights([valid["nplm"], valid["3-gram"]])
    mixture = Mixture([lm.model, lm.model], weights=weights)
    rows["nplm + 3-gram"] = perplexity(mixture.mix_nats([test["nplm"], test["3-gram"]])), seconds
    print(f"Brown, {clock()}: vocabulary {corpus.tokenizer.vocabulary:,}, test {len(corpus.test.tokens) - 1:,} tokens")
    print(f"mixture weights learnt on validation: nplm {weights[0]:.2f}, 3-gram {weights[1]:.2f}\n")
    print("| system | test perplexity | published | seconds |\n|---|---|---|---|")
    for name, (value, seconds) in rows.items():
        print(f"| {name} | {value:.1f} | {PUBLISHED[name]} | {seconds:.0f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/brown"))
