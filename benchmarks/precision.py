"""Does training in bf16 end as well as in fp32? Validation loss of the same runs in both, on WikiText-2.

    python benchmarks/precision.py [FOLDER] [--systems gpt2 llama bert] [--seeds 2] [--steps 400] [--size tiny]

Same text, tokenizer (bpe:2048), batches and seeds; only train.precision differs. Validation is in fp32. Printed: the
validation losses (nats per prediction) along the way, the mean difference of the best losses with its standard error,
and the seconds of training. A second call continues what was begun.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from study import clock, complete, need

PRECISIONS = ("fp32", "bf16")
CHARACTERS = 2_000_000
"""Characters of the text that are read: a budget of some hundred steps needs no more."""


def curve(system: str, precision: str, seed: int, arguments: argparse.Namespace, text: Path) -> dict[str, Any]:
    """Validation losses by step and the seconds of training of one run."""
    folder = complete(
        {
            "data": {"text": str(text), "split": [0.95, 0.05, 0.0]},
            "tokenizer": {"spec": "bpe:2048"},
            "model": {"kind": system, "size": arguments.size},
            "train": {
                "budget": f"{arguments.steps}steps", "evaluations": 8, "seed": seed, "precision": precision,
                "evaluation_tokens": 32768,
            },
        },
        arguments.folder / f"{system}-{arguments.steps}-{precision}-{seed}",
    )  # fmt: skip
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = {line["step"]: line["valid_loss"] for line in lines if "valid_loss" in line}
    return {"losses": losses, "seconds": lines[-1]["cost"]["seconds"]}


def shortened(folder: Path) -> Path:
    """The beginning of WikiText-2's training text."""
    path = folder / "text.txt"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        whole = (Path(os.environ["LMLAB_DATA"]) / "wikitext2" / "train.txt").read_text(encoding="utf-8")
        path.write_text(whole[:CHARACTERS], encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/precision"))
    parser.add_argument("--systems", nargs="+", default=["gpt2", "llama", "bert"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--size", default="tiny")
    arguments = parser.parse_args()
    need("wikitext2")
    text = shortened(arguments.folder)
    print(f"validation loss in nats per prediction, {arguments.steps} steps, size {arguments.size}, {clock()}\n")
    for system in arguments.systems:
        ends: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
        for seed in range(arguments.seeds):
            for precision in PRECISIONS:
                found = curve(system, precision, seed, arguments, text)
                ends[precision].append(min(found["losses"].values()))
                along = " ".join(f"{loss:.4f}" for loss in found["losses"].values())
                print(f"{system:8} seed {seed} {precision}  {along}  ({found['seconds']:.0f} s)", flush=True)
        gaps = [half - full for full, half in zip(ends["fp32"], ends["bf16"], strict=True)]
        error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
        spread = stdev(ends["fp32"]) if len(gaps) > 1 else float("nan")
        print(f"{system:8} bf16 - fp32: {fmean(gaps):+.4f} (standard error {error:.4f}; std of fp32 {spread:.4f})\n")


if __name__ == "__main__":
    main()
