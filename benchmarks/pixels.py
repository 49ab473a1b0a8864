"""Pictures as pixels at equal FLOPs: bits per dimension on MNIST of an n-gram, LSTM, GPT-2 and Transformer-XL.

The digits are 14 × 14 pixels in four grey levels; the systems have the size `tiny`. GPT-2 reads one whole picture
(197 tokens), Transformer-XL 64 tokens and a memory of 133, the LSTM carries its state, and the n-gram of order 5 is
counted over all training pictures. Scores are exact, by the chain rule, on the first 1,000 test pictures. Samples and
completions of half pictures are drawn for each system.

    python benchmarks/pixels.py [FOLDER] [--scale 0.1]
"""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmlab.decoding.sampling import Sampling
from lmlab.pages.figures.picture_grid import save_grid
from lmlab.runs.held_out import held_out_items
from sequence_study import Trained, print_ranking, train_and_score
from study import need

SIDE, LEVELS, FLOPS, TESTED = 14, 4, 1e12, 1000
SYSTEMS: dict[str, dict[str, Any]] = {
    "ngram": {},
    "lstm": {},
    "gpt2": {},
    "transformer-xl": {"model.memory": 133},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/pixels"))
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the budget")
    options = parser.parse_args()
    need("mnist")
    print(f"\n## MNIST, {SIDE} × {SIDE} pixels, {LEVELS} levels, {options.scale * FLOPS:.2g} FLOPs each", flush=True)
    runs: dict[str, Trained] = {}
    for system, settings in SYSTEMS.items():
        runs[system] = train_and_score(
            system,
            Path(os.environ["LMLAB_DATA"]) / "mnist",
            options.folder,
            tokenizer=f"pixels:{LEVELS}",
            budget=f"{options.scale * FLOPS}flops",
            settings={"data.size": SIDE, **settings},
            limit=TESTED,
        )
        draw(runs[system], options.folder / f"{system}.png")
    sizes = [float(SIDE * SIDE)] * len(runs["ngram"].nats)
    print_ranking(runs, sizes, unit="bits per dimension", factor=1 / math.log(2))
    print(f"uniform: {math.log2(LEVELS):.4f}; samples and completions: {options.folder}/*.png")


def draw(run: Trained, path: Path) -> None:
    """Draw eight samples, and four half pictures with six completions each."""
    painter = run.model.painter
    rows = [painter.draw(count=8, sampling=Sampling(seed=0))]
    for number, ids in enumerate(held_out_items(run.path, 4)):
        picture = painter.pixels.decode(ids.tolist())
        made = painter.draw(picture, count=6, sampling=replace(Sampling(), seed=number))
        rows.append([picture, painter.hide(picture), *made])
    save_grid(rows, path)


if __name__ == "__main__":
    main()
