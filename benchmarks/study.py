"""What the quality studies share: the way to the data, one trained run per recipe, and stream perplexity."""

from __future__ import annotations

import argparse
import lzma
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lmlab import load
from lmlab.cli.progress import TrainingDisplay
from lmlab.config import apply_settings, read_toml
from lmlab.data.corpora.corpus import TextSplit
from lmlab.decoding.chain_rule import score_tokens
from lmlab.language_model import LanguageModel
from lmlab.runs import run
from lmlab.runs.held_out import reopen_corpus
from lmlab.runs.jobs import Silent
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import read_record

HERE = Path(__file__).parent
os.environ.setdefault("LMLAB_DATA", str(HERE.parents[1] / "shared" / "data"))


def read_folder(description: str | None, *, default: str) -> Path:
    """The folder for the runs, which is the only argument of a study."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(default), help=f"of the runs ({default})")
    folder: Path = parser.parse_args().folder
    return folder


def need(name: str) -> None:
    """Leave with a message where the data is not there."""
    if not (Path(os.environ["LMLAB_DATA"]) / name).is_dir():
        sys.exit(f"needs the folder {name} in LMLAB_DATA (looked in {os.environ['LMLAB_DATA']})")


def unpack_books(folder: Path) -> Path:
    """Write the books as plain text into a folder, where they are not there yet."""
    need("books")
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        path = folder / f"{part}.txt"
        if not path.is_file():
            packed = Path(os.environ["LMLAB_DATA"]) / "books" / f"{part}.txt.xz"
            path.write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


def trained(recipe: str, output: Path, *settings: str, origin: Path | None = None) -> tuple[LanguageModel, Any, float]:
    """The model of a recipe, trained now (from the weights of `origin`) or taken from an earlier study.

    Also its corpus, and the seconds of training.
    """
    values = apply_settings(read_toml(HERE.parent / "recipes" / f"{recipe}.toml"), settings)
    complete(values if origin is None else {**values, "origin": str(origin)}, output)
    corpus = reopen_corpus(read_record(output), output, Silent())
    import json

    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return load(output), corpus, lines[-1]["cost"]["seconds"]


def complete(values: Mapping[str, Any], output: Path) -> Path:
    """The folder of a run with these settings: trained now, to its end where it was begun, or found as it is."""
    if not (output / "README.md").is_file():
        print(f"training {output}", flush=True)
        with TrainingDisplay() as display:
            if (output / "recipe.json").is_file():
                run.resume(output, reporter=display)
            else:
                run.start(make_recipe(dict(values)), output, reporter=display)
    return output


def stream_nats(lm: LanguageModel, split: TextSplit, *, most: int | None = None) -> np.ndarray:
    """The surprisal of every token of a split read as one stream, line and document ends included, as published.

    With `most` only of that number of first ones.
    """
    tokens = split.tokens[1:] if most is None else split.tokens[1 : 1 + most]
    return score_tokens(lm.model, [tokens], boundary=lm.tokenizer.boundary)[0]


def perplexity(nats: np.ndarray) -> float:
    return math.exp(nats.mean())


def clock() -> str:
    return time.strftime("%Y-%m-%d")
