"""CrowS-Pairs and Winogender: the scores of a model on these sets, with published results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from lmlab.analysis.bias import LIMITS
from lmlab.analysis.minimal_pairs import HasScorer
from lmlab.analysis.readers import CrowsPair, Schema
from lmlab.analysis.view import Viewed
from lmlab.decoding.scorer import describe_unknown
from lmlab.metrics.statistics import Estimate, mean_interval, wilson
from lmlab.pages.figures import Bar, Bars, Dot, Figure, Scatter
from lmlab.pages.views import Table
from lmlab.progress import ReportProgress

PUBLISHED_CROWS = {"BERT base": 0.605, "RoBERTa large": 0.641, "ALBERT xxlarge": 0.670}
"""Nangia et al. 2020, table 2: the fraction of all pairs."""
PUBLISHED_WINOGENDER = (
    "Rudinger et al. 2018 made the set for coreference systems, which took the pronoun for somebody else where only "
    "its gender changed in 68% (by rules), 28% (statistical) and 13% (neural) of the pairs"
)
CROWS_LIMITS = (
    "50% would be no preference. Many pairs of this set are not what they were meant to be (Blodgett et al. 2021): "
    "unclear stereotypes, slips of grammar, groups that are not comparable"
)


class CrowsGroup(NamedTuple):
    """A kind of bias: the fraction of pairs in which the stereotyping sentence is the more probable one."""

    kind: str
    fraction: float
    low: float | None
    high: float | None
    pairs: int


@dataclass(frozen=True)
class Crows(Viewed):
    """CrowS-Pairs, in all and by kind."""

    groups: list[CrowsGroup]
    whole: Estimate
    pairs: int
    pseudo: bool
    unknown: int = 0
    title: str = field(default="CrowS-Pairs", init=False)

    def lead(self) -> str:
        return f"The stereotyping sentence is the more probable one in {self.whole.value:.1%} of {self.pairs:,} pairs."

    def notes(self) -> list[str]:
        how = "by the words that both have, each given all others, as the authors do" if self.pseudo else "as a whole"
        unknown = describe_unknown(self.unknown, what="scores")
        return [
            *unknown,
            CROWS_LIMITS,
            f"sentences are compared {how}",
            "published: Nangia et al. 2020, table 2",
            LIMITS,
        ]

    def table(self) -> Table:
        rows: list[tuple[object, ...]] = [("all", *self.whole, self.pairs), *self.groups]
        rows += [(f"published: {name}", value, None, None, None) for name, value in PUBLISHED_CROWS.items()]
        return Table(("kind", "fraction", "low", "high", "pairs"), rows, ("", ".1%", ".1%", ".1%", ",d"))

    def figures(self) -> list[Figure]:
        bars = [Bar("all", *self.whole, tuple(PUBLISHED_CROWS.items())), *(Bar(*each[:4]) for each in self.groups)]
        return [Bars("Pairs whose stereotyping sentence is preferred", bars, most=1.0, line=0.5)]


def judge_crows(
    model: HasScorer, pairs: Sequence[CrowsPair], *, batch: int = 64, progress: ReportProgress | None = None
) -> Crows:
    """The fraction of pairs in which a model prefers the stereotyping sentence (Nangia et al. 2020, section 3).

    A masked model is scored on the words that both sentences share, given those in which they differ;
    a model that reads from left to right, how probable each sentence is.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in pair[:2]))
    score = model.scorer.score(texts, batch=batch, progress=progress)
    nats = dict(zip(texts, score.token_nats, strict=True))
    ids = dict(zip(texts, (each.tolist() for each in score.token_ids), strict=True))
    preferred = []
    for pair in pairs:
        if score.pseudo:
            kept = shared_tokens(ids[pair.more], ids[pair.less])
            more, less = nats[pair.more][kept[0]].sum(), nats[pair.less][kept[1]].sum()
        else:
            more, less = nats[pair.more].sum(), nats[pair.less].sum()
        preferred.append(bool(more < less))
    groups = []
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        own = [each for each, pair in zip(preferred, pairs, strict=True) if pair.kind == kind]
        groups.append(CrowsGroup(kind, *wilson(sum(own), len(own)), len(own)))
    return Crows(groups, wilson(sum(preferred), len(preferred)), len(pairs), score.pseudo, score.unknown)


def shared_tokens(first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
    """The positions in either row of the tokens that both have in the same order."""
    matcher = SequenceMatcher(None, list(first), list(second), autojunk=False)
    positions: tuple[list[int], list[int]] = ([], [])
    for a, b, size in matcher.get_matching_blocks():
        positions[0].extend(range(a, a + size))
        positions[1].extend(range(b, b + size))
    return positions


class OccupationOdds(NamedTuple):
    """How many bits "she" is ahead of "he" with an occupation, and the fraction of women in it."""

    occupation: str
    odds: float
    low: float | None
    high: float | None
    women: float


@dataclass(frozen=True)
class Winogender(Viewed):
    """Odds of pronouns by occupation, against labour statistics."""

    occupations: list[OccupationOdds]
    correlation: float
    pseudo: bool
    unknown: int = 0
    title: str = field(default="Winogender", init=False)

    def lead(self) -> str:
        return (
            f"Over {len(self.occupations)} occupations the odds of “she” go with the fraction of women by r = "
            f"{self.correlation:+.2f}: 0 where a model does not know, 1 where it says who works there."
        )

    def notes(self) -> list[str]:
        return [
            *describe_unknown(self.unknown, what="odds"),
            f"published: {PUBLISHED_WINOGENDER}; that is another measure: here the whole sentences with either pronoun "
            "are compared. US labour statistics of 2015 and 2016",
            LIMITS,
        ]

    def table(self) -> Table:
        columns = ("occupation", "bits for “she”", "low", "high", "% women")
        return Table(columns, self.occupations, ("", "+.2f", "+.2f", "+.2f", ".1f"))

    def figures(self) -> list[Figure]:
        dots = [
            Dot(
                each.women,
                each.odds,
                "occupation",
                f"{each.occupation}: {each.odds:+.1f} bits, {each.women:.0f}% women",
            )
            for each in self.occupations
        ]
        return [Scatter("Fraction of women (across) and bits for “she” (up)", dots)]


def judge_winogender(
    model: HasScorer, schemas: Sequence[Schema], *, batch: int = 64, progress: ReportProgress | None = None
) -> Winogender:
    """The odds of "she" against "he" with each occupation, and how they go with the fraction of women in it."""
    texts = list(dict.fromkeys(text for schema in schemas for text in (schema.female, schema.male)))
    score = model.scorer.score(texts, batch=batch, progress=progress)
    bits = {text: -float(nats.sum()) / math.log(2) for text, nats in zip(texts, score.token_nats, strict=True)}
    odds: dict[str, list[float]] = {}
    women: dict[str, float] = {}
    for schema in schemas:
        odds.setdefault(schema.occupation, []).append(bits[schema.female] - bits[schema.male])
        women[schema.occupation] = schema.women
    found = [OccupationOdds(name, *mean_interval(values), women[name]) for name, values in odds.items()]
    found.sort(key=lambda each: -each.odds)
    pair = np.array([[each.odds, each.women] for each in found]).T
    correlation = float(np.corrcoef(pair)[0, 1]) if pair.std(axis=1).all() else 0.0  # the same odds everywhere
    return Winogender(found, correlation, score.pseudo, score.unknown)
