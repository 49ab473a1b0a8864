"""Surprisal, −log₂ P(token | context), per token and per word, and its difference between two models.

What readers spend on a word grows with it (Hale 2001, Levy 2008; Smith & Levy 2013), so the words of a text with their
surprisals are what reading-time studies need. A word's is the sum over its tokens: the chain rule. White space that is
a token of its own counts for the word after it, so that the words sum to the text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lmlab.analysis.minimal_pairs import HasScorer
from lmlab.analysis.view import Viewed
from lmlab.decoding.scorer import describe_unknown
from lmlab.pages.figures import ColouredText, Figure
from lmlab.pages.views import Table
from lmlab.progress import ReportProgress
from lmlab.tokenizers.words import find_words

STRONGEST = 12.0
"""Bits at which the colour is strongest; of differences a third of it."""
MOST_TEXTS = 20
"""Texts that a page shows in colour."""


class ScoredToken(NamedTuple):
    """A token of a text: the characters that it is, the word that it counts for, its surprisal in bits."""

    token: str
    start: int
    end: int
    word: int
    bits: float


class ScoredWord(NamedTuple):
    """A word between white space, with the surprisal of all its tokens in bits."""

    word: str
    start: int
    end: int
    tokens: int
    bits: float


class TextSurprisals(NamedTuple):
    """One text."""

    text: str
    tokens: list[ScoredToken]
    words: list[ScoredWord]


@dataclass(frozen=True)
class Surprisals(Viewed):
    """How much each word of some texts surprises a model."""

    texts: list[TextSurprisals]
    run: str = ""
    pseudo: bool = False
    by_token: bool = False
    """Whether table and picture show tokens."""
    unknown: int = 0
    """Number of unknown tokens, which have a low surprisal whatever they replace."""
    both_ways: bool = False
    """Whether each token's surprisal is the mean of two directions."""
    title: str = field(default="Surprisal", init=False)

    @property
    def bits(self) -> float:
        """Of all texts."""
        return math.fsum(token.bits for text in self.texts for token in text.tokens)

    def lead(self) -> str:
        words = sum(len(text.words) for text in self.texts)
        each = f", {self.bits / words:.2f} per word" if words else ""
        return f"{self.bits:,.1f} bits over {words:,} words{each}{f' ({self.run})' if self.run else ''}."

    def notes(self) -> list[str]:
        notes = []
        if self.pseudo:
            notes.append(
                "masked model: each token given all others, before and after it; not comparable with left-to-right bits"
            )
        if self.both_ways:
            notes.append("model of two directions: each token's bits are the mean of left to right and right to left")
        return [*notes, *describe_unknown(self.unknown)]

    def table(self) -> Table:
        if self.by_token:
            rows: list[tuple[object, ...]] = [
                (number, token.word, token.token, token.start, token.end, token.bits)
                for number, text in enumerate(self.texts, 1)
                for token in text.tokens
            ]
            return Table(("text", "word", "token", "start", "end", "bits"), rows, ("d", "d", "", "d", "d", ".3f"))
        rows = [
            (number, position, word.word, len(word.word), word.start, word.end, word.tokens, word.bits)
            for number, text in enumerate(self.texts, 1)
            for position, word in enumerate(text.words)
        ]
        columns = ("text", "position", "word", "letters", "start", "end", "tokens", "bits")
        return Table(columns, rows, ("d", "d", "", "d", "d", "d", "d", ".3f"))

    def figures(self) -> list[Figure]:
        return [
            ColouredText(f"Text {number}", _pieces(text, by_token=self.by_token), STRONGEST, unit=".1f")
            for number, text in enumerate(self.texts[:MOST_TEXTS], 1)
        ]


def _pieces(text: TextSurprisals, *, by_token: bool) -> list[tuple[str, float]]:
    """The text cut at its words or tokens, nothing of it left out."""
    found, position = [], 0
    for part in text.tokens if by_token else text.words:
        end = max(position, part.end)
        if end > position:
            found.append((text.text[position:end], part.bits))
            position = end
    return [*found, (text.text[position:], 0.0)] if position < len(text.text) else found


class WordDifference(NamedTuple):
    """A word with its surprisal under two models, in bits."""

    word: str
    start: int
    end: int
    first: float
    second: float

    @property
    def difference(self) -> float:
        """How many bits more the first model is surprised."""
        return self.first - self.second


@dataclass(frozen=True)
class SurprisalDifference(Viewed):
    """The same texts under two models, word by word: tokenizers may differ."""

    texts: list[list[WordDifference]]
    runs: tuple[str, str]
    whole: list[str]
    pseudo: tuple[bool, bool] = (False, False)
    caveats: tuple[str, ...] = ()
    title: str = field(default="Difference of surprisals", init=False)

    def lead(self) -> str:
        first, second = (
            math.fsum(each) for each in zip(*((w.first, w.second) for text in self.texts for w in text), strict=True)
        )
        return (
            f"{self.runs[0]}: {first:,.1f} bits; {self.runs[1]}: {second:,.1f} bits. Blue words surprise the "
            f"first more, orange ones the second."
        )

    def notes(self) -> list[str]:
        if self.pseudo[0] != self.pseudo[1]:
            mixed = "one model is masked and sees both sides: its bits are not comparable with the other's"
            return [mixed, *self.caveats]
        return list(self.caveats)

    def table(self) -> Table:
        rows = [
            (number, position, word.word, word.first, word.second, word.difference)
            for number, text in enumerate(self.texts, 1)
            for position, word in enumerate(text)
        ]
        return Table(("text", "position", "word", *self.runs, "difference"), rows, ("d", "d", "", ".3f", ".3f", "+.3f"))

    def figures(self) -> list[Figure]:
        shown = []
        for number, (text, words) in enumerate(zip(self.whole, self.texts, strict=True), 1):
            pieces, position = [], 0
            for word in words:
                pieces.append((text[position : word.end], word.difference))
                position = word.end
            shown.append(ColouredText(f"Text {number}", pieces, STRONGEST / 3, unit="+.1f"))
        return list(shown[:MOST_TEXTS])


def read_surprisals(
    model: HasScorer,
    texts: str | Sequence[str],
    *,
    run: str = "",
    by_token: bool = False,
    batch: int = 16,
    progress: ReportProgress | None = None,
) -> Surprisals:
    """The surprisal of every token and word of texts that have nothing to do with each other."""
    given = [texts] if isinstance(texts, str) else list(texts)
    scorer = model.scorer
    score = scorer.score(given, batch=batch, progress=progress)
    found = []
    for text, nats in zip(given, score.token_nats, strict=True):
        ids, offsets = scorer.tokenizer.encode_with_offsets(text)
        words = _assign(find_words(text, offsets))
        tokens = [
            ScoredToken(scorer.tokenizer.show(token), start, end, word, float(value) / math.log(2))
            for token, (start, end), word, value in zip(ids, offsets, words, nats, strict=True)
        ]
        found.append(TextSurprisals(text, tokens, _gather(text, tokens)))
    return Surprisals(
        found,
        run=run,
        pseudo=score.pseudo,
        by_token=by_token,
        unknown=score.unknown,
        both_ways=bool(score.directions),
    )


def _assign(words: Sequence[int | None]) -> list[int]:
    """White space belongs to the word after it, at the end to the last."""
    found: list[int] = []
    following: int | None = None
    for word in reversed(words):
        following = following if word is None else word
        found.append(-1 if following is None else following)
    last = max((word for word in words if word is not None), default=0)
    return [last if word < 0 else word for word in reversed(found)]


def _gather(text: str, tokens: Sequence[ScoredToken]) -> list[ScoredWord]:
    found, position = [], 0
    by_word: dict[int, list[ScoredToken]] = {}
    for token in tokens:
        by_word.setdefault(token.word, []).append(token)
    for number, word in enumerate(text.split()):
        start = text.index(word, position)
        position = start + len(word)
        own = by_word.get(number, [])
        found.append(ScoredWord(word, start, position, len(own), math.fsum(token.bits for token in own)))
    return found


def compare_surprisals(first: Surprisals, second: Surprisals) -> SurprisalDifference:
    """Word by word, how much more the first of two models is surprised by the same texts."""
    whole = [text.text for text in first.texts]
    if whole != [text.text for text in second.texts]:
        raise ValueError("the surprisals are of different texts: read the same texts with both models")
    texts = [
        [WordDifference(a.word, a.start, a.end, a.bits, b.bits) for a, b in zip(one.words, other.words, strict=True)]
        for one, other in zip(first.texts, second.texts, strict=True)
    ]
    runs = (first.run or "first", second.run or "second")
    caveats = [
        f"{name}: {note}"
        for name, each in zip(runs, (first, second), strict=True)
        for note in each.notes()
        if not each.pseudo
    ]
    return SurprisalDifference(texts, runs, whole, (first.pseudo, second.pseudo), tuple(caveats))
