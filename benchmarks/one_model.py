"""One model for everything: text, pictures with captions, music and episodes in one GPT-2, against specialists.

The last slide of a lecture says that all kinds of data can be fed to the same model. Here one GPT-2 learns four kinds
in turn, each in a quarter of its batches, and is compared with specialists of the same size, of one kind each:

- equal total FLOPs: a specialist spends as much on its kind as the mixed model on all four;
- equal FLOPs per kind: a specialist spends a quarter of that, as much as the mixed model on its kind, so all four
  specialists together cost as much as the mixed model.

Text: tinyshakespeare. Pictures: built-in scenes, 12 × 12 pixels in 8 colours, after their captions. Music: Bach's
chorales on a grid. Episodes: the built-in cart-pole. All share one tokenizer of the text. Scores are exact, by the
chain rule, on held-out items.

    python benchmarks/one_model.py [FOLDER] [--seeds 3] [--flops 4e12] [--batch 4] [--window 160]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, NamedTuple

import lmlab
from lmlab.analysis.kind_scores import measure_kinds
from lmlab.data import DATA
from lmlab.metrics.statistics import mean_interval
from lmlab.runs.held_out import find_held_out_split
from lmlab.runs.model_files import load_model
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors import load_processor
from study import need

SIDE, COLOURS, BINS, VOCABULARY = 12, 8, 32, 512
KINDS = ("text", "captions", "notes", "episodes")
TESTED = 150
"""Test items of each kind, at most; the text is one item."""


def find_data() -> dict[str, Any]:
    home = Path(os.environ["LMLAB_DATA"])
    return {
        "text": {"text": str(home / "tinyshakespeare" / "input.txt")},
        "captions": {"captions": "builtin:scenes", "size": SIDE},
        "notes": {"notes": str(home / "jsb_chorales")},
        "episodes": {"episodes": "builtin:cart-pole"},
    }


class Size(NamedTuple):
    """The rows of a batch, and the tokens of a row."""

    batch: int
    window: int


def train(path: Path, kinds: tuple[str, ...], tokenizer: Path | None, *, flops: float, size: Size, seed: int) -> Path:
    """Train a model of some kinds, or take it from an earlier study."""
    text = f"bpe:{VOCABULARY}" if tokenizer is None else str(tokenizer)
    specs = {"text": text, "captions": f"pixels:{COLOURS}", "notes": "grid:4", "episodes": f"steps:{BINS}"}
    wanted = [kind for kind in specs if kind in kinds or (kind == "text" and "captions" in kinds)]
    settings = {
        "data.kind": "mixture",
        "data.parts": {kind: {"kind": kind, **value} for kind, value in find_data().items() if kind in kinds},
        "tokenizer.spec": ",".join(f"{kind}={specs[kind]}" for kind in wanted),
        "model.window": size.window,
        "model.dropout": 0.0,
        "train.batch": size.batch,
        "train.seed": seed,
        "train.evaluations": 10,
    }
    if not (path / "README.md").is_file():
        lmlab.train("gpt2", output=path, size="tiny", budget=f"{flops}flops", settings=settings, resume=path.exists())
    return path


def score(path: Path) -> dict[tuple[str, str], float]:
    """Return the scores of a run on held-out items, by kind and score."""
    model, _ = load_model(path)
    found = find_held_out_split(path)
    tested = measure_kinds(
        model.eval(), load_processor(path), found.split, run=path.name, name=found.name, limit=TESTED
    )
    return {(row.kind, row.score): row.value for row in tested.rows}


def save_tokenizer(run: Path, path: Path) -> Path:
    """Write the tokenizer of the text of a run, which all other runs share."""
    text = load_processor(run).parts["text"]
    assert isinstance(text, Tokenizer)
    path.parent.mkdir(parents=True, exist_ok=True)
    text.save(path)
    return path


def describe(values: list[float]) -> str:
    found = mean_interval(values)
    around = "" if found.low is None or found.high is None else f" ±{(found.high - found.low) / 2:.3f}"
    return f"{found.value:.3f}{around}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/one-model"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--flops", type=float, default=4e12, help="of the mixed model")
    parser.add_argument("--batch", type=int, default=4, help="rows of a batch")
    parser.add_argument("--window", type=int, default=160, help="tokens of a row")
    options = parser.parse_args()
    need("tinyshakespeare")
    need("jsb_chorales")
    assert set(KINDS) <= DATA.keys()
    folder, flops, size = options.folder, options.flops, Size(options.batch, options.window)
    found: dict[str, dict[tuple[str, str], list[float]]] = {"mixed": {}, "equal total": {}, "equal on the kind": {}}

    def add(system: str, scores: dict[tuple[str, str], float]) -> None:
        for key, value in scores.items():
            found[system].setdefault(key, []).append(value)

    for seed in range(options.seeds):
        mixed = train(folder / f"mixed-{seed}", KINDS, None, flops=flops, size=size, seed=seed)
        add("mixed", score(mixed))
        tokenizer = save_tokenizer(folder / "mixed-0", folder / "tokenizer" / "tokenizer.json")
        for kind in KINDS:
            for name, own in (("equal on the kind", flops / len(KINDS)), ("equal total", flops)):
                path = folder / f"{kind}-{name.replace(' ', '-')}-{seed}"
                add(name, score(train(path, (kind,), tokenizer, flops=own, size=size, seed=seed)))
        print_table(found, flops, seed + 1)


def print_table(found: dict[str, dict[tuple[str, str], list[float]]], flops: float, seeds: int) -> None:
    print(f"\n{seeds} seeds, {flops:.2g} FLOPs; mean and 95% interval over seeds\n")
    print("| kind | score | mixed model | specialist, equal FLOPs on the kind | specialist, equal total FLOPs |")
    print("|---|---|---|---|---|")
    for key in found["mixed"]:
        cells = [describe(found[name][key]) for name in ("mixed", "equal on the kind", "equal total")]
        print(f"| {key[0]} | {key[1]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
