"""What a model of a task gets wrong, as HTML: a matrix of classes, a table of types, and its worst mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lmlab.pages import parts
from lmlab.pages.scores import tell_score

Facts = Mapping[str, Any]
WIDE = 90
"""Letters side by side in the head of a matrix; where there are more, they stand upright."""


def draw_confusion(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """True classes in rows, predicted ones in columns; the darker, the larger the share of the row."""
    columns = [sum(row[i] for row in counts) for i in range(len(labels))]
    lines = []
    for number, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = sum(row)
        cells = ""
        for other, count in enumerate(row):
            share = count / total if total else 0.0
            told = f"{count:,} of {total:,} examples of {label} are predicted as {labels[other]}"
            kind = "right" if other == number else "wrong"
            cells += f'<td class="{kind}" style="--w:{share:.3f}" title="{escape(told)}">{count or ""}</td>'
        recall = tell_score(row[number] / total if total else None)
        lines.append(
            f'<tr><th scope="row" title="{escape(label)}">{escape(_cut(label))}</th>{cells}<td>{recall}</td></tr>'
        )
    precision = "".join(
        f"<td>{tell_score(counts[i][i] / columns[i] if columns[i] else None)}</td>" for i in range(len(labels))
    )
    lines.append(f'<tr class="foot"><th scope="row">precision</th>{precision}<td></td></tr>')
    head = ["true ↓ · predicted →", *(f'<span title="{escape(each)}">{escape(_cut(each))}</span>' for each in labels)]
    kind = "confusion many" if sum(len(_cut(label)) + 3 for label in labels) > WIDE else "confusion"
    return f'<div class="scroll">{parts.table([*head, "recall"], lines, kind=kind)}</div>'


def list_confusions(pairs: Sequence[tuple[str, str, int]]) -> str:
    """Which class was most often taken for which, where there are too many for a matrix."""
    rows = [f"<tr><td>{escape(a)}</td><td>{escape(b)}</td><td>{count:,}</td></tr>" for a, b, count in pairs]
    return f'<div class="scroll">{parts.table(["true", "predicted", "examples"], rows, kind="narrow")}</div>'


def list_types(types: Sequence[Facts]) -> str:
    """How well spans of each type are found."""
    rows = [
        f"<tr><td><b>{escape(each['type'])}</b></td><td class=scale>{_share(each['f1'])}</td>"
        f"<td><b>{tell_score(each['f1'])}</b></td><td>{tell_score(each['precision'])}</td>"
        f"<td>{tell_score(each['recall'])}</td><td>{each['there']:,}</td><td>{each['found']:,}</td>"
        f"<td>{each['correct']:,}</td></tr>"
        for each in types
    ]
    head = ["type", "", "F1", "precision", "recall", "there", "found", "right"]
    return f'<div class="scroll">{parts.table(head, rows, kind="scores")}</div>'


def _share(value: float) -> str:
    told = f"F1 {tell_score(value)}"
    bar = f'<span style="left:0;width:{100 * value:.2f}%;--c:var(--accent)"></span>'
    return f'<div role="img" aria-label="{told}" title="{told}">{bar}</div>'


def list_mistakes(mistakes: Sequence[Facts]) -> str:
    """Each mistake on a card: what it is about, what was said and what is true, and how sure the model was."""
    return f'<div class="cards">{"".join(map(_card, mistakes))}</div>'


def _card(mistake: Facts) -> str:
    sure = f"<small>{escape(mistake['sure'])}</small>" if mistake["sure"] else ""
    if "words" in mistake:
        return f'<article>{sure}<p class="tagged">{" ".join(_word(*word) for word in mistake["words"])}</p></article>'
    texts = "".join(f"<p>{escape(text)}</p>" for text in mistake["texts"])
    said = (
        f'<dl><dt>predicted</dt><dd class="said">{_lines(mistake["predicted"])}</dd>'
        f"<dt>true</dt><dd>{_lines(mistake['true'])}</dd></dl>"
    )
    return f"<article>{sure}{texts}{said}</article>"


def _lines(text: str | Sequence[str]) -> str:
    if isinstance(text, str):
        return escape(text) if text.strip() else "<i>(no answer)</i>"
    return "<br>".join(map(escape, text)) if text else "<i>(no answer)</i>"


def _word(word: str, true: str, predicted: str) -> str:
    """A word; under it, where they differ, the predicted tag and the true one; tags that mark something where not."""
    if true != predicted:
        told = f"predicted {predicted}, true {true}"
        tags = f"<small>{escape(predicted)} ≠ {escape(true)}</small>"
        return f'<span class="off" title="{escape(told)}">{escape(word)}{tags}</span>'
    return f"<span>{escape(word)}<small>{escape(true)}</small></span>" if true not in ("O", "") else escape(word)


def _cut(label: str) -> str:
    return label if len(label) <= 22 else f"{label[:21]}…"
