"""What scores of a task come to in words: a headline, a first sentence, and the figures that matter most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lmlab.pages.scores import WAYS, tell_layers, tell_measure, tell_score, tell_way, worst_of

Facts = Mapping[str, Any]
TASKS = {
    "classification": "to tell {classes} apart",
    "tagging": "to tag words",
    "regression": "to give a number to each example",
    "choice": "to choose among answers",
    "spans": "to find answers in a text",
}

FLATTERED = "The first of several is flattered by being chosen on the examples that it is scored on."


def find_row(facts: Facts) -> Facts | None:
    """The row that the page is about."""
    return next((row for row in facts["rows"] if row["key"] == facts["shown"]), None)


def tell_headline(facts: Facts) -> str:
    """The result in one line."""
    row, metric = find_row(facts), facts["metric"]
    data = ", ".join(each.rstrip("/").rpartition("/")[2] for each in facts["data"].split(", "))
    if row is None:
        return f"What there is to beat on {data}"
    score = f"{tell_measure(metric)} {tell_score(row['values'][metric]['value'])}"
    if facts["kind"] == "curve":
        rows = [each for each in facts["rows"] if each["how"] == row["how"] and each["name"] == row["name"]]
        least = min(rows, key=lambda each: each["examples"])
        first = tell_score(least["values"][metric]["value"])
        if least is not row:
            return (
                f"{row['name']} on {data}: {tell_measure(metric)} {first} with {least['examples']:,} examples, "
                f"{tell_score(row['values'][metric]['value'])} with {row['examples']:,}"
            )
    if facts["kind"] == "layers":
        return f"Layers of {row['name']} on {data}: {tell_layers(row['layers'])} comes first, {score}"
    if facts["kind"] == "comparison":
        return f"{tell_way(row)} comes first on {data}: {score}"
    return f"{row['name']} on {data}: {score}"


def tell_lead(facts: Facts) -> str:
    """One plain sentence of what was learnt from what, and how it stands beside the rest; HTML."""
    labels = facts["labels"]
    names = ", ".join(labels) if len(labels) <= 6 else f"{', '.join(labels[:5])} …"
    classes = f"{len(labels)} classes ({names})" if labels else "classes"
    learnt = TASKS.get(facts["task"], "a task").format(classes=classes)
    learners = list(dict.fromkeys(row["name"] for row in facts["rows"] if row["how"] != "baseline"))
    who = " and ".join([", ".join(learners[:-1]), learners[-1]] if len(learners) > 1 else learners) or "Nothing"
    most = max((row["examples"] for row in facts["rows"]), default=0)
    upto = "up to " if facts["kind"] == "curve" else ""
    row = find_row(facts)
    way = f" ({row['how']}: {WAYS.get(row['how'], '')})" if row is not None and facts["kind"] == "run" else ""
    told = (
        f"{who}{way} learnt {learnt} from {upto}{most:,} examples of {facts['data']} ({facts['format']}), and "
        f"{'was' if len(learners) < 2 else 'were'} scored on {facts['count']:,} {facts['split']} examples"
        f"{' of ' if facts['scored'] else ''}{facts['scored']}."
    )
    return f"<b>{escape(told)}</b> {escape(_beside(facts))}".strip()


def _beside(facts: Facts) -> str:
    """How the row that the page is about stands beside the others that learnt from as many examples."""
    row, metric = find_row(facts), facts["metric"]
    if row is None or row["values"][metric]["value"] is None:
        return ""
    others = [
        other
        for other in facts["rows"]
        if other is not row and other["examples"] == row["examples"] and other["values"][metric]["value"] is not None
    ]
    if facts.get("leads"):
        return f"{tell_leads(facts['leads'])} {FLATTERED}"
    return _order(row, others) if facts["kind"] in ("layers", "comparison") else _distances(row, others, metric)


def tell_leads(leads: Sequence[Facts]) -> str:
    """How far the best is ahead of each of the others, on the same draws of the examples."""
    told = []
    for lead in leads:
        interval = ""
        if lead["low"] is not None and lead["high"] is not None:
            interval = (
                f" (95% interval {100 * lead['low']:+.1f} to {100 * lead['high']:+.1f}, p = {_tell_p(lead['p'])})"
            )
        told.append(f"{100 * lead['ahead']:.1f} points ahead of {lead['second']}{interval}")
    return f"On the same draws of the examples, {leads[0]['first']} is {', '.join(told)}."


def _tell_p(p: float) -> str:
    return f"{p:.2f}" if p >= 0.01 else f"{p:.0e}".replace("e-0", "e-")


def _distances(row: Facts, others: Sequence[Facts], metric: str) -> str:
    said = []
    for other in others:
        ahead = round(100 * (row["values"][metric]["value"] - other["values"][metric]["value"]), 1)
        name = other["name"]
        if other["how"] != "baseline":
            name = {"scratch": "the same net from scratch"}.get(other["how"], f"the same model {other['how']}")
        side = "above" if ahead > 0 else "below"
        said.append(f"{abs(ahead):.1f} points {side} {name}" if ahead else f"level with {name}")
    if not said:
        return ""
    doubt = (
        " Where intervals overlap, a difference may be chance." if any(_overlap(row, each) for each in others) else ""
    )
    return f"It is {', '.join(said)}.{doubt}"


def _order(row: Facts, others: Sequence[Facts]) -> str:
    """How many of the others could be as good as the first, which was found on the examples that it is scored on."""
    close = sum(_overlap(row, other) for other in others if other["how"] != "baseline")
    if not close:
        return ""
    return f"The interval of the first overlaps with {close} of the others: their order may be chance. {FLATTERED}"


def _overlap(one: Facts, other: Facts) -> bool:
    """Whether two scores could be the same, over seeds and over draws of the examples."""
    if one["reach"] is None or other["reach"] is None:
        return True
    return bool(one["reach"][0] <= other["reach"][1] and other["reach"][0] <= one["reach"][1])


def tell_figures(facts: Facts) -> list[tuple[str, str]]:
    """The few numbers that matter most, each with what it is."""
    row, metric = find_row(facts), facts["metric"]
    if row is None:
        return []
    value = row["values"][metric]["value"]
    tiles = [(tell_score(value), f"{tell_measure(metric)}: {tell_way(row)}")]
    known = [seed for seed in row["seeds"] if seed is not None]
    if len(row["seeds"]) > 1 and known:
        tiles.append((tell_score(worst_of(row)), f"the worst of {len(row['seeds'])} seeds"))
    for other in facts["rows"]:
        same = other["examples"] == row["examples"] and other is not row
        theirs = other["values"][metric]["value"]
        if same and (other["how"] == "baseline" or facts["kind"] == "run"):
            tiles.append(
                (
                    tell_score(theirs),
                    other["name"] if other["how"] == "baseline" else f"{other['how']}: {WAYS.get(other['how'], '')}",
                )
            )
    return tiles
