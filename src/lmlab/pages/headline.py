"""The results of a study in words: a headline, a first sentence, and the most important numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lmlab.pages.evidence import Evidence
from lmlab.pages.page import Tile
from lmlab.pages.scores import (
    METHODS,
    ScoreRow,
    format_difference,
    format_layers,
    format_learner,
    format_metric,
    format_p,
    format_score,
)

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


@dataclass(frozen=True, kw_only=True)
class LayerMix:
    """The weight of each layer in a learnt mix, over the seeds of one model."""

    name: str
    examples: int
    seeds: int
    weights: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    gamma: float | None


@dataclass(frozen=True, kw_only=True)
class ShownCost:
    """What training took; None where it is not known."""

    seconds: float | None = None
    joules: float | None = None
    flops: float | None = None


@dataclass(frozen=True, kw_only=True)
class StudyFacts:
    """All that the page of a study shows."""

    kind: str
    """run, curve, layers or comparison."""
    goal: str
    """What was learnt, in words: `to tag words`."""
    resampled: str
    """What other test sets would have others of: examples, or paragraphs."""
    data: str
    format: str
    scored: str
    """The file of the scored examples, where it is another."""
    labels: Sequence[str]
    counts: Mapping[str, int]
    metric: str
    split: str
    count: int
    """Scored examples."""
    check: Sequence[str]
    rows: Sequence[ScoreRow]
    tests: int
    """Pairs that were tested."""
    untested: Sequence[str]
    lead: ScoreRow | None
    """The row that the page is about."""
    pretraining: Mapping[str, ShownCost | None]
    mixes: Sequence[LayerMix]
    evidence: Evidence | None
    evidence_of: str
    """Whose predictions the evidence is from: `bert, full, seed 0, 100 test examples.`"""
    commands: Sequence[tuple[str, str]]
    """(command, what it does)."""


def format_headline(facts: StudyFacts) -> str:
    """The result in one line; it names a baseline or another method that is better."""
    row, metric = facts.lead, facts.metric
    data = ", ".join(each.rstrip("/").rpartition("/")[2] for each in facts.data.split(", "))
    if row is None:
        return f"Baselines on {data}"
    value = format_score(row.values[metric].value)
    score = f"{format_metric(metric)} {value}"
    above = _better_rows(facts, row)
    below = f", below {' and '.join(_name_with_score(facts, other) for other in above)}" if above else ""
    if facts.kind == "curve":
        rows = [each for each in facts.rows if each.method == row.method and each.name == row.name]
        least = min(rows, key=lambda each: each.examples)
        first = format_score(least.values[metric].value)
        if least is not row:
            return (
                f"{row.name} on {data}: {format_metric(metric)} {first} with {least.examples:,} examples, "
                f"{value} with {row.examples:,}{below}"
            )
    if facts.kind == "layers":
        return f"Layers of {row.name} on {data}: {format_layers(row.layers)} comes first, {score}{below}"
    if facts.kind == "comparison":
        if above:
            best = format_score(above[0].values[metric].value)
            return (
                f"{format_learner(above[0])} comes first on {data}: {format_metric(metric)} {best}; the best network, "
                f"{format_learner(row)}, is below it with {value}{_doubt(above[0])}"
            )
        return f"{format_learner(row)} comes first on {data}: {score}"
    return f"{row.name} on {data}: {score}{below}"


def _better_rows(facts: StudyFacts, row: ScoreRow) -> list[ScoreRow]:
    """With as many examples, the best baseline and the best other model with a higher score, best first."""
    own = row.rank(facts.metric)
    others = [
        other
        for other in facts.rows
        if other is not row and other.examples == row.examples and other.rank(facts.metric) > own
    ]
    others.sort(key=lambda other: -other.rank(facts.metric))
    found: dict[bool, ScoreRow] = {}
    for other in others:
        found.setdefault(other.is_baseline, other)
    return list(found.values())


def _name_with_score(facts: StudyFacts, other: ScoreRow) -> str:
    return f"{format_learner(other)} ({format_score(other.values[facts.metric].value)}{_doubt(other)})"


def _doubt(other: ScoreRow) -> str:
    """A remark where a difference was tested and is not significant."""
    found = other.difference
    return ", not significant" if found is not None and not found.significant else ""


def format_lead(facts: StudyFacts) -> Markup:
    """A sentence that says what was learnt from which examples, and how it compares."""
    names = list(dict.fromkeys(row.name for row in facts.rows if not row.is_baseline))
    models = _listed(names) if names else "Nothing"
    most = max((row.examples for row in facts.rows), default=0)
    upto = "up to " if facts.kind == "curve" else ""
    row = facts.lead
    method = f" ({row.method}: {METHODS.get(row.method, '')})" if row is not None and facts.kind == "run" else ""
    sentence = (
        f"{models}{method} learnt {facts.goal} from {upto}{most:,} examples of {facts.data} ({facts.format}), and "
        f"{'was' if len(names) < 2 else 'were'} scored on {facts.count:,} {facts.split} examples"
        f"{' of ' if facts.scored else ''}{facts.scored}."
    )
    return Markup("<b>{}</b> {}").format(sentence, format_comparison(facts))


def format_comparison(facts: StudyFacts) -> str:
    """How the row that the page is about compares with the others, and what the tests do not cover."""
    row = facts.lead
    if row is None or row.values[facts.metric].value is None:
        return ""
    sentences = [format_differences(facts)]
    if facts.kind in ("layers", "comparison"):
        sentences.append(CHOSEN_FIRST)
    if len(row.seeds) == 1:
        sentences.append(ONE_SEED)
    return " ".join(filter(None, sentences))


def format_differences(facts: StudyFacts) -> str:
    """Which other rows are worse, better, or not known to differ, by the paired tests."""
    row = facts.lead
    if row is None:
        return ""
    others = [each for each in facts.rows if each is not row and each.examples == row.examples]
    if not others:
        return ""
    groups: dict[str, list[str]] = {"significantly better than": [], "significantly worse than": [], CHANCE: []}
    for other in others:
        if (found := other.difference) is None:
            continue
        side = CHANCE
        if found.significant:
            side = "significantly better than" if found.value > 0 else "significantly worse than"
        points = f"{format_difference(found.value)} points, {format_p(found.p)}"
        groups[side].append(f"{format_learner(other)} ({points})")
    tested = [f"{side} {_listed(names)}" for side, names in groups.items() if names]
    sentences = []
    if tested:
        several = f", corrected for {facts.tests} tests" if facts.tests > 1 else ""
        sentences.append(
            f"In paired tests on the same {facts.resampled}{several}, {format_learner(row)} is {'; '.join(tested)}."
        )
    if facts.untested:
        missing = f"Not tested, as predictions are missing: {_listed(facts.untested)}."
        sentences.append(missing if tested else UNTESTED)
    return " ".join(sentences)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def key_numbers(facts: StudyFacts) -> list[Tile]:
    """The most important numbers, each with its meaning."""
    row, metric = facts.lead, facts.metric
    if row is None:
        return []
    value = row.values[metric].value
    tiles = [Tile(format_score(value), f"{format_metric(metric)}: {format_learner(row)}")]
    known = [seed for seed in row.seeds if seed is not None]
    if len(row.seeds) > 1 and known:
        tiles.append(Tile(format_score(row.worst_seed), f"the worst of {len(row.seeds)} seeds"))
    for other in facts.rows:
        same = other.examples == row.examples and other is not row
        theirs = other.values[metric].value
        if same and (other.is_baseline or facts.kind == "run"):
            meaning = other.name if other.is_baseline else f"{other.method}: {METHODS.get(other.method, '')}"
            tiles.append(Tile(format_score(theirs), meaning))
    return tiles
