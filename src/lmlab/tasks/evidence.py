"""What predictions show beyond a score: confusions, calibration, the worst mistakes. Parts that several tasks use.

A line is one prediction as `predictions.jsonl` has it: text, second, choices, predicted, true, probability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lmlab.data.readers.examples import Example
from lmlab.metrics.calibration import expected_calibration_error, reliability_curve
from lmlab.pages.evidence import Calibration, Confusion, Evidence, EvidenceWord, Mistake
from lmlab.pages.figures import ReliabilityBin

MOST_CLASSES = 20
"""Classes of a confusion matrix; with more, the most frequent confusions are listed."""
SHOWN = 10
"""Mistakes and confusions that are listed."""
LONGEST = 260
"""Characters of a text."""
WORDS_AROUND, MOST_WORDS = 6, 32
"""Words around the first wrong tag, and in all."""

Line = Mapping[str, Any]


def make_evidence(
    lines: Sequence[Line],
    right: Sequence[bool],
    *,
    describe: Callable[[Line], Mistake],
    wrong: str = "are wrong",
    note: str = "",
    **parts: Any,
) -> Evidence:
    """Evidence with the mistakes that had the highest confidence; `parts` are further fields of it."""
    mistaken = [line for line, correct in zip(lines, right, strict=True) if not correct]
    mistaken.sort(key=lambda line: -(-1.0 if line["probability"] is None else line["probability"]))
    summary = f"{len(mistaken):,} {wrong}; those with the highest confidence come first. {note}"
    return Evidence(
        count=len(lines),
        wrong=len(mistaken),
        mistakes=[replace(describe(line), confidence=_confidence(line)) for line in mistaken[:SHOWN]],
        summary=summary.strip(),
        **parts,
    )


def count_confusions(pairs: Counter[tuple[str, str]], labels: Sequence[str]) -> dict[str, Any]:
    """Counts of (true, predicted): a matrix where the classes are few, otherwise the most frequent confusions."""
    others = sorted({label for pair in pairs for label in pair} - set(labels))
    names = [*labels, *others]
    if len(names) <= MOST_CLASSES:
        return {"confusion": Confusion(names, [[pairs[a, b] for b in names] for a in names])}
    return {"confusions": [(a, b, count) for (a, b), count in pairs.most_common() if a != b][:SHOWN]}


def calibrate(lines: Sequence[Line], right: Sequence[bool]) -> Calibration | None:
    """Confidence against accuracy; None where no prediction has a probability."""
    known = [
        (min(1.0, max(0.0, line["probability"])), correct)
        for line, correct in zip(lines, right, strict=True)
        if line["probability"] is not None
    ]
    if not known:
        return None
    confidence, correct = [each for each, _ in known], [each for _, each in known]
    bins = [
        ReliabilityBin(
            100 * each.low,
            100 * each.high,
            each.size,
            100 * each.confidence if each.size else None,
            100 * each.accuracy if each.size else None,
        )
        for each in reliability_curve(confidence, correct)
    ]
    return Calibration(
        bins,
        expected_calibration_error(confidence, correct),
        sum(confidence) / len(confidence),
        sum(correct) / len(correct),
    )


def describe_texts(line: Line) -> Mistake:
    """A wrong class."""
    return Mistake(texts=_texts(line), predicted=str(line["predicted"]), true=str(line["true"]))


def describe_error(line: Line) -> Mistake:
    """A number that is off."""
    error = line["predicted"] - line["true"]
    return Mistake(
        confidence=f"off by {abs(error):.3g}, too {'high' if error > 0 else 'low'}",
        texts=_texts(line),
        predicted=f"{line['predicted']:.3g}",
        true=f"{line['true']:.3g}",
    )


def describe_choice(line: Line) -> Mistake:
    """A wrong choice, with the other choices."""
    choices = line.get("choices") or []
    predicted, true = (
        shorten(choices[number]) if 0 <= number < len(choices) else str(number)
        for number in (line["predicted"], line["true"])
    )
    others = [
        shorten(choice) for number, choice in enumerate(choices) if number not in (line["predicted"], line["true"])
    ]
    texts = [*_texts(line), *([f"other choices: {' · '.join(others)}"] if others else [])]
    return Mistake(texts=texts, predicted=predicted, true=true)


def describe_answer(line: Line) -> Mistake:
    """A wrong answer, with the part of the context that has the right one."""
    answers = list(dict.fromkeys(line["true"]))
    sought = answers[0] if answers else line["predicted"]
    context = line.get("second") or ""
    texts = [shorten(line["text"]), *([shorten(context, around=sought)] if context else [])]
    return Mistake(texts=texts, predicted=shorten(line["predicted"]), true=[shorten(each) for each in answers])


def describe_tags(line: Line) -> Mistake:
    """The words around the first wrong tag, with their tags."""
    words = [EvidenceWord(*each) for each in zip(line["text"], line["true"], line["predicted"], strict=True)]
    wrong = [number for number, word in enumerate(words) if word.true != word.predicted]
    start = max(0, wrong[0] - WORDS_AROUND)
    end = min(len(words), wrong[-1] + 1 + WORDS_AROUND, start + MOST_WORDS)
    before = [EvidenceWord("…", "", "")] if start else []
    after = [EvidenceWord("…", "", "")] if end < len(words) else []
    return Mistake(words=[*before, *words[start:end], *after])


def shorten(text: str, *, around: str = "") -> str:
    """A text in one line that is not too long: its beginning, or the part around some words of it."""
    text, around = " ".join(text.split()), " ".join(around.split())
    if len(text) <= LONGEST:
        return text
    found = text.find(around) if around else 0
    start = max(0, found + len(around) // 2 - LONGEST // 2) if found > 0 else 0
    start = min(start, len(text) - LONGEST)
    end = start + LONGEST
    words = text[start:end]
    if start and " " in words:
        words = words.partition(" ")[2]
    if end < len(text) and " " in words:
        words = words.rpartition(" ")[0]
    return f"{'… ' if start else ''}{words.strip()}{' …' if end < len(text) else ''}"


def shorten_names(names: Sequence[str], most: int = 5) -> str:
    """A few of many names, with commas."""
    return ", ".join([*names[:most], *["…"] * (len(names) > most)])


def name_labels(examples: Sequence[Example]) -> list[str]:
    """The different labels of examples as names."""
    labels = (example.label for example in examples)
    return list(dict.fromkeys(f"{each:g}" if isinstance(each, float) else str(each) for each in labels))


def _confidence(line: Line) -> str:
    return "" if line["probability"] is None else f"{100 * line['probability']:.1f}% sure"


def _texts(line: Line) -> list[str]:
    texts = [line["text"], *([line["second"]] if line.get("second") is not None else [])]
    return [shorten(text if isinstance(text, str) else " ".join(text)) for text in texts]
