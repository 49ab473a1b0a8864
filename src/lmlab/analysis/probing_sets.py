"""What a probe is asked: labels of words, of pairs of words, or of whole sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lmlab.analysis.readers import Parsed
from lmlab.config import suggest

DEEPEST, FARTHEST = 6, 5


class Question(NamedTuple):
    """What is asked of a sentence: the label of one word, of a pair of words, or of all (no places)."""

    places: tuple[int, ...]
    label: str


class Item(NamedTuple):
    """A sentence with its questions."""

    words: list[str]
    questions: list[Question]


def _each(label: Callable[[Parsed, int], str | None]) -> Callable[[Parsed], list[Question]]:
    def ask(sentence: Parsed) -> list[Question]:
        found = [(place, label(sentence, place)) for place in range(len(sentence.words))]
        return [Question((place,), each) for place, each in found if each is not None]

    return ask


def _distance(sentence: Parsed, place: int) -> str | None:
    head = sentence.heads[place]
    if head < 0:
        return None
    far = min(abs(head - place), FARTHEST)
    return f"{'right' if head > place else 'left'} {far}{'+' if far == FARTHEST else ''}"


def _relations(sentence: Parsed) -> list[Question]:
    return [
        Question((place, head), sentence.relations[place]) for place, head in enumerate(sentence.heads) if head >= 0
    ]


SETS: dict[str, Callable[[Parsed], list[Question]]] = {
    "pos": _each(lambda sentence, place: sentence.upos[place]),
    "xpos": _each(lambda sentence, place: sentence.xpos[place]),
    "number": _each(lambda sentence, place: sentence.features[place].get("Number")),
    "tense": _each(lambda sentence, place: sentence.features[place].get("Tense")),
    "depth": _each(
        lambda sentence, place: str(min(sentence.depth(place), DEEPEST)) + "+" * (sentence.depth(place) >= DEEPEST)
    ),
    "distance": _each(_distance),
    "relation": _relations,
}
"""By name: parts of speech, grammatical number, tense, depth in the tree, distance to the head, and the relation
between a word and its head, which is asked of the pair."""


def ask(sentences: Iterable[Parsed], name: str) -> list[Item]:
    """A ready set of questions about parsed sentences."""
    if name not in SETS:
        raise ValueError(f"unknown set of questions {name!r}{suggest(name, SETS)}")
    items = [Item(sentence.words, SETS[name](sentence)) for sentence in sentences]
    return [item for item in items if item.questions]


def ask_sentences(texts: Sequence[str], labels: Sequence[str]) -> list[Item]:
    """Questions about whole sentences, whose vector is the mean over their words."""
    return [
        Item(text.split(), [Question((), label)]) for text, label in zip(texts, labels, strict=True) if text.split()
    ]
