"""Where is long context worth it? Reformer, Transformer-XL and GPT-2 with windows of 512 to 8k, at equal FLOPs.

    python benchmarks/long_context.py [FOLDER] [--windows 512 2048 8192] [--flops 2e13] [--text builtin]

Bytes of the built-in corpus (Python's documentation), one shape for all (width 128, 4 layers, 4 heads), the same number
of tokens in each step, and the same FLOPs in all: a long window pays for its attention with fewer tokens read. A window
of Transformer-XL is half segment and half memory. Scores are exact bits per byte of held-out documents, of those longer
than the longest window, cut to `--characters` in all. A second call takes the runs that it finds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import lmlab
from lmlab.runs import run
from lmlab.runs.held_out import held_out
from lmlab.runs.recipe import make_recipe

SHAPE = {"width": 128, "heads": 4, "layers": 4, "dropout": 0.0}
TOKENS = 8192
"""Of one step."""


def settings(kind: str, window: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model and how it is trained."""
    if kind == "transformer-xl":
        half = window // 2
        return {"memory": half, "inner": 512}, {"window": half, "batch": max(1, TOKENS // half)}
    own = {"inner": 512, "hashes": 4, "chunk": 64, "local_chunk": 64} if kind == "reformer" else {}
    return {"window": window, **own}, {"batch": max(1, TOKENS // window)}


def long_documents(path: Path, *, longer: int, characters: int) -> list[str]:
    """Documents that the run has not seen."""
    long = [text for text in held_out(path) if isinstance(text, str) and len(text) > longer]
    chosen: list[str] = []
    for text in long or [text for text in held_out(path) if isinstance(text, str)]:
        if sum(map(len, chosen)) < characters:
            chosen.append(text[: characters - sum(map(len, chosen))])
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/long-context"))
    parser.add_argument("--text", default="builtin")
    parser.add_argument("--kinds", nargs="+", default=["gpt2", "transformer-xl", "reformer"])
    parser.add_argument("--windows", nargs="+", type=int, default=[512, 2048, 8192])
    parser.add_argument("--flops", type=float, default=2e13)
    parser.add_argument("--characters", type=int, default=200_000, help="of held-out text that are scored")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{given.flops:.1e} FLOPs each, {SHAPE}\n\n| model | window | tokens read | bits per byte | exact for |")
    print("|---|---|---|---|---|", flush=True)
    for kind in given.kinds:
        for window in given.windows:
            path = given.folder / f"{kind}-{window}"
            model, train = settings(kind, window)
            recipe = make_recipe(
                {
                    "data": {"text": given.text},
                    "tokenizer": {"spec": "bytes"},
                    "model": {"kind": kind, **SHAPE, **model},
                    "train": {"budget": f"{given.flops}flops", "evaluations": 2, "device": "cpu", **train},
                }
            )
            if not (path / "README.md").is_file():
                run.start(recipe, path)
            found = lmlab.load(path)
            texts = long_documents(path, longer=max(given.windows), characters=given.characters)
            score = found.scorer.score(texts, batch=2)
            read = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()][-1].get("tokens", 0)
            bits, what = score.bits_per_byte, score.approximation or "attention"
            print(f"| {kind} | {window} | {read:,} | {bits:.4f} | {what} |", flush=True)


if __name__ == "__main__":
    main()
