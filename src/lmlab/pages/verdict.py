"""What scores of a task come to in words: a headline, a first sentence, and the figures that matter most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lmlab.pages.scores import (
    WAYS,
    format_difference,
    format_metric,
    format_p,
    rank,
    tell_layers,
    tell_score,
    tell_way,
    worst_of,
)

Facts = Mapping[str, Any]
TASKS = {
    "classification": "to tell {classes} apart",
    "tagging": "to tag words",
    "regression": "to give a number to each example",
    "choice": "to choose among answers",
    "spans": "to find answers in a text",
}

CHOSEN_FIRST = "The first of several is chosen by the score that is shown, so that score is too optimistic."
UNTESTED = (
    "Differences were not tested, because predictions of the baselines were not kept: the same command with --resume "
    "tests them."
)
CHANCE = "not known to differ from"
ONE_SEED = (
    "With one seed, intervals and tests cover other test examples but not other seeds: three to five seeds (--seeds) "
    "cover both."
)


def find_row(facts: Facts) -> Facts | None:
    """The row that the page is about."""
    return next((row for row in facts["rows"] if row["key"] == facts["shown"]), None)


def tell_headline(facts: Facts) -> str:
    """The result in one line; where a baseline or another way of learning is better, it says so."""
    row, metric = find_row(facts), facts["metric"]
    data = ", ".join(each.rstrip("/").rpartition("/")[2] for each in facts["data"].split(", "))
    if row is None:
        return f"What there is to beat on {data}"
    value = tell_score(row["values"][metric]["value"])
    score = f"{format_metric(metric)} {value}"
    above = _better_rows(facts, row)
    below = f", below {' and '.join(_name_with_score(facts, other) for other in above)}" if above else ""
    if facts["kind"] == "curve":
        rows = [each for each in facts["rows"] if each["how"] == row["how"] and each["name"] == row["name"]]
        least = min(rows, key=lambda each: each["examples"])
        first = tell_score(least["values"][metric]["value"])
        if least is not row:
            return (
                f"{row['name']} on {data}: {format_metric(metric)} {first} with {least['examples']:,} examples, "
                f"{value} with {row['examples']:,}{below}"
            )
    if facts["kind"] == "layers":
        return f"Layers of {row['name']} on {data}: {tell_layers(row['layers'])} comes first, {score}{below}"
    if facts["kind"] == "comparison":
        if above:
            best = tell_score(above[0]["values"][metric]["value"])
            return (
                f"{tell_way(above[0])} comes first on {data}: {format_metric(metric)} {best}; the best network, "
                f"{tell_way(row)}, is below it with {value}{_doubt(above[0])}"
            )
        return f"{tell_way(row)} comes first on {data}: {score}"
    return f"{row['name']} on {data}: {score}{below}"


def _better_rows(facts: Facts, row: Facts) -> list[Facts]:
    """Of those with as many examples, the best baseline and the best other way that score higher, best first."""
    own = rank(row, facts["metric"])
    others = [
        other
        for other in facts["rows"]
        if other is not row and other["examples"] == row["examples"] and rank(other, facts["metric"]) > own
    ]
    others.sort(key=lambda other: -rank(other, facts["metric"]))
    found: dict[bool, Facts] = {}
    for other in others:
        found.setdefault(other["how"] == "baseline", other)
    return list(found.values())


def _name_with_score(facts: Facts, other: Facts) -> str:
    return f"{tell_way(other)} ({tell_score(other['values'][facts['metric']]['value'])}{_doubt(other)})"


def _doubt(other: Facts) -> str:
    """What is added where a difference was tested and is not significant."""
    found = other["difference"]
    return ", not significant" if found is not None and not found["significant"] else ""


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
    return f"<b>{escape(told)}</b> {escape(tell_beside(facts))}".strip()


def tell_beside(facts: Facts) -> str:
    """How the row that the page is about stands beside the others, and what that does not cover."""
    row = find_row(facts)
    if row is None or row["values"][facts["metric"]]["value"] is None:
        return ""
    said = [format_differences(facts)]
    if facts["kind"] in ("layers", "comparison"):
        said.append(CHOSEN_FIRST)
    if len(row["seeds"]) == 1:
        said.append(ONE_SEED)
    return " ".join(filter(None, said))


def format_differences(facts: Facts) -> str:
    """Which of the others are worse, better, or not known to differ, by the paired tests."""
    row = find_row(facts)
    if row is None:
        return ""
    others = [each for each in facts["rows"] if each is not row and each["examples"] == row["examples"]]
    if not others:
        return ""
    groups: dict[str, list[str]] = {"significantly better than": [], "significantly worse than": [], CHANCE: []}
    for other in others:
        if (found := other["difference"]) is None:
            continue
        side = CHANCE
        if found["significant"]:
            side = "significantly better than" if found["value"] > 0 else "significantly worse than"
        points = f"{format_difference(found['value'])} points, {format_p(found['p'])}"
        groups[side].append(f"{tell_way(other)} ({points})")
    told = [f"{side} {_listed(names)}" for side, names in groups.items() if names]
    said = []
    if told:
        units = "paragraphs" if facts["task"] == "spans" else "examples"
        several = f", corrected for {facts['tests']} tests" if facts["tests"] > 1 else ""
        said.append(f"In paired tests on the same {units}{several}, {tell_way(row)} is {'; '.join(told)}.")
    if facts["untested"]:
        said.append(UNTESTED if not told else f"Not tested, as predictions are missing: {_listed(facts['untested'])}.")
    return " ".join(said)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def tell_figures(facts: Facts) -> list[tuple[str, str]]:
    """The few numbers that matter most, each with what it is."""
    row, metric = find_row(facts), facts["metric"]
    if row is None:
        return []
    value = row["values"][metric]["value"]
    tiles = [(tell_score(value), f"{format_metric(metric)}: {tell_way(row)}")]
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
