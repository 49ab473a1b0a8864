"""VisualBERT and ViLBERT on NLVR's scenes against text alone, the picture alone and the majority, at equal FLOPs.

    python benchmarks/nlvr.py [--first 4e11] [--second 2e11] [--seeds 3] [--folder runs/nlvr]

The development set of NLVR (Suhr et al. 2017) has 989 pairs of a sentence and a scene, but only 249 sentences, too few
to learn English from. So there are two stages, the same for all: sentences made by a few templates, about scenes whose
boxes are those of the training scenes in new combinations; then the training sentences themselves. Sentences are split:
half of them to train, a tenth to choose the checkpoint, the rest to test. No test sentence or scene is seen before.

`text` and `picture` are VisualBERT with one blank region, or with one sentence for all. Each system gets as many FLOPs
in each stage. Intervals and paired tests are over sentences and seeds. A finished run is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lmlab import load
from lmlab.data.readers.pictures.nlvr import COLOUR_NAMES, COLOURS, read_scene
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import Scores
from lmlab.transfer.evaluation import evaluate_file
from study import complete, need

Scene = list[list[dict[str, Any]]]
SYSTEMS = {"visualbert": "visualbert", "vilbert": "vilbert", "text": "visualbert", "picture": "visualbert"}
NUMBERS = ("no", "one", "two", "three", "four", "five")
SHAPES = ("circle", "square", "triangle")
SYNTHETIC = 12_000
BATCH = 64


def objects(scene: Scene) -> list[dict[str, Any]]:
    return [each for box in scene for each in box]


def matching(shapes: list[dict[str, Any]], colour: int | None, shape: str | None) -> int:
    """How many shapes have a colour and a form; None is any."""
    return sum(
        (colour is None or COLOURS[each["color"].lower()] == colour) and (shape is None or each["type"] == shape)
        for each in shapes
    )


def name_kind(colour: int | None, shape: str | None, draw: random.Random, *, several: bool) -> str:
    noun = draw.choice(["block", "item", "object"]) if shape is None else shape
    return " ".join(filter(None, (None if colour is None else COLOUR_NAMES[colour], noun + "s" * several)))


def state(scene: Scene, draw: random.Random) -> tuple[str, bool]:
    """A sentence by a template, and whether it is true of a scene."""
    colour = draw.choice([None, 0, 1, 2])
    shape = draw.choice([None, *SHAPES]) if colour is not None else draw.choice(SHAPES)
    made: list[Callable[[], tuple[str, bool]]] = [
        lambda: _presence(scene, colour, shape, draw),
        lambda: _number(scene, colour, shape, draw),
        lambda: _box(scene, colour, shape, draw),
        lambda: _tower(scene, draw),
        lambda: _edge(scene, colour, shape, draw),
    ]
    return draw.choice(made)()


def _presence(scene: Scene, colour: int | None, shape: str | None, draw: random.Random) -> tuple[str, bool]:
    found = matching(objects(scene), colour, shape) > 0
    return f"There is a {name_kind(colour, shape, draw, several=False)}.", found


def _number(scene: Scene, colour: int | None, shape: str | None, draw: random.Random) -> tuple[str, bool]:
    count, said = matching(objects(scene), colour, shape), draw.randint(1, 5)
    how, right = draw.choice([("exactly", count == said), ("at least", count >= said)])
    return f"There are {how} {NUMBERS[said]} {name_kind(colour, shape, draw, several=said > 1)}.", right


def _box(scene: Scene, colour: int | None, shape: str | None, draw: random.Random) -> tuple[str, bool]:
    counts, said = [matching(box, colour, shape) for box in scene], draw.randint(1, 4)
    kind = name_kind(colour, shape, draw, several=said > 1)
    how, right = draw.choice([("exactly", said in counts), ("at least", max(counts) >= said)])
    return f"There is a box with {how} {NUMBERS[said]} {kind}.", right


def _tower(scene: Scene, draw: random.Random) -> tuple[str, bool]:
    """Of blocks one above the other: how high it is, or the colour at its top or base."""
    towers = [
        sorted(box, key=lambda each: -each["y_loc"]) for box in scene if len({each["x_loc"] for each in box}) == 1
    ]
    if draw.random() < 0.5:
        said = draw.randint(1, 4)
        return f"There is a tower with {NUMBERS[said]} block{'s' * (said > 1)}.", any(
            len(each) == said for each in towers
        )
    colour, end = draw.randrange(3), draw.choice(["top", "base"])
    ends = [each[-1 if end == "top" else 0] for each in towers]
    return (
        f"There is a tower with a {COLOUR_NAMES[colour]} block at the {end}.",
        any(COLOURS[each["color"].lower()] == colour for each in ends),
    )


def _edge(scene: Scene, colour: int | None, shape: str | None, draw: random.Random) -> tuple[str, bool]:
    touching = []
    for each in objects(scene):
        x, y, most = each["x_loc"], each["y_loc"], 100 - each["size"]
        touching += [each] if min(x, y, most - x, most - y) <= 0 else []
    kind = name_kind(colour, shape, draw, several=False)
    return f"There is a {kind} touching the {draw.choice(['wall', 'edge'])}.", matching(touching, colour, shape) > 0


def synthetic(boxes: list[list[dict[str, Any]]], count: int) -> Iterator[dict[str, Any]]:
    """Sentences about new combinations of boxes, half of them true."""
    draw, wanted = random.Random(0), True
    while count:
        scene = [draw.choice(boxes) for _ in range(3)]
        sentence, true = state(scene, draw)
        if true is wanted:
            yield {"sentence": sentence, "label": str(true).lower(), "structured_rep": scene}
            wanted, count = not wanted, count - 1


def split(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Half of the sentences to train, a tenth to choose the checkpoint, the rest to test."""
    sentences = sorted({row["sentence"].lower() for row in rows})
    random.Random(0).shuffle(sentences)
    part = {text: number / len(sentences) for number, text in enumerate(sentences)}
    ends = {"train": (0, 0.5), "valid": (0.5, 0.6), "test": (0.6, 1)}
    return {
        name: [row for row in rows if low <= part[row["sentence"].lower()] < high] for name, (low, high) in ends.items()
    }


def as_row(row: dict[str, Any], system: str) -> dict[str, Any]:
    """A row of a table with regions; of baselines without the picture, or without the sentence."""
    regions = read_scene(row["structured_rep"], where="NLVR")
    assert regions.features is not None
    boxes, vectors = regions.boxes.tolist(), regions.features.tolist()
    if system == "text":
        boxes, vectors = [[0.0, 0.0, 1.0, 1.0]], [[0.0] * len(vectors[0])]
    sentence = "a sentence" if system == "picture" else row["sentence"]
    found = [{"box": box, "features": vector} for box, vector in zip(boxes, vectors, strict=True)]
    return {"sentence": sentence, "label": row["label"], "regions": found}


def write_tables(folder: Path) -> None:
    """Write the tables of all systems."""
    source = Path(os.environ["LMLAB_DATA"]) / "nlvr" / "dev.json"
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    parts = split(rows)
    boxes = [box for row in parts["train"] for box in row["structured_rep"]]
    made = list(synthetic(boxes, SYNTHETIC))
    tables = {**parts, "synthetic": made[1000:], "synthetic-valid": made[:1000]}
    for system in SYSTEMS:
        kind = "both" if SYSTEMS[system] == system else system
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name, own in tables.items():
            lines = "".join(json.dumps(as_row(row, system)) + "\n" for row in own)
            (folder / kind / f"{name}.jsonl").write_text(lines)


def learn(system: str, seed: int, folder: Path, *, first: float, second: float) -> list[str]:
    """Train a system in two stages; its predictions for the test examples."""
    kind = SYSTEMS[system]
    tables = folder / ("both" if kind == system else system)
    train = {"batch": BATCH, "seed": seed, "evaluations": 5, "watch": "accuracy", "rate": 1e-3, "warmup": 50}
    # the same tokenizer for all, with the words of the training sentences
    stages = (("synthetic", "synthetic-valid", first), ("train", "valid", second))
    origin: Path | None = None
    for name, valid, flops in stages:
        values: dict[str, Any] = {
            "data": {"captions": str(tables / f"{name}.jsonl"), "valid": str(tables / f"{valid}.jsonl")},
            "model": {"kind": kind, **({} if origin else {"size": "tiny", "dropout": 0.1})},
            "objective": {"kind": "picture_texts"},
            "train": {**train, "budget": f"{flops:g}flops"},
        }
        if origin is None:
            values["tokenizer"] = {"spec": str(folder / "tokenizer.json")}
        else:
            values["origin"] = str(origin)
        origin = complete(values, folder / f"{system}-{seed}-{name}")
    assert origin is not None
    found = evaluate_file(load(origin).predictor, tables / "test.jsonl")
    return [str(each.value) for each in found.predictions]


def train_tokenizer(folder: Path) -> None:
    from lmlab.tokenizers import train

    rows = [json.loads(line) for name in ("train", "synthetic") for line in (folder / "both" / f"{name}.jsonl").open()]
    tokenizer = train("wordpiece:500", [*(row["sentence"] for row in rows), "a sentence"])
    tokenizer.save(folder / "tokenizer.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=float, default=4e11, help="FLOPs on synthetic sentences")
    parser.add_argument("--second", type=float, default=2e11, help="FLOPs on training sentences")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/nlvr"))
    options = parser.parse_args()
    need("nlvr")
    write_tables(options.folder)
    if not (options.folder / "tokenizer.json").is_file():
        train_tokenizer(options.folder)
    rows = [json.loads(line) for line in (options.folder / "both" / "test.jsonl").open()]
    true, sentences = [row["label"] for row in rows], [row["sentence"] for row in rows]
    print(f"{len(rows)} test examples of {len(set(sentences))} sentences", flush=True)
    found: dict[str, list[list[str]]] = {"majority": [["true"] * len(rows)] * options.seeds}
    for seed in range(options.seeds):
        for system in SYSTEMS:
            own = learn(system, seed, options.folder, first=options.first, second=options.second)
            found.setdefault(system, []).append(own)
            share = sum(one == two for one, two in zip(own, true, strict=True)) / len(true)
            print(f"seed {seed} {system:10s} {share:.1%}", flush=True)
    scores = Scores(Accuracy(), found, true, groups=sentences)
    for system in found:
        value, low, high = scores.estimate(system)
        print(f"{system:10s} {value:.1%}" + ("" if low is None else f" [{low:.1%}, {high:.1%}]"))
    for each in scores.compare():
        print(f"{each.better} − {each.worse}: {100 * each.value:.1f} points, p = {each.p:.3f}")


if __name__ == "__main__":
    main()
