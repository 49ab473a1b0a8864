"""VisualBERT and ViLBERT on NLVR's scenes against text alone, the picture alone and the majority, at equal FLOPs.

    python benchmarks/nlvr.py [--budgets 1.85e12 8e10] [--seeds 3] [--folder runs/nlvr] [--only visualbert …]

The development set of NLVR (Suhr et al. 2017) has 989 pairs of a sentence and a scene, but only 249 sentences, too few
to learn English from. So there are three stages, the same for all: synthetic sentences about one or two shapes, from
which it is learnt which word names which region; synthetic sentences about scenes like NLVR's (nlvr_sentences.py); then
the training sentences themselves. A stage begins with the weights of the one before it, and with its head. Sentences
are split: half of them to train, a tenth to choose the checkpoint, the rest to test. No test sentence is seen before.
Training pairs are varied without a change of their label: colours are exchanged in sentence and scene, boxes are
permuted, and scenes are mirrored.

`text` and `picture` are VisualBERT with three empty boxes, or with one sentence for all. Each system gets as many FLOPs
for synthetic sentences, and for NLVR's. Intervals and paired tests are over sentences and seeds. A finished run is not
trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmlab import load
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import Scores
from lmlab.transfer.evaluation import evaluate_file
from nlvr_sentences import COLOURS, EASY, SIDE, synthetic
from study import complete, need

Row = dict[str, Any]
SYSTEMS = {"visualbert": "visualbert", "vilbert": "vilbert", "text": "visualbert", "picture": "visualbert"}
SIZES: dict[str, Row] = {
    "visualbert": {"size": "tiny", "layers": 3, "heads": 4},
    "vilbert": {
        **{"size": "tiny", "layers": 2, "heads": 4, "inner": 128, "connections": 2},
        **{"picture_heads": 4, "joint_heads": 4},
    },
}
SYNTHETIC = {"few": 3_000, "synthetic": 15_000}
"""Synthetic sentences, each with two scenes."""
COPIES = 4
"""Variants of each training pair."""
TRAIN = {"batch": 64, "evaluations": 2, "watch": "accuracy", "schedule": "linear"}
STAGES: dict[str, Row] = {
    "few": {"warmup": 100, "evaluations": 1, "schedule": "constant"},
    "synthetic": {"warmup": 50},
    "train": {"rate": 3e-4, "warmup": 30},
}
RATE = 1e-3
"""Learning rate of the synthetic sentences."""
FEW = {"visualbert": 0.135, "vilbert": 0.15}
"""Fraction of the FLOPs on synthetic sentences that is spent on few shapes."""
VALID = {"few": "few-valid", "synthetic": "synthetic-valid", "train": "valid"}
HELD_OUT = 600
"""Synthetic examples by which a checkpoint is chosen."""


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
    draw = random.Random(0)
    varied = [vary(row, draw) for _ in range(COPIES) for row in parts["train"]]
    tables = {**parts, "train": parts["train"] + varied}
    for name, easy in {"few": 1.0, "synthetic": EASY}.items():
        made = list(synthetic(SYNTHETIC[name] + HELD_OUT // 2, easy=easy))
        tables |= {name: made[HELD_OUT:], VALID[name]: made[:HELD_OUT]}
    for kind in ("both", "text", "picture"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name, own in tables.items():
            lines = "".join(json.dumps(as_row(row, kind)) + "\n" for row in own)
            (folder / kind / f"{name}.jsonl").write_text(lines)


def learn(system: str, seed: int, folder: Path, budgets: Sequence[float]) -> list[str]:
    """Train a system in all stages; its predictions for the test examples."""
    kind = SYSTEMS[system]
    tables = folder / ("both" if kind == system else system)
    origin: Path | None = None
    first, last = budgets
    shares = (FEW[kind] * first, (1 - FEW[kind]) * first, last)
    for (name, settings), flops in zip(STAGES.items(), shares, strict=True):
        values: Row = {
            "data": {"captions": str(tables / f"{name}.jsonl"), "valid": str(tables / f"{VALID[name]}.jsonl")},
            "model": {"kind": kind, **({} if origin else SIZES[kind])},
            "objective": {"kind": "picture_texts"},
            "train": {**TRAIN, "rate": RATE, **settings, "seed": seed, "budget": f"{flops:g}flops"},
        }
        if origin is None:  # the same tokenizer for all, with the words of the training sentences
            values["tokenizer"] = {"spec": str(folder / "tokenizer.json")}
        else:
            values["origin"] = str(origin)
        origin = complete(values, folder / f"{system}-{seed}-{name}")
        if name != "train":
            report(
                f"seed {seed} {system} {name}", evaluate_file(load(origin).predictor, tables / f"{VALID[name]}.jsonl")
            )
        if name == "synthetic":
            unseen = evaluate_file(load(origin).predictor, tables / "test.jsonl")
            report(f"seed {seed} {system} test, before it learns from NLVR's sentences", unseen)
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
    parser.add_argument("--budgets", type=float, nargs=2, default=(1.85e12, 8e10), help="FLOPs: synthetic, NLVR")
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
            own = learn(system, seed, options.folder, options.budgets)
            found.setdefault(system, []).append(own)
    scores = Scores(Accuracy(), found, true, groups=sentences)
    for system in found:
        value, low, high = scores.estimate(system)
        print(f"{system:10s} {value:.1%}" + ("" if low is None else f" [{low:.1%}, {high:.1%}]"))
    for each in scores.compare():
        print(f"{each.better} − {each.worse}: {100 * each.value:.1f} points, p = {each.p:.3f}")


if __name__ == "__main__":
    main()
