"""VisualBERT and ViLBERT on NLVR's scenes against text alone, the picture alone and the majority, at equal FLOPs.

    python benchmarks/nlvr.py [--first 8e12] [--second 3e11] [--seeds 3] [--folder runs/nlvr] [--only visualbert …]

The development set of NLVR (Suhr et al. 2017) has 989 pairs of a sentence and a scene, but only 249 sentences, too few
to learn English from. So there are two stages, the same for all: synthetic sentences about synthetic scenes
(nlvr_sentences.py), then the training sentences themselves. Sentences are split: half of them to train, a tenth to
choose the checkpoint, the rest to test. No test sentence is seen before. Training pairs are varied without a
change of their label: colours are exchanged in sentence and scene, boxes are permuted, and scenes are mirrored.

`text` and `picture` are VisualBERT with three empty boxes, or with one sentence for all. Each system gets as many FLOPs
in each stage. Intervals and paired tests are over sentences and seeds. A finished run is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from pathlib import Path
from typing import Any

from lmlab import load
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import Scores
from lmlab.transfer.evaluation import evaluate_file
from nlvr_sentences import COLOURS, SIDE, synthetic
from study import complete, need

Row = dict[str, Any]
SYSTEMS = {"visualbert": "visualbert", "vilbert": "vilbert", "text": "visualbert", "picture": "visualbert"}
SIZES: dict[str, Row] = {
    "visualbert": {"size": "tiny", "layers": 3, "heads": 4},
    "vilbert": {
        **{"size": "tiny", "layers": 3, "heads": 4, "connections": 2},
        **{"picture_heads": 4, "joint_heads": 4},
    },
}
SYNTHETIC = 30_000
"""Synthetic sentences, each with two scenes."""
COPIES = 12
"""Variants of each training pair."""
TRAIN = {"batch": 64, "evaluations": 5, "watch": "accuracy", "schedule": "linear"}
STAGES = {
    "synthetic": {"rate": 1e-3, "warmup": 100},
    "train": {"rate": 5e-4, "warmup": 50},
}


def split(rows: list[Row]) -> dict[str, list[Row]]:
    """Half of the sentences to train, a tenth to choose the checkpoint, the rest to test."""
    sentences = sorted({row["sentence"].lower() for row in rows})
    random.Random(0).shuffle(sentences)
    part = {text: number / len(sentences) for number, text in enumerate(sentences)}
    ends = {"train": (0, 0.5), "valid": (0.5, 0.6), "test": (0.6, 1)}
    return {
        name: [row for row in rows if low <= part[row["sentence"].lower()] < high] for name, (low, high) in ends.items()
    }


def vary(row: Row, draw: random.Random) -> Row:
    """The same pair with other colours, the boxes in another order, and mirrored where no side is named."""
    names, codes = list(COLOURS), {code.lower(): name for name, code in COLOURS.items()}
    new = dict(zip(names, draw.sample(names, len(names)), strict=True))
    sentence = re.sub("|".join(names), lambda found: new[found[0]], row["sentence"].lower())
    mirrored = not re.search("left|right", sentence) and draw.random() < 0.5
    boxes = [
        [
            {
                **shape,
                "color": COLOURS[new[codes.get(shape["color"].lower(), "blue")]],
                "x_loc": max(0, SIDE - shape["size"] - shape["x_loc"]) if mirrored else shape["x_loc"],
            }
            for shape in box
        ]
        for box in row["structured_rep"]
    ]
    return {"sentence": sentence, "label": row["label"], "structured_rep": draw.sample(boxes, len(boxes))}


def as_row(row: Row, system: str) -> Row:
    """A row of NLVR; of the baselines without the picture, or without the sentence."""
    scene = [[], [], []] if system == "text" else row["structured_rep"]
    sentence = "a sentence" if system == "picture" else row["sentence"]
    return {"sentence": sentence, "label": row["label"], "structured_rep": scene}


def write_tables(folder: Path) -> None:
    """Write the tables of all systems."""
    source = Path(os.environ["LMLAB_DATA"]) / "nlvr" / "dev.json"
    parts = split([json.loads(line) for line in source.read_text().splitlines()])
    made, draw = list(synthetic(SYNTHETIC + 500)), random.Random(0)
    varied = [vary(row, draw) for _ in range(COPIES) for row in parts["train"]]
    tables = {**parts, "train": parts["train"] + varied, "synthetic": made[1000:], "synthetic-valid": made[:1000]}
    for kind in ("both", "text", "picture"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name, own in tables.items():
            lines = "".join(json.dumps(as_row(row, kind)) + "\n" for row in own)
            (folder / kind / f"{name}.jsonl").write_text(lines)


def learn(system: str, seed: int, folder: Path, *, first: float, second: float) -> list[str]:
    """Train a system in two stages; its predictions for the test examples."""
    kind = SYSTEMS[system]
    tables = folder / ("both" if kind == system else system)
    stages = (("synthetic", "synthetic-valid", first), ("train", "valid", second))
    origin: Path | None = None
    for name, valid, flops in stages:
        values: Row = {
            "data": {"captions": str(tables / f"{name}.jsonl"), "valid": str(tables / f"{valid}.jsonl")},
            "model": {"kind": kind, **({} if origin else SIZES[kind])},
            "objective": {"kind": "picture_texts"},
            "train": {**TRAIN, **STAGES[name], "seed": seed, "budget": f"{flops:g}flops"},
        }
        if origin is None:  # the same tokenizer for all, with the words of the training sentences
            values["tokenizer"] = {"spec": str(folder / "tokenizer.json")}
        else:
            values["origin"] = str(origin)
        origin = complete(values, folder / f"{system}-{seed}-{name}")
        if name == "synthetic":
            report(f"seed {seed} {system} synthetic", evaluate_file(load(origin).predictor, tables / f"{valid}.jsonl"))
    assert origin is not None
    found = evaluate_file(load(origin).predictor, tables / "test.jsonl")
    report(f"seed {seed} {system} test", found)
    return [str(each.value) for each in found.predictions]


def report(name: str, found: Any) -> None:
    print(f"{name}: {found.values['accuracy'].value:.1%}", flush=True)


def train_tokenizer(folder: Path) -> None:
    from lmlab.tokenizers import train

    rows = [json.loads(line) for name in ("train", "synthetic") for line in (folder / "both" / f"{name}.jsonl").open()]
    tokenizer = train("wordpiece:500", [*(row["sentence"] for row in rows), "a sentence"])
    tokenizer.save(folder / "tokenizer.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=float, default=8e12, help="FLOPs on synthetic sentences")
    parser.add_argument("--second", type=float, default=3e11, help="FLOPs on training sentences")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--folder", type=Path, default=Path("runs/nlvr"))
    options = parser.parse_args()
    need("nlvr")
    if not (options.folder / "tokenizer.json").is_file():
        write_tables(options.folder)
        train_tokenizer(options.folder)
    rows = [json.loads(line) for line in (options.folder / "both" / "test.jsonl").open()]
    true, sentences = [row["label"] for row in rows], [row["sentence"].lower() for row in rows]
    print(f"{len(rows)} test examples of {len(set(sentences))} sentences", flush=True)
    found: dict[str, list[list[str]]] = {"majority": [["true"] * len(rows)] * options.seeds}
    for seed in range(options.seeds):
        for system in options.only:
            own = learn(system, seed, options.folder, first=options.first, second=options.second)
            found.setdefault(system, []).append(own)
    scores = Scores(Accuracy(), found, true, groups=sentences)
    for system in found:
        value, low, high = scores.estimate(system)
        print(f"{system:10s} {value:.1%}" + ("" if low is None else f" [{low:.1%}, {high:.1%}]"))
    for each in scores.compare():
        print(f"{each.better} − {each.worse}: {100 * each.value:.1f} points, p = {each.p:.3f}")


if __name__ == "__main__":
    main()
