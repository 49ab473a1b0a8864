"""What the predictions of one model show, as sections of a page: confusions, mistakes, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from lmlab.metrics.statistics import wilson
from lmlab.pages import parts
from lmlab.pages.plots import Bin, draw_reliability, draw_scatter
from lmlab.pages.scores import format_score

UPRIGHT_ABOVE = 90
"""Letters in the head of a confusion matrix above which they are written upright."""
ENOUGH = 0.02
"""The least gap between confidence and accuracy that is called one."""


class Word(NamedTuple):
    """A tagged word of a mistake."""

    text: str
    true: str
    predicted: str


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One wrong prediction: texts with what was predicted and what is true, or words with their tags."""

    confidence: str = ""
    texts: Sequence[str] = ()
    predicted: str = ""
    true: str | Sequence[str] = ""
    words: Sequence[Word] = ()


class Confusion(NamedTuple):
    """Counts of each true class (rows) and predicted class (columns)."""

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]


class TypeScores(NamedTuple):
    """How well the spans of one type are found."""

    type: str
    f1: float
    precision: float
    recall: float
    gold: int
    predicted: int
    correct: int


class Calibration(NamedTuple):
    """Confidence against accuracy; fractions, the bins in percent."""

    bins: Sequence[Bin]
    error: float
    confidence: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the predictions of a model for labelled examples show; empty parts are left out of the page."""

    count: int
    wrong: int
    mistakes: Sequence[Mistake]
    title: str = "The worst mistakes"
    summary: str = ""
    """A sentence about all mistakes, before the worst of them."""
    counted: str = "examples"
    """What a confusion matrix counts."""
    confusion: Confusion | None = None
    confusions: Sequence[tuple[str, str, int]] = ()
    """(true, predicted, count), the most frequent first, where there are too many classes for a matrix."""
    types: Sequence[TypeScores] = ()
    scatter: Sequence[tuple[float, float]] = ()
    """(true, predicted)."""
    calibration: Calibration | None = None


def show_confusion(evidence: Evidence, *, about: str, classes: int) -> str:
    """The confusion matrix, the most frequent confusions, or the scores of each type of span."""
    if evidence.confusion is not None:
        how = f"{about} Each row shows how the {evidence.counted} of a class were predicted."
        return parts.section("Confusion matrix", how, draw_confusion(evidence.confusion))
    if evidence.confusions:
        how = f"{about} The most frequent confusions among {classes} classes."
        return parts.section("Most frequent confusions", how, list_confusions(evidence.confusions))
    if evidence.types:
        how = f"{about} A span is right where its type, its first and its last word are, as conlleval counts."
        return parts.section("How well each type is found", how, list_types(evidence.types))
    return ""


def show_scatter(evidence: Evidence, *, about: str) -> str:
    """Predicted against true numbers."""
    if not evidence.scatter:
        return ""
    how = f"{about} On the dotted line, predicted and true number are equal."
    drawn = draw_scatter(evidence.scatter, title="Predicted against true numbers", x_label="true", y_label="predicted")
    return parts.section("Predicted against true", how, f"<figure>{drawn}</figure>")


def show_mistakes(evidence: Evidence, *, about: str) -> str:
    """The mistakes with the highest confidence, or the largest errors."""
    if not evidence.mistakes:
        none = f"<p>There is none: all {evidence.count:,} examples are right.</p>"
        return parts.section(evidence.title, "", none)
    cards = "".join(map(_card, evidence.mistakes))
    return parts.section(evidence.title, f"{about} {evidence.summary}".strip(), f'<div class="cards">{cards}</div>')


def show_calibration(evidence: Evidence, *, about: str) -> str:
    """A reliability diagram, with the expected calibration error."""
    found = evidence.calibration
    if found is None:
        return ""
    listed = parts.facts(
        {
            "expected calibration error": f"{format_score(found.error)} points (0 is best)",
            "mean confidence": f"{format_score(found.confidence)}%",
            "right": f"{format_score(found.accuracy)}%",
            "on the whole": describe_calibration(found),
        }
    )
    how = (
        f"{about} Predictions grouped by confidence; a bar below the dotted line: confidence is too high. The number "
        "in each bar is how many predictions it has; few make it uncertain."
    )
    drawn = draw_reliability(found.bins, title="Reliability: fraction of right predictions by confidence")
    return parts.section(
        "Can its confidence be trusted?", how, f'<div class="pair"><figure>{drawn}</figure><dl>{listed}</dl></div>'
    )


def describe_calibration(found: Calibration) -> str:
    """Whether confidence is too high, too low or right, as far as the number of examples can show."""
    count, gap = sum(each.size for each in found.bins), found.confidence - found.accuracy
    _, low, high = wilson(round(found.accuracy * count), count)
    if low is not None and high is not None:
        if abs(gap) > ENOUGH and not low <= found.confidence <= high:
            return "overconfident" if gap > 0 else "underconfident"
        if high - low <= 2 * ENOUGH:
            return "well calibrated"
    return "no clear error, as far as so few examples tell"


def draw_confusion(confusion: Confusion) -> str:
    """True classes in rows, predicted ones in columns; the darker, the larger the fraction of the row."""
    labels, counts = confusion
    columns = [sum(row[i] for row in counts) for i in range(len(labels))]
    lines = []
    for number, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = sum(row)
        cells = ""
        for other, count in enumerate(row):
            fraction = count / total if total else 0.0
            title = f"{count:,} of {total:,} examples of {label} are predicted as {labels[other]}"
            kind = "right" if other == number else "wrong"
            cells += f'<td class="{kind}" style="--w:{fraction:.3f}" title="{escape(title)}">{count or ""}</td>'
        recall = format_score(row[number] / total if total else None)
        lines.append(
            f'<tr><th scope="row" title="{escape(label)}">{escape(_cut(label))}</th>{cells}<td>{recall}</td></tr>'
        )
    precision = "".join(
        f"<td>{format_score(counts[i][i] / columns[i] if columns[i] else None)}</td>" for i in range(len(labels))
    )
    lines.append(f'<tr class="foot"><th scope="row">precision</th>{precision}<td></td></tr>')
    head = ["true ↓ · predicted →", *(f'<span title="{escape(each)}">{escape(_cut(each))}</span>' for each in labels)]
    kind = "confusion many" if sum(len(_cut(label)) + 3 for label in labels) > UPRIGHT_ABOVE else "confusion"
    return f'<div class="scroll">{parts.table([*head, "recall"], lines, kind=kind)}</div>'


def list_confusions(pairs: Sequence[tuple[str, str, int]]) -> str:
    """The most frequent confusions, where there are too many classes for a matrix."""
    rows = [f"<tr><td>{escape(a)}</td><td>{escape(b)}</td><td>{count:,}</td></tr>" for a, b, count in pairs]
    return f'<div class="scroll">{parts.table(["true", "predicted", "examples"], rows, kind="narrow")}</div>'


def list_types(types: Sequence[TypeScores]) -> str:
    """Precision, recall and F1 of the spans of each type."""
    rows = [
        f"<tr><td><b>{escape(each.type)}</b></td><td class=scale>{_f1_bar(each.f1)}</td>"
        f"<td><b>{format_score(each.f1)}</b></td><td>{format_score(each.precision)}</td>"
        f"<td>{format_score(each.recall)}</td><td>{each.gold:,}</td><td>{each.predicted:,}</td>"
        f"<td>{each.correct:,}</td></tr>"
        for each in types
    ]
    head = ["type", "", "F1", "precision", "recall", "gold", "predicted", "correct"]
    return f'<div class="scroll">{parts.table(head, rows, kind="scores")}</div>'


def _f1_bar(value: float) -> str:
    title = f"F1 {format_score(value)}"
    bar = f'<span style="left:0;width:{100 * value:.2f}%;--c:var(--accent)"></span>'
    return f'<div role="img" aria-label="{title}" title="{title}">{bar}</div>'


def _card(mistake: Mistake) -> str:
    """A mistake: its texts, what was predicted and what is true, and the confidence of the model."""
    confidence = f"<small>{escape(mistake.confidence)}</small>" if mistake.confidence else ""
    if mistake.words:
        return f'<article>{confidence}<p class="tagged">{" ".join(map(_word, mistake.words))}</p></article>'
    texts = "".join(f"<p>{escape(text)}</p>" for text in mistake.texts)
    labels = (
        f'<dl><dt>predicted</dt><dd class="said">{_lines(mistake.predicted)}</dd>'
        f"<dt>true</dt><dd>{_lines(mistake.true)}</dd></dl>"
    )
    return f"<article>{confidence}{texts}{labels}</article>"


def _lines(text: str | Sequence[str]) -> str:
    if isinstance(text, str):
        return escape(text) if text.strip() else "<i>(no answer)</i>"
    return "<br>".join(map(escape, text)) if text else "<i>(no answer)</i>"


def _word(word: Word) -> str:
    """A word; below it, where they differ, the predicted and the true tag; otherwise the tag, unless it is O."""
    text, true, predicted = word
    if true != predicted:
        title = f"predicted {predicted}, true {true}"
        tags = f"<small>{escape(predicted)} ≠ {escape(true)}</small>"
        return f'<span class="off" title="{escape(title)}">{escape(text)}{tags}</span>'
    return f"<span>{escape(text)}<small>{escape(true)}</small></span>" if true not in ("O", "") else escape(text)


def _cut(label: str) -> str:
    return label if len(label) <= 22 else f"{label[:21]}…"
