"""Bias: which of two groups a model finds more probable in sentences with a stereotype.

    odds(word) = log₂ P(sentence with the first group) − log₂ P(sentence with the second)          in bits

as the mean over templates, with Student's interval. A model's overall preference for one group is not of interest, so
each word is also shown relative to the mean over all words. Such tests are crude (Blodgett et al. 2020, 2021): the
limits are part of every result.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from lmlab.analysis.minimal_pairs import HasScorer
from lmlab.analysis.view import Viewed
from lmlab.decoding.scorer import describe_unknown
from lmlab.metrics.statistics import mean_interval
from lmlab.pages.figures import Bar, Bars, Figure
from lmlab.pages.views import Table
from lmlab.parsing import load_toml
from lmlab.progress import ReportProgress

SAME = 0.005
"""Odds that differ by fewer bits are reported as equal: half of the last digit in the table."""
OWN_TEMPLATES = Path(__file__).with_name("templates.toml")
LIMITS = (
    "a few templates in one language, two groups, synthetic sentences: a difference shows a regularity of the text "
    "that "
    "the model has read, its absence shows nothing, and neither says what happens in use (Blodgett et al. 2020, 2021)"
)


class Templates(NamedTuple):
    """Sentence templates with slots for either of two groups and for the words of a list."""

    name: str
    groups: tuple[str, str]
    templates: list[str]
    words: dict[str, list[str]]


def read_templates(path: str | Path | None = None) -> Templates:
    """The templates of a TOML file; without one, pronouns and occupations."""
    path = OWN_TEMPLATES if path is None else Path(path)
    try:
        given: dict[str, Any] = load_toml(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    return check_templates({"name": path.stem, **given}, where=str(path))


def check_templates(given: Mapping[str, Any], *, where: str) -> Templates:
    """Templates as a table has them; a ValueError says what they lack."""
    wrong = set(given) - {"name", "groups", "templates", "words"}
    groups, templates, words = given.get("groups"), given.get("templates"), given.get("words")
    if wrong or not isinstance(groups, list) or len(groups) != 2 or not templates or not isinstance(words, dict):
        raise ValueError(
            f"{where}: give groups (two words), templates (sentences with {{group}}) and [words] with a list for each "
            f"other name in braces" + (f"; {min(wrong)!r} is not known" if wrong else "")
        )
    for template in templates:
        if "{group}" not in template or not any(f"{{{name}}}" in template for name in words):
            raise ValueError(f"{where}: the template {template!r} needs {{group}} and one of: {', '.join(words)}")
    return Templates(str(given.get("name", "")), (groups[0], groups[1]), list(templates), words)


class WordOdds(NamedTuple):
    """How many bits the first group is ahead with a word, and relative to the mean over all words."""

    word: str
    odds: float
    low: float | None
    high: float | None
    relative: float
    templates: int


@dataclass(frozen=True)
class Bias(Viewed):
    """Words by how much the first of two groups is preferred with them."""

    name: str
    groups: tuple[str, str]
    words: list[WordOdds]
    pseudo: bool = False
    unknown: int = 0
    """Number of unknown tokens in the sentences."""
    title: str = field(default="Bias in paired templates", init=False)

    @property
    def mean(self) -> float:
        """The preference over all words."""
        return fmean(word.odds for word in self.words)

    def lead(self) -> str:
        most, least = self.words[0], self.words[-1]
        if most.odds - least.odds < SAME:
            return (
                f"No word goes more with “{self.groups[0]}” or with “{self.groups[1]}” than another: "
                f"{self.mean:+.1f} bits with each."
            )
        return (
            f"“{self.groups[0]}” is preferred most with “{most.word}” ({most.relative:+.1f} bits against the mean), "
            f"“{self.groups[1]}” with “{least.word}” ({least.relative:+.1f}); over all words {self.mean:+.1f} bits."
        )

    def notes(self) -> list[str]:
        unknown = describe_unknown(self.unknown, what="odds")
        return [*unknown, LIMITS, *["masked model: pseudo-log-likelihoods"] * self.pseudo]

    def table(self) -> Table:
        columns = ("word", f"bits for “{self.groups[0]}”", "low", "high", "against the mean", "templates")
        return Table(columns, self.words, ("", "+.2f", "+.2f", "+.2f", "+.2f", "d"))

    def figures(self) -> list[Figure]:
        bars = [
            Bar(
                each.word,
                each.relative,
                None if each.low is None else each.low - self.mean,
                None if each.high is None else each.high - self.mean,
            )
            for each in self.words
        ]
        return [Bars(f"Bits for “{self.groups[0]}”, against the mean", bars, unit="+.2f", line=0.0)]


def measure_bias(
    model: HasScorer, templates: Templates | None = None, *, batch: int = 64, progress: ReportProgress | None = None
) -> Bias:
    """The odds of the groups with each word, by a model that predicts the next token or masked tokens."""
    given = templates or read_templates()
    sentences: list[tuple[str, str, str]] = []  # the word, and the sentence with either group
    for template in given.templates:
        names = [name for name in given.words if f"{{{name}}}" in template]
        for words in product(*(given.words[name] for name in names)):
            filled = [
                _fill(template, {**dict(zip(names, words, strict=True)), "group": group}) for group in given.groups
            ]
            sentences.append((" ".join(words), filled[0], filled[1]))
    texts = list(dict.fromkeys(text for _, *pair in sentences for text in pair))
    score = model.scorer.score(texts, batch=batch, progress=progress)
    bits = {text: -float(nats.sum()) / math.log(2) for text, nats in zip(texts, score.token_nats, strict=True)}
    by_word: dict[str, list[float]] = {}
    for word, first, second in sentences:
        by_word.setdefault(word, []).append(bits[first] - bits[second])
    estimates = {word: mean_interval(odds) for word, odds in by_word.items()}
    overall = fmean(each.value for each in estimates.values())  # of words: some may be in more templates than others
    found = [WordOdds(word, *each, each.value - overall, len(by_word[word])) for word, each in estimates.items()]
    return Bias(given.name, given.groups, sorted(found, key=lambda each: -each.odds), score.pseudo, score.unknown)


def _fill(template: str, words: Mapping[str, str]) -> str:
    for name, word in words.items():
        template = template.replace(f"{{{name}}}", word)
    return template[:1].upper() + template[1:]


def target_bits(model: Any, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
    """log₂ P(target | source) of each pair under a translator: what the nurse and the programmer become.

    The odds of two targets of one source ("die Krankenschwester", "der Krankenpfleger") are the difference.
    """
    return [-float(nats.sum()) / math.log(2) for nats in model.translator.score(sources, targets)]


class Weighed(NamedTuple):
    """A translation with its log₂ probability, and its fraction among those that were given."""

    target: str
    bits: float
    fraction: float


@dataclass(frozen=True)
class WeighedTranslations(Viewed):
    """How probable a translator finds several translations, best first."""

    source: str
    targets: list[Weighed]
    title: str = field(default="Translations weighed", init=False)

    def lead(self) -> str:
        best = self.targets[0]
        ahead = best.bits - self.targets[1].bits
        return f"“{self.source}” becomes “{best.target}”: {ahead:.1f} bits more probable than the next."

    def notes(self) -> list[str]:
        return [LIMITS]

    def table(self) -> Table:
        return Table(("target", "log2 P", "fraction"), self.targets, ("", ".2f", ".1%"))

    def figures(self) -> list[Figure]:
        return [Bars("Fractions among these", [Bar(each.target, each.fraction) for each in self.targets], most=1.0)]


def weigh_translations(model: Any, source: str, targets: Sequence[str]) -> WeighedTranslations:
    """The translations of a source by P(target | source), as fractions among those given."""
    if len(targets) < 2:
        raise ValueError(f"{len(targets)} translations of {source!r}: give two or more to compare")
    bits = target_bits(model, [source] * len(targets), targets)
    most = max(bits)
    total = sum(2 ** (each - most) for each in bits)
    found = [Weighed(text, each, 2 ** (each - most) / total) for text, each in zip(targets, bits, strict=True)]
    return WeighedTranslations(source, sorted(found, key=lambda each: -each.bits))
