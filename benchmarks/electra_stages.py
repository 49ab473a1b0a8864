"""ELECTRA in two stages on WikiText-2: a generator alone, then a discriminator that begins with its weights.

    python benchmarks/electra_stages.py [--first 12Mtokens] [--second 3Mtokens] [--generator 0.5]

Printed, over the second stage: tokens rightly called original or replaced beside the majority class, how many of the
replaced ones are found, and the detector's nats as a fraction of those of a constant guess. A second call takes the
runs that it finds in the folder.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch

from lmlab.cli.progress import TrainingDisplay
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from masked_pretraining import SETTINGS, write_articles

MODEL = {"kind": "electra", "size": "tiny", "embedding_width": 64}


def train(values: dict[str, Any], output: Path) -> list[dict[str, Any]]:
    """The validations of a run, made now or in an earlier call."""
    if not (output / "README.md").is_file():
        with TrainingDisplay() as display:
            run.start(make_recipe(values), output, reporter=display)
    lines = map(json.loads, (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "valid_loss" in line]


def constant(fraction: float) -> float:
    """The nats of a guess that is the same for every token; a fraction of the tokens is original."""
    return -fraction * math.log(fraction) - (1 - fraction) * math.log(1 - fraction)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/electra-stages"))
    parser.add_argument("--first", default="12Mtokens", help="budget of the generator alone")
    parser.add_argument("--second", default="3Mtokens", help="budget of both parts")
    parser.add_argument("--generator", type=float, default=0.5, help="its fraction of the size in the second stage")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    data = write_articles(arguments.folder / "articles")
    alone = {
        "data": data,
        "model": {**MODEL, "parts": "generator", "generator": 1.0},
        "objective": {"kind": "masked"},
        "train": {**SETTINGS, "budget": arguments.first},
    }
    *_, last = train(alone, arguments.folder / "generator")
    both = {
        "data": data,
        "origin": str(arguments.folder / "generator"),
        "model": {"kind": "electra", "parts": "both", "generator": arguments.generator},
        "train": {**SETTINGS, "budget": arguments.second, "rate": 1e-3},
    }
    print(f"generator alone: perplexity {math.exp(last['valid_loss']):.1f}, {last['cost']['cpu_seconds']:.0f} CPU s\n")
    print("| tokens | CPU s | perplexity of masks | accuracy | majority | recall | nats |")
    print("|---|---|---|---|---|---|---|")
    for line in train(both, arguments.folder / f"both-{arguments.generator:g}"):
        original = line["valid_original_share"]
        nats = line["valid_detection_loss"] / constant(original)
        fractions = (line["valid_detection_accuracy"], original, line["valid_detection_recall"], nats)
        masks = f"{line['tokens']:,} | {line['cost']['cpu_seconds']:.0f} | {math.exp(line['valid_loss']):.1f}"
        print(f"| {masks} | {' | '.join(f'{each:.1%}' for each in fractions)} |")


if __name__ == "__main__":
    main()
