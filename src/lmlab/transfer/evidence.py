"""What the predictions of a fine-tuned model show beyond its score: confusions, worst mistakes, calibration."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lmlab.metrics.answers import ExactMatch
from lmlab.metrics.calibration import expected_calibration_error, reliability_curve
from lmlab.metrics.tagging import scores_by_type
from lmlab.transfer.results import Result, Row, key_of
from lmlab.transfer.study import Study
from lmlab.transfer.trials import PREDICTIONS, Trial

MOST_CLASSES = 20
"""Of a matrix; where there are more, the most frequent confusions are listed."""
SHOWN = 10
MOST_POINTS = 2000
LONGEST = 260
WORDS_AROUND, MOST_WORDS = 6, 32

Line = Mapping[str, Any]
Facts = dict[str, Any]


def find_shown(study: Study) -> Result | None:
    """The result whose predictions are shown: the run itself, or of the ways that learnt from most examples the best.

    The best is the one with the best mean; of its seeds the first is taken, for the best seed would flatter it.
    """
    learnt = [result for result in study.results if result.how != "baseline"]
    if study.kind == "run" or not learnt:
        return learnt[0] if learnt else None

    def rank(row: Row) -> tuple[int, float]:
        found = row.values[study.metric]
        value = -math.inf if found.value is None else found.value if found.better == "higher" else -found.value
        return row.examples, value

    best = key_of(max((row for row in study.table if row.how != "baseline"), key=rank))
    return next(result for result in learnt if key_of(result) == best)


def find_predictions(study: Study, result: Result, folder: Path) -> Path | None:
    """The file with the predictions of a result, where it is kept."""
    if study.kind == "run":
        places = [folder]
    else:
        origin = Path(result.run or result.name)
        trials = (
            Trial(origin=origin, how=result.how, take=take, seed=result.seed, layers=result.layers)
            for take in (None, result.examples)
        )
        places = [folder / "trials" / trial.name for trial in trials]
    return next((place / PREDICTIONS for place in places if (place / PREDICTIONS).is_file()), None)


def gather_evidence(study: Study, folder: Path) -> Facts | None:
    """All that the predictions show, ready for a page; None where there are none."""
    result = find_shown(study)
    path = None if result is None else find_predictions(study, result, folder)
    if result is None or path is None:
        return None
    text = path.read_text(encoding="utf-8")
    lines = [_read_line(line) for line in text.split("\n") if line]  # a text may hold other ends of lines
    lines = [line for line in lines if line["true"] is not None and line["predicted"] is not None]
    if not lines:
        return None
    spans = study.task == "tagging" and any(label.startswith("B-") for label in study.labels)
    right = [_is_right(study.task, line) for line in lines] if study.task != "spans" else _exact(lines)
    found: Facts = {"of": result.model_dump(), "count": len(lines), "wrong": right.count(False), "spans": spans}
    if study.task == "classification" or (study.task == "tagging" and not spans):
        found |= _confusion(study, lines)
    if spans:
        scores = scores_by_type([line["predicted"] for line in lines], [line["true"] for line in lines])
        found["types"] = [{"type": name, **each._asdict()} for name, each in scores.items()]
    if study.task == "regression":
        points = [(float(line["true"]), float(line["predicted"])) for line in lines[:MOST_POINTS]]
        found["scatter"] = [point for point in points if all(map(math.isfinite, point))]
    if study.task in ("classification", "choice"):
        found |= _calibration(lines, right)
    found["mistakes"] = _mistakes(study, lines, right)
    return found


def _read_line(text: str) -> Line:
    """A prediction; what is no number is none, as of a model whose weights ran away."""
    return dict(json.loads(text, parse_constant=lambda _: None))


def _is_right(task: str, line: Line) -> bool:
    return task != "regression" and bool(line["predicted"] == line["true"])


def _exact(lines: Sequence[Line]) -> list[bool]:
    agreements = ExactMatch().statistics([line["predicted"] for line in lines], [line["true"] for line in lines])
    return [bool(row[0]) for row in agreements]


def _confusion(study: Study, lines: Sequence[Line]) -> Facts:
    """Counts of every pair of a true and a predicted class (or tag), as a matrix where the classes are few."""
    pairs: Counter[tuple[str, str]] = Counter()
    for line in lines:
        if study.task == "tagging":
            pairs.update(zip(line["true"], line["predicted"], strict=True))
        else:
            pairs[str(line["true"]), str(line["predicted"])] += 1
    seen = {label for pair in pairs for label in pair}
    labels = [*study.labels, *sorted(seen - set(study.labels))]
    if len(labels) <= MOST_CLASSES:
        return {"confusion": {"labels": labels, "counts": [[pairs[a, b] for b in labels] for a in labels]}}
    wrong = [(a, b, count) for (a, b), count in pairs.most_common() if a != b]
    return {"confusions": wrong[:SHOWN]}


def _calibration(lines: Sequence[Line], right: Sequence[bool]) -> Facts:
    known = [
        (min(1.0, max(0.0, line["probability"])), correct)
        for line, correct in zip(lines, right, strict=True)
        if line["probability"] is not None
    ]
    if not known:
        return {}
    sure, correct = [each for each, _ in known], [each for _, each in known]
    bins = [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in each._asdict().items()
        }
        for each in reliability_curve(sure, correct)
    ]
    return {
        "calibration": {
            "bins": bins,
            "error": expected_calibration_error(sure, correct),
            "confidence": sum(sure) / len(sure),
            "accuracy": sum(correct) / len(correct),
        }
    }


def _mistakes(study: Study, lines: Sequence[Line], right: Sequence[bool]) -> list[Facts]:
    """The mistakes of which the model was surest, or the largest errors."""
    if study.task == "regression":
        largest = sorted(lines, key=lambda line: -abs(line["predicted"] - line["true"]))[:SHOWN]
        return [_error(line) for line in largest]
    wrong = [line for line, correct in zip(lines, right, strict=True) if not correct]
    wrong.sort(key=lambda line: -(-1.0 if line["probability"] is None else line["probability"]))
    describe = {"tagging": _tagged, "spans": _answered, "choice": _chosen}.get(study.task, _classified)
    return [{"sure": _sure(line), **describe(line)} for line in wrong[:SHOWN]]


def _sure(line: Line) -> str:
    return "" if line["probability"] is None else f"{100 * line['probability']:.1f}% sure"


def _texts(line: Line) -> list[str]:
    texts = [line["text"], *([line["second"]] if line.get("second") is not None else [])]
    return [shorten(text if isinstance(text, str) else " ".join(text)) for text in texts]


def _classified(line: Line) -> Facts:
    return {"texts": _texts(line), "predicted": str(line["predicted"]), "true": str(line["true"])}


def _error(line: Line) -> Facts:
    off = line["predicted"] - line["true"]
    told = f"off by {abs(off):.3g}, too {'high' if off > 0 else 'low'}"
    return {
        "sure": told,
        "texts": _texts(line),
        "predicted": f"{line['predicted']:.3g}",
        "true": f"{line['true']:.3g}",
    }


def _chosen(line: Line) -> Facts:
    choices = line.get("choices") or []
    told = [
        shorten(choices[number]) if 0 <= number < len(choices) else str(number)
        for number in (line["predicted"], line["true"])
    ]
    others = [
        shorten(choice) for number, choice in enumerate(choices) if number not in (line["predicted"], line["true"])
    ]
    texts = [*_texts(line), *([f"other choices: {' · '.join(others)}"] if others else [])]
    return {"texts": texts, "predicted": told[0], "true": told[1]}


def _answered(line: Line) -> Facts:
    answers = list(dict.fromkeys(line["true"]))
    sought = answers[0] if answers else line["predicted"]
    context = line.get("second") or ""
    texts = [shorten(line["text"]), *([shorten(context, around=sought)] if context else [])]
    return {"texts": texts, "predicted": shorten(line["predicted"]), "true": [shorten(each) for each in answers]}


def _tagged(line: Line) -> Facts:
    """The words round the first mistake, with their tags."""
    words = list(zip(line["text"], line["true"], line["predicted"], strict=True))
    off = [place for place, (_, true, predicted) in enumerate(words) if true != predicted]
    start = max(0, off[0] - WORDS_AROUND)
    end = min(len(words), off[-1] + 1 + WORDS_AROUND, start + MOST_WORDS)
    before = [("…", "", "")] if start else []
    after = [("…", "", "")] if end < len(words) else []
    return {"words": [*before, *words[start:end], *after]}


def shorten(text: str, *, around: str = "") -> str:
    """A text in one line that is not too long: its beginning, or what stands round some words of it."""
    text, around = " ".join(text.split()), " ".join(around.split())
    if len(text) <= LONGEST:
        return text
    place = text.find(around) if around else 0
    start = max(0, place + len(around) // 2 - LONGEST // 2) if place > 0 else 0
    start = min(start, len(text) - LONGEST)
    end = start + LONGEST
    words = text[start:end]
    if start and " " in words:
        words = words.partition(" ")[2]
    if end < len(text) and " " in words:
        words = words.rpartition(" ")[0]
    return f"{'… ' if start else ''}{words.strip()}{' …' if end < len(text) else ''}"
