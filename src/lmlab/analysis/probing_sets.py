"""The labels that a probe predicts: of words, of pairs of words, or of whole sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lmlab.analysis.readers import Parsed
from lmlab.config import suggest

DEEPEST, FARTHEST = 6, 5


class ProbeLabel(NamedTuple):
    """A label of a sentence: of one word, of a pair of words, or of the whole sentence (no positions)."""

    positions: tuple[int, ...]
    label: str


class ProbedSentence(NamedTuple):
    """A sentence with its questions."""

    words: list[str]
    questions: list[ProbeLabel]


def _each(label: Callable[[Parsed, int], str | None]) -> Callable[[Parsed], list[ProbeLabel]]:
    def ask(sentence: Parsed) -> list[ProbeLabel]:
        found = [(position, label(sentence, position)) for position in range(len(sentence.words))]
        return [ProbeLabel((position,), each) for position, each in found if each is not None]

    return ask


def _distance(sentence: Parsed, position: int) -> str | None:
    head = sentence.heads[position]
    if head < 0:
        return None
    far = min(abs(head - position), FARTHEST)
    return f"{'right' if head > position else 'left'} {far}{'+' if far == FARTHEST else ''}"


def _relations(sentence: Parsed) -> list[ProbeLabel]:
    return [
        ProbeLabel((position, head), sentence.relations[position])
        for position, head in enumerate(sentence.heads)
        if head >= 0
    ]


SETS: dict[str, Callable[[Parsed], list[ProbeLabel]]] = {
    "pos": _each(lambda sentence, position: sentence.upos[position]),
    "xpos": _each(lambda sentence, position: sentence.xpos[position]),
    "number": _each(lambda sentence, position: sentence.features[position].get("Number")),
    "tense": _each(lambda sentence, position: sentence.features[position].get("Tense")),
    "depth": _each(
        lambda sentence, position: (
            str(min(sentence.depth(position), DEEPEST)) + "+" * (sentence.depth(position) >= DEEPEST)
        )
    ),
    "distance": _each(_distance),
    "relation": _relations,
}
"""By name: parts of speech, grammatical number, tense, depth in the tree, distance to the head, and the relation
between a word and its head, which is a label of the pair."""


def ask(sentences: Iterable[Parsed], name: str) -> list[ProbedSentence]:
    """A ready set of questions about parsed sentences."""
    if name not in SETS:
        raise ValueError(f"unknown set of questions {name!r}{suggest(name, SETS)}")
    items = [ProbedSentence(sentence.words, SETS[name](sentence)) for sentence in sentences]
    return [item for item in items if item.questions]


def ask_sentences(texts: Sequence[str], labels: Sequence[str]) -> list[ProbedSentence]:
    """Questions about whole sentences, whose vector is the mean over their words."""
    return [
        ProbedSentence(text.split(), [ProbeLabel((), label)])
        for text, label in zip(texts, labels, strict=True)
        if text.split()
    ]
