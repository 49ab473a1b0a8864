"""CLIP on 1,911 emoji with their names: recall on held-out pictures, and zero-shot categories, against chance.

    python benchmarks/clip_emoji.py [FOLDER] [--seeds 1] [--epochs 60]

Pictures of 64 × 64 pixels and their names are the captions; nothing else is learnt from. 80% of the pictures of each
category are for training, 10% choose the checkpoint, and 10% are the test (equal pictures stay together): no test
picture is seen before the end. A user trains the same model with

    lmlab train clip emoji.jsonl -o RUN --set data.resize=pad --set objective.crop=4 …

Recall is over all test pictures and their names. Categories are found without training on them in two ways: by the
category's own words ("food and drink"), which hardly occur in any name, and by the mean of the names of the training
pictures of the category, as a list of prompts (section 3.1.4 of the paper). The baselines are the most frequent
category, and a search in which the score of a name is the mean colour of training pictures whose names share a word.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from lmlab import load
from lmlab.analysis.pictures.matching import (
    Matcher,
    Recall,
    ZeroShot,
    match_captions,
    score_retrieval,
    score_zero_shot,
    unique_sources,
)
from lmlab.data.corpora.pictures.captions import CaptionsConfig
from lmlab.data.corpora.pictures.images import split_pictures
from lmlab.data.readers.pictures.sources import PictureRow
from lmlab.metrics.retrieval import Matching
from lmlab.runs.recipe_record import read_record
from study import complete, need

Parts = dict[str, list[PictureRow]]


def train(seed: int, epochs: int, folder: Path) -> Path:
    """The run of a seed, trained now or taken from an earlier call."""
    data = Path(os.environ["LMLAB_DATA"]) / "emoji" / "emoji.jsonl"
    settings: dict[str, Any] = {
        "data": {"captions": str(data), "size": 64},
        "tokenizer": {"spec": "bpe:1024"},
        "model": {"kind": "clip", "size": "tiny"},
        "objective": {"crop": 4, "colour": 0.2},
        "train": {"budget": f"{epochs}epochs", "batch": 128, "seed": seed, "watch": "text_to_picture_at_10"},
    }
    return complete(settings, folder / f"seed-{seed}-{epochs}")


def read_parts(run: Path) -> Parts:
    """The rows of each split, as the run was trained with them."""
    config = read_record(run).recipe.data
    assert isinstance(config, CaptionsConfig)
    return split_pictures(config, config.captions, lambda stage, done, total: None)[0]


def score_categories(matcher: Matcher, parts: Parts) -> dict[str, tuple[ZeroShot, list[str]]]:
    """Zero-shot categories of the test pictures by the category's words, and by the names of training pictures."""
    sources, places = unique_sources(parts["test"])
    vectors = matcher.embed_sources(sources).vectors[places]
    true = [str(row.label) for row in parts["test"]]
    categories = sorted({str(row.label) for row in parts["train"]})
    words = [name.lower().replace("&", "and") for name in categories]
    by_words = matcher.classify(vectors, words, ["{}"])
    means = []
    for category in categories:
        names = [row.texts["caption"] for row in parts["train"] if row.label == category]
        mean = matcher.embed_texts(names).mean(0)
        means.append(mean / np.linalg.norm(mean))
    scores = vectors @ np.stack(means).T
    by_names = ZeroShot(tuple(categories), scores.astype(np.float32))
    return {
        "category's words": (ZeroShot(tuple(categories), by_words.probabilities), true),
        "names of training pictures": (by_names, true),
    }


def colour_baseline(parts: Parts) -> dict[str, Recall]:
    """Recall of a search by mean colour: a name is as bright and coloured as training pictures that share its words."""
    colours = {row.texts["caption"]: row.picture.read()[..., :3].reshape(-1, 3).mean(0) for row in parts["train"]}
    overall = np.mean(list(colours.values()), axis=0)
    known: dict[str, list[Any]] = {}
    for name, colour in colours.items():
        for word in set(name.split()):
            known.setdefault(word, []).append(colour)
    texts, pictures = [], []
    for row in parts["test"]:
        found = [colour for word in row.texts["caption"].split() for colour in known.get(word, [])]
        texts.append((np.mean(found, axis=0) if found else overall) - overall)
        pictures.append(row.picture.read()[..., :3].reshape(-1, 3).mean(0) - overall)
    unit = [
        np.stack(each) / np.maximum(1e-9, np.linalg.norm(each, axis=1, keepdims=True)) for each in (pictures, texts)
    ]
    captions = {row.texts["caption"]: None for row in parts["test"]}
    numbers = np.array([list(captions).index(row.texts["caption"]) for row in parts["test"]])
    own = np.arange(len(numbers))
    return score_retrieval(Matching(unit[0].astype(np.float32), unit[1].astype(np.float32), own, numbers))


def show(name: str, found: dict[str, Recall]) -> None:
    for key, each in found.items():
        value, low, high = each.estimate[:3]
        interval = "" if low is None else f" [{low:.1%}, {high:.1%}]"
        print(f"{name:<14} {key:<24} {value:6.1%}{interval}   chance {each.chance:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/clip-emoji"), help="of the runs")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    given = parser.parse_args()
    need("emoji")
    for seed in range(given.seeds):
        run = train(seed, given.epochs, given.folder)
        parts, matcher = read_parts(run), load(run).matcher
        if seed == 0:
            print(", ".join(f"{len(rows):,} {name}" for name, rows in parts.items()))
            show("mean colour", colour_baseline(parts))
        show(f"clip, seed {seed}", score_retrieval(match_captions(matcher, parts["test"])[0]))
        for how, (found, true) in score_categories(matcher, parts).items():
            value, low, high = score_zero_shot(found, true)[:3]
            majority = max(map(true.count, set(true))) / len(true)
            interval = "" if low is None else f" [{low:.1%}, {high:.1%}]"
            print(f"zero-shot category by the {how}: {value:.1%}{interval}   most frequent {majority:.1%}")


if __name__ == "__main__":
    main()
