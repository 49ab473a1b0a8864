"""What the predictions of one model of a task show, as sections of a page: confusions, mistakes, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from lmlab.metrics.statistics import wilson
from lmlab.pages import parts
from lmlab.pages.mistakes import draw_confusion, list_confusions, list_mistakes, list_types
from lmlab.pages.plots import Bin, draw_reliability, draw_scatter
from lmlab.pages.scores import tell_score, tell_way

Facts = Mapping[str, Any]


def _of(facts: Facts) -> str:
    """Whose predictions these are."""
    of, evidence = facts["evidence"]["of"], facts["evidence"]
    seeds = next((len(row["seeds"]) for row in facts["rows"] if row["key"] == facts["shown"]), 1)
    seed = f", seed {of['seed']}" if seeds > 1 else ""
    return f"{escape(tell_way(of))}{seed}, {evidence['count']:,} {escape(of['split'])} examples."


def show_confusion(facts: Facts) -> str:
    evidence = facts["evidence"] or {}
    if found := evidence.get("confusion"):
        units = "words" if facts["task"] == "tagging" else "examples"
        how = f"{_of(facts)} Each row shows what became of the {units} of a class."
        return parts.section("Confusion matrix", how, draw_confusion(found["labels"], found["counts"]))
    if pairs := evidence.get("confusions"):
        how = f"{_of(facts)} The most frequent confusions among {len(facts['labels'])} classes."
        return parts.section("Most frequent confusions", how, list_confusions(pairs))
    if types := evidence.get("types"):
        how = f"{_of(facts)} A span is right where its type, its first and its last word are, as conlleval counts."
        return parts.section("How well each type is found", how, list_types(types))
    return ""


def show_scatter(facts: Facts) -> str:
    points = (facts["evidence"] or {}).get("scatter")
    if not points:
        return ""
    how = f"{_of(facts)} On the dotted line, predicted and true number are equal."
    drawn = draw_scatter(points, title="Predicted against true numbers", x_label="true", y_label="predicted")
    return parts.section("Predicted against true", how, f"<figure>{drawn}</figure>")


def show_mistakes(facts: Facts) -> str:
    evidence = facts["evidence"]
    if evidence is None:
        return ""
    if facts["task"] == "regression":
        return parts.section("The largest errors", _of(facts), list_mistakes(evidence["mistakes"]))
    if not evidence["mistakes"]:
        told = f"<p>There is none: all {evidence['count']:,} examples are right.</p>"
        return parts.section("The worst mistakes", "", told)
    what = {"tagging": "sentences have a wrong tag", "spans": "answers are not exactly right"}
    how = (
        f"{_of(facts)} {evidence['wrong']:,} {what.get(facts['task'], 'are wrong')}; here are those of which the model "
        "was surest."
    )
    if facts["task"] == "tagging":
        how += " Under a word its tag; in red, what was predicted ≠ what is true."
    return parts.section("The worst mistakes", how, list_mistakes(evidence["mistakes"]))


def show_calibration(facts: Facts) -> str:
    found = (facts["evidence"] or {}).get("calibration")
    if not found:
        return ""
    bins = [
        Bin(
            100 * each["low"],
            100 * each["high"],
            each["size"],
            *(None if each[name] is None else 100 * each[name] for name in ("confidence", "accuracy")),
        )
        for each in found["bins"]
    ]
    right, count = found["accuracy"], sum(each.size for each in bins)
    gap, (_, low, high) = found["confidence"] - right, wilson(round(right * count), count)
    verdict = "as sure as it is right, as far as so few examples tell"
    if low is None or high is None:
        pass
    elif abs(gap) > 0.02 and not low <= found["confidence"] <= high:
        verdict = "overconfident" if gap > 0 else "underconfident"
    elif high - low <= 0.04:
        verdict = "about as sure as it is right"
    told = parts.facts(
        {
            "expected calibration error": f"{tell_score(found['error'])} points (0 is best)",
            "mean confidence": f"{tell_score(found['confidence'])}%",
            "right": f"{tell_score(found['accuracy'])}%",
            "so on the whole it is": verdict,
        }
    )
    how = (
        f"{_of(facts)} Predictions by how sure the model was of them; a bar below the dotted line: it promises too "
        "much. In each bar, how many predictions it stands for; few make it uncertain."
    )
    drawn = draw_reliability(bins, title="Reliability: share of right predictions by confidence")
    return parts.section(
        "Can its confidence be trusted?", how, f'<div class="pair"><figure>{drawn}</figure><dl>{told}</dl></div>'
    )
