"""Minimal pairs: does a model give the right sentence of two a higher probability? (Linzen et al. 2016, Marvin & Linzen
2018, Warstadt et al. 2020)

Whole sentences are compared, or only their critical words given the words before them (given all else, for a masked
model, whose sentences have a pseudo-log-likelihood). A pair that is given equal scores is not right.

Published accuracies are shown for comparison. BLiMP: Warstadt et al. 2020, means over the paradigms of the results that
the authors published with the data (5-gram, LSTM of Gulordava et al. 2018, Transformer-XL, GPT-2 large). Agreement: the
authors' output for English (Gulordava et al. 2018; their best LSTM, simple RNN and 5-gram LSTM).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from lmlab.analysis.pair_sets import Pair, PairSet, Span
from lmlab.analysis.view import Viewed
from lmlab.decoding.pseudo_likelihood import Chosen
from lmlab.decoding.scorer import Scorer, describe_unknown
from lmlab.metrics.statistics import Estimate, wilson
from lmlab.pages.figures import Bar, Bars, Figure
from lmlab.pages.views import Table
from lmlab.progress import ReportProgress

Published = dict[str, dict[str, float]]
"""By phenomenon (or "" for all pairs) and system."""

_BLIMP = {
    "": (0.612, 0.698, 0.696, 0.830),
    "anaphor_agreement": (0.479, 0.917, 0.941, 0.993),
    "argument_structure": (0.719, 0.732, 0.722, 0.818),
    "binding": (0.644, 0.735, 0.747, 0.809),
    "control_raising": (0.685, 0.670, 0.715, 0.819),
    "determiner_noun_agreement": (0.701, 0.854, 0.830, 0.958),
    "ellipsis": (0.369, 0.676, 0.772, 0.894),
    "filler_gap_dependency": (0.602, 0.739, 0.666, 0.813),
    "irregular_forms": (0.795, 0.891, 0.782, 0.919),
    "island_effects": (0.572, 0.466, 0.483, 0.727),
    "npi_licensing": (0.455, 0.517, 0.552, 0.768),
    "quantifiers": (0.535, 0.645, 0.693, 0.790),
    "subject_verb_agreement": (0.603, 0.801, 0.760, 0.864),
}
_AGREEMENT = {"original": (0.805, 0.732, 0.707), "nonsense": (0.718, 0.642, 0.566)}

PUBLISHED: dict[str, Published] = {
    "BLiMP": {
        name: dict(zip(("5-gram", "LSTM", "Transformer-XL", "GPT-2 large"), row, strict=True))
        for name, row in _BLIMP.items()
    },
    "Gulordava": {
        name: dict(zip(("LSTM", "simple RNN", "5-gram LSTM"), row, strict=True)) for name, row in _AGREEMENT.items()
    },
}
SOURCES = {
    "BLiMP": "published: Warstadt et al. 2020 (their models read far more text)",
    "Gulordava": "published: Gulordava et al. 2018, their models of 80 million words of Wikipedia",
}


Region = Literal["full", "critical"]
REGIONS: tuple[Region, ...] = get_args(Region)
DECIDED_BY: dict[str, Region] = {"Gulordava": "critical", "Linzen": "critical"}
"""How the authors of a set score it; by default whole sentences."""


class ScoredPair(NamedTuple):
    """One pair with the log-probabilities (nats) of its sentences, or of their critical words."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str
    good_score: float
    bad_score: float

    @property
    def right(self) -> bool:
        """Whether the right sentence is the more probable one."""
        return self.good_score > self.bad_score


class Group(NamedTuple):
    """Pairs of one phenomenon or one paradigm."""

    phenomenon: str
    paradigm: str
    accuracy: float
    low: float | None
    high: float | None
    pairs: int
    published: dict[str, float]


class HasScorer(Protocol):
    """What users hold, as far as it is needed here."""

    @property
    def scorer(self) -> Scorer: ...


@dataclass(frozen=True)
class MinimalPairs(Viewed):
    """How often a model prefers the right sentence, in all and by phenomenon."""

    scored: list[ScoredPair]
    region: Region = "full"
    pseudo: bool = False
    name: str = ""
    """That of the set, if it is a known one."""
    unknown: int = 0
    """Number of unknown tokens in the sentences."""
    title: str = field(default="Minimal pairs", init=False)

    @property
    def accuracy(self) -> Estimate:
        """The fraction of pairs that are right, with its 95% interval."""
        return _estimate(self.scored)

    @property
    def ties(self) -> int:
        """Pairs whose sentences have equal scores: both may be unknown words to the tokenizer."""
        return sum(each.good_score == each.bad_score for each in self.scored)

    def groups(self, by: Literal["phenomenon", "paradigm"] = "phenomenon") -> list[Group]:
        """The accuracy of each phenomenon or paradigm, in the order of the file."""
        found: dict[tuple[str, str], list[ScoredPair]] = {}
        for each in self.scored:
            found.setdefault((each.phenomenon, each.paradigm if by == "paradigm" else ""), []).append(each)
        published = PUBLISHED.get(self.name, {})
        return [
            Group(phenomenon, paradigm, *_estimate(part), len(part), {} if paradigm else published.get(phenomenon, {}))
            for (phenomenon, paradigm), part in found.items()
        ]

    def lead(self) -> str:
        value, low, high = self.accuracy
        within = f" (95%: {low:.1%} to {high:.1%})" if low is not None and high is not None else ""
        what = "the whole sentence" if self.region == "full" else "the critical words"
        return f"{value:.1%} of {len(self.scored):,} pairs are right{within}, compared by {what}; chance is 50%."

    def notes(self) -> list[str]:
        notes = []
        if self.pseudo:
            notes.append("masked model: pseudo-log-likelihoods, each token given all others (Salazar et al. 2020)")
        if self.pseudo and self.region == "critical":
            notes.append("a critical word of several tokens is helped by its own others (Kauf & Ivanova 2023)")
        if self.ties:
            notes.append(f"{self.ties:,} pairs have equal scores and count as wrong: words that the tokenizer lacks?")
        notes += describe_unknown(self.unknown, what="scores")
        if self.name in SOURCES:
            notes.append(SOURCES[self.name])
        return notes

    def table(self) -> Table:
        """All pairs, then each phenomenon with its paradigms."""
        whole = Group("all pairs", "", *self.accuracy, len(self.scored), PUBLISHED.get(self.name, {}).get("", {}))
        phenomena, paradigms = self.groups(), self.groups("paradigm")
        published = list(dict.fromkeys(name for group in [whole, *phenomena] for name in group.published))
        rows: list[tuple[object, ...]] = []
        for group in [whole, *(phenomena if len(phenomena) > 1 or phenomena[0].phenomenon else ())]:
            rows.append((group.phenomenon or "other", *group[2:6], *(group.published.get(name) for name in published)))
            parts = [each for each in paradigms if each.phenomenon == group.phenomenon and each.paradigm]
            if len(parts) > 1:
                rows += [(f"  {each.paradigm}", *each[2:6], *[None] * len(published)) for each in parts]
        columns = ("phenomenon", "accuracy", "low", "high", "pairs", *published)
        return Table(columns, rows, ("", ".1%", ".1%", ".1%", ",d", *[".1%"] * len(published)))

    def figures(self) -> list[Figure]:
        groups = self.groups()
        bars = [Bar("all", *self.accuracy, tuple(PUBLISHED.get(self.name, {}).get("", {}).items()))]
        if len(groups) > 1:
            bars += [
                Bar(group.phenomenon or "other", *group[2:5], others=tuple(group.published.items())) for group in groups
            ]
        return [Bars("Accuracy by phenomenon", bars, most=1.0, line=0.5)]

    def as_json(self) -> dict[str, object]:
        value, low, high = self.accuracy
        return {
            "accuracy": value,
            "low": low,
            "high": high,
            "pairs": len(self.scored),
            "ties": self.ties,
            "unknown": self.unknown,
            "region": self.region,
            "pseudo": self.pseudo,
            "set": self.name,
            "phenomena": [group._asdict() for group in self.groups()],
            "paradigms": [group._asdict() for group in self.groups("paradigm") if group.paradigm],
            "items": [{**each._asdict(), "right": each.right} for each in self.scored],
        }


def _estimate(scored: Sequence[ScoredPair]) -> Estimate:
    return wilson(sum(each.right for each in scored), len(scored))


def choose_region(given: str | None, name: str) -> Region:
    """Return the region to compare: the given one, or that of the authors of a known set."""
    if given is None:
        return DECIDED_BY.get(name, "full")
    for region in REGIONS:
        if given == region:
            return region
    raise ValueError(f"region {given!r} is not known; allowed: {', '.join(REGIONS)}")


def compare_pairs(
    model: HasScorer,
    pairs: PairSet | Sequence[Pair],
    *,
    region: str | None = None,
    batch: int = 64,
    progress: ReportProgress | None = None,
) -> MinimalPairs:
    """Score both sentences of each pair with a model that predicts the next token or masked tokens.

    A sentence that is in several pairs is scored once.
    """
    name = pairs.name if isinstance(pairs, PairSet) else ""
    given = pairs.pairs if isinstance(pairs, PairSet) else list(pairs)
    if not given:
        raise ValueError("there are no pairs to compare")
    how, scorer = choose_region(region, name), model.scorer
    texts = list(dict.fromkeys(text for pair in given for text in (pair.good, pair.bad)))
    if how == "critical":
        marks = _mark(given, {text: scorer.tokenizer.encode_with_offsets(text)[1] for text in texts})
        chosen = [np.any(marks[text], axis=0) for text in texts]
        nats = dict(zip(texts, scorer.nats_at(texts, chosen, batch=batch, progress=progress), strict=True))
        critical = {text: iter(each) for text, each in marks.items()}
        scores = [[float(nats[text][next(critical[text])].sum()) for text in (pair.good, pair.bad)] for pair in given]
    else:
        score = scorer.score(texts, batch=batch, progress=progress)
        whole = {text: float(each.sum()) for text, each in zip(texts, score.token_nats, strict=True)}
        scores = [[whole[pair.good], whole[pair.bad]] for pair in given]
    scored = [
        ScoredPair(pair.good, pair.bad, pair.phenomenon, pair.paradigm, 0.0 - good, 0.0 - bad)  # −0 is 0
        for pair, (good, bad) in zip(given, scores, strict=True)
    ]
    return MinimalPairs(scored, region=how, pseudo=scorer.rule.pseudo, name=name, unknown=scorer.count_unknown(texts))


def _mark(pairs: Sequence[Pair], offsets: Mapping[str, Sequence[Span]]) -> dict[str, list[Chosen]]:
    """For each text which of its tokens are critical: those that have a character of the region, pair by pair."""
    marks: dict[str, list[Chosen]] = {text: [] for text in offsets}
    for pair in pairs:
        for text, (start, end) in zip((pair.good, pair.bad), pair.critical(), strict=True):
            marks[text].append(np.array([a < end and start < b for a, b in offsets[text]], dtype=bool))
    return marks


def compare_scores(pairs: PairSet | Sequence[Pair], good: Sequence[float], bad: Sequence[float]) -> MinimalPairs:
    """The same of log-probabilities that are known already, as of files that others published."""
    given = pairs.pairs if isinstance(pairs, PairSet) else list(pairs)
    if not len(given) == len(good) == len(bad):
        raise ValueError(f"{len(given)} pairs, {len(good)} and {len(bad)} scores: give one of each for every pair")
    scored = [
        ScoredPair(pair.good, pair.bad, pair.phenomenon, pair.paradigm, float(a), float(b))
        for pair, a, b in zip(given, good, bad, strict=True)
    ]
    return MinimalPairs(scored, region="critical", name=pairs.name if isinstance(pairs, PairSet) else "")
