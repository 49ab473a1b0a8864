"""Tags from the look of words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lmlab.baselines.majority import MajorityTag
from lmlab.baselines.word_tagger import WordTagger, features_of, shape_of
from lmlab.data.readers.examples import Example
from lmlab.metrics.tagging import SpanF1, TagAccuracy


@pytest.mark.parametrize(
    ("word", "shape"), [("Mc-90s", "Xx-0x"), ("USA", "X"), ("1,200", "0,0"), ("é…", "x…"), ("", "")]
)
def test_shapes(word: str, shape: str) -> None:
    assert shape_of(word) == shape


def test_features_know_the_neighbours_and_the_ends() -> None:
    first, last = features_of(["Anna", "sang"])
    assert {"word=Anna", "low=anna", "shape=Xx", "start=a", "end=nna", "-1=<s>", "+1=sang", "-2=<s>", "+2=</s>"} <= {
        *first
    }
    assert {"-1=anna", "-2=<s>", "+1=</s>", "-1shape=Xx", "-1 0=anna sang"} <= {*last}
    assert len(first) == len(last)


def made_up(count: int, *, seed: int) -> list[Example]:
    """Unheard names are people after "Mr" and places after "in"; what ends in -ed is a verb."""
    random = np.random.default_rng(seed)
    examples = []
    for _ in range(count):
        name = "".join(random.choice(list("abcdefgh"), 5)).capitalize()
        verb = "".join(random.choice(list("klmnop"), 4)) + "ed"
        person = random.random() < 0.5
        examples.append(Example(a=("Mr" if person else "in", name, verb), label=("O", "PER" if person else "LOC", "V")))
    return examples


def test_unheard_words_are_tagged_by_their_ends_and_neighbours() -> None:
    tagger = WordTagger()
    tagger.fit(made_up(200, seed=0))
    test = made_up(100, seed=1)
    found = tagger.predict(test)
    assert TagAccuracy().score(found.labels, [each.label for each in test]) > 0.98
    assert ((found.probabilities > 0.3) & (found.probabilities <= 1)).all()
    again = WordTagger()
    again.fit(made_up(200, seed=0))
    np.testing.assert_array_equal(again.predict(test).probabilities, found.probabilities)


def test_empty_sentences_are_no_trouble() -> None:
    tagger = WordTagger()
    tagger.fit([Example(a=("Paris",), label=("LOC",)), Example(a=(), label=())])
    assert tagger.predict([Example(a=()), Example(a=("Paris", "x")), Example(a=())]).labels == [(), ("LOC", "LOC"), ()]
    assert tagger.predict([]).labels == []
    tagger.fit([Example(a=(), label=())])
    assert tagger.predict([Example(a=("x",))]).labels == [("O",)]


def test_real_names_are_found_better_than_by_the_majority(shared_data: Callable[[str], Path]) -> None:
    text = (shared_data("conll2003") / "eng.testa").read_text()
    examples = []
    for block in text.split("\n\n"):
        rows = [line.split() for line in block.splitlines() if line.strip()]
        if rows:
            examples.append(Example(a=tuple(row[0] for row in rows), label=tuple(row[-1] for row in rows)))
    train, test = examples[:1500], examples[1500:2000]
    scores = {}
    for kind in (WordTagger, MajorityTag):
        baseline = kind()
        baseline.fit(train)
        scores[kind] = SpanF1().score(baseline.predict(test).labels, [each.label for each in test])
    assert scores[WordTagger] > scores[MajorityTag] + 0.1
    assert scores[WordTagger] > 0.6
