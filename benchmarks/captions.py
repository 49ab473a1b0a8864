"""Captions of, and questions about, the built-in scenes: are they right, and does attention look at the right object?

    python benchmarks/captions.py [FOLDER] [--only captioner attention none] [--budget 1500steps]

`captioner` is trained on builtin:scenes, and `vqa` on builtin:scene-questions, with attention and without (the mean of
the regions), all with their default settings and the same number of steps. Every scene has exactly one caption, so
exact match means that caption. Of right captions, the attention at the noun of an object (circle, star …) is compared
with the box of that object: the weight inside the box, against chance, the area of the box as a fraction of the
picture; and how often the strongest region has its centre in the box. Questions are scored against two baselines that
do not see the picture. Intervals of questions resample pictures. Aims: 95% of the captions, 95% of the answers with
attention, and clearly less without. A run that is there is resumed or used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab import load
from lmlab.cli.evaluation.captions import score_captions
from lmlab.cli.progress import TrainingDisplay
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.readers.pictures.scenes import SHAPES
from lmlab.decoding.captioner import PictureCaptioner
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import estimate, mean_interval
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from lmlab.tasks.visual_questions import VisualQuestions
from lmlab.transfer.evaluation import open_picture_texts
from study import clock

VQA = {"attention": {}, "none": {"attention": "none"}}
FINE = 8
"""Points in each direction by which the part of a region inside a box is measured."""


class Overlap(NamedTuple):
    """How well attention agrees with the boxes of the objects that are named, one number for each object."""

    inside: list[float]  # weight inside the box
    area: list[float]  # of the box: the weight of attention that is spread evenly
    pointed: list[float]  # 1.0 where the strongest region has its centre in the box


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/captions"))
    parser.add_argument("--only", nargs="+", choices=("captioner", *VQA), default=("captioner", *VQA))
    parser.add_argument("--budget", default=None, help="instead of 1500 steps (captioner) and 10000 (vqa)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print(clock())
    if "captioner" in given.only:
        path = given.folder / "captioner"
        train(path, {"kind": "captioner"}, "builtin:scenes", given.budget or "1500steps")
        report_captions(path)
    for name in (each for each in VQA if each in given.only):
        path = given.folder / f"vqa-{name}"
        train(path, {"kind": "vqa", **VQA[name]}, "builtin:scene-questions", given.budget or "10000steps")
        report_answers(path, name)


def train(path: Path, model: dict[str, Any], data: str, budget: str) -> None:
    """Train a run, or go on with one that was interrupted."""
    with TrainingDisplay() as display:
        if (path / "recipe.json").is_file():
            run.resume(path, reporter=display)
        else:
            recipe = make_recipe({"data": {"text": data}, "model": model, "train": {"budget": budget}})
            run.start(recipe, path, reporter=display)


def report_captions(path: Path) -> None:
    captioner = load(path).captioner
    for data in ("builtin:scenes", "builtin:scenes-unseen"):
        split = open_picture_texts(path, data, processor=captioner.processor).split
        pictures, references = [split.pixels[each] for each in split.pictures], split.fields["caption"]
        for beams in (1, 5):
            said = [found[0].text for found in captioner.caption(pictures, beams=beams)]
            scores = score_captions(said, [[text] for text in references])
            low, high = scores["intervals"]["exact_match"]
            print(f"{data}, {beams} beams: {scores['exact_match']:.1%} exact ({low:.1%} to {high:.1%})")
            if beams == 1:
                report_overlap(measure_overlap(captioner, split, said))


def report_overlap(found: Overlap) -> None:
    inside, area, pointed = (mean_interval(each) for each in found)
    print(
        f"  attention at {len(found.inside)} nouns of right captions: {inside.value:.1%} inside the object's box "
        f"({inside.low or inside.value:.1%} to {inside.high or inside.value:.1%}), by chance {area.value:.1%}; "
        f"strongest region in the box {pointed.value:.1%}"
    )


def measure_overlap(captioner: PictureCaptioner, split: PictureSplit, said: Sequence[str]) -> Overlap:
    """Of all captions that are right; `said` has one for each row of the split."""
    found = Overlap([], [], [])
    assert split.regions is not None
    for row, text in enumerate(said):
        if text.split() != split.fields["caption"][row].split():
            continue
        boxes = dict(zip(split.regions[row].names, split.regions[row].boxes, strict=True))
        looks = captioner.attention(split.pixels[split.pictures[row]], text)
        words = [look.word.strip(",") for look in looks]
        for place, word in enumerate(words):
            if word in SHAPES:
                box, weights = boxes[" ".join(words[place - 2 : place + 1])], looks[place].weights
                fraction = fraction_inside(box, weights.shape)
                found.inside.append(float((weights * fraction).sum()))
                found.area.append(float(fraction.mean()))
                found.pointed.append(float(has_centre(box, weights)))
    return found


def fraction_inside(box: NDArray[np.float32], grid: tuple[int, ...]) -> NDArray[np.float64]:
    """The fraction of each region [rows, columns] that lies in a box (left, top, right, bottom)."""
    rows, columns = grid
    x, y = ((np.arange(count * FINE) + 0.5) / (count * FINE) for count in (columns, rows))
    inside = np.outer((y >= box[1]) & (y <= box[3]), (x >= box[0]) & (x <= box[2]))
    fraction: NDArray[np.float64] = inside.reshape(rows, FINE, columns, FINE).mean((1, 3))
    return fraction


def has_centre(box: NDArray[np.float32], weights: NDArray[np.float64]) -> bool:
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    y, x = (row + 0.5) / weights.shape[0], (column + 0.5) / weights.shape[1]
    return bool(box[0] <= x <= box[2] and box[1] <= y <= box[3])


def report_answers(path: Path, name: str) -> None:
    predictor = load(path).predictor
    task = predictor.task
    assert isinstance(task, VisualQuestions)
    labelled = task.read_labelled("builtin:scene-questions")
    assert labelled.test is not None
    test, true = list(labelled.test), [example.label for example in labelled.test]
    pictures = [example.source for example in test]
    rows = {f"vqa, attention {name}": [each.value for each in predictor.predict(test)]}
    for baseline in ("majority", "bag of words"):
        made = task.make_baseline(baseline)
        made.fit([example._replace(media=None) for example in labelled.train])
        rows[f"{baseline}, without the picture"] = made.predict([each._replace(media=None) for each in test]).labels
    for label, predicted in rows.items():
        score = estimate(Accuracy(), predicted, true, groups=pictures)
        print(f"{label}: {score.value:.1%} of {len(test):,} questions ({score.low:.1%} to {score.high:.1%})")
    kinds: dict[str, list[bool]] = {}
    for example, answer in zip(test, rows[f"vqa, attention {name}"], strict=True):
        kinds.setdefault(kind_of(str(example.a)), []).append(answer == example.label)
    print("  " + ", ".join(f"{kind} {np.mean(right):.1%}" for kind, right in sorted(kinds.items())))


def kind_of(question: str) -> str:
    """What a question is about, by its first words."""
    begins = {
        "what colour": "colour",
        "what is": "shape",
        "what size": "size",
        "how many": "number",
        "is there": "presence",
    }
    last = "side" if " or at the " in question else "place"
    return next((kind for words, kind in begins.items() if question.startswith(words)), last)


if __name__ == "__main__":
    main()
