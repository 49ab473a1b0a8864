"""AWD-LSTM against the plain LSTM of the same size on WikiText-2, words, at an equal budget of tokens, or of time.

python benchmarks/awd_lstm.py [FOLDER] [--budget 3epochs] [--test 50000]

Tokens and epochs give the same figures on a busy machine, a time (15min) what each reaches in it. What is found in
FOLDER is taken, and what was begun is gone on with. For a first look of about 15 minutes on one core:

python benchmarks/awd_lstm.py runs/awd-lstm --budget 1Mtokens --test 50000
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
    parser.add_argument("--budget", default="3epochs", help="of each: epochs, tokens, or a time")
    parser.add_argument("--test", type=int, default=None, help="score the first so many words of the test text")
    arguments = parser.parse_args()
    need("wikitext2")
    table = []
    for name, (recipe, settings) in ROWS.items():
        output = arguments.folder / f"{recipe}-{arguments.budget}"
        lm, corpus, seconds = trained(recipe, output, *settings, f"train.budget={arguments.budget}")
        parameters = sum(parameter.numel() for parameter in lm.model.parameters())
        table.append((name, parameters, seconds, perplexity(stream_nats(lm, corpus.test, most=arguments.test))))
    told = f"the first {arguments.test:,} words of" if arguments.test else "all of"
    print(f"\nWikiText-2, {arguments.budget} of training each, {told} the test text, {clock()}\n")
    print("| system | parameters | minutes | test perplexity |\n|---|---|---|---|")
    for name, parameters, seconds, found in table:
        print(f"| {name} | {parameters:,} | {seconds / 60:.1f} | {found:.1f} |")


if __name__ == "__main__":
    main()
