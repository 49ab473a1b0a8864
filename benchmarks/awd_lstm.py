"""AWD-LSTM against the plain LSTM of the same size on WikiText-2, words, at an equal budget of training time.

python benchmarks/awd_lstm.py [FOLDER] [--budget 15min]      about 40 minutes on 2 cores; what is found is taken
"""

from __future__ import annotations

import argparse
from pathlib import Path

from study import clock, need, perplexity, stream_nats, trained

ROWS = {
    "LSTM 2 x 200, tied": ("wikitext2-lstm", ("model.tied=true", "model.softmax=full")),
    "AWD-LSTM 2 x 200": ("wikitext2-awd-lstm", ()),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/awd-lstm"))
    parser.add_argument("--budget", default="15min")
    arguments = parser.parse_args()
    need("wikitext2")
    print(f"WikiText-2, {arguments.budget} of training each, {clock()}\n")
    print("| system | parameters | test perplexity |\n|---|---|---|")
    for name, (recipe, settings) in ROWS.items():
        lm, corpus, _ = trained(recipe, arguments.folder / recipe, *settings, f"train.budget={arguments.budget}")
        parameters = sum(parameter.numel() for parameter in lm.model.parameters())
        print(f"| {name} | {parameters:,} | {perplexity(stream_nats(lm, corpus.test)):.1f} |", flush=True)


if __name__ == "__main__":
    main()
