"""Choices and answers by shared words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lmlab.baselines.span_baselines import AnswerOverlap, ChoiceOverlap, Rarity, nearest
from lmlab.data.readers.examples import Answer, Example
from lmlab.metrics.answers import AnswerF1, ExactMatch


def test_rare_words_tell_more_and_marks_nothing() -> None:
    rarity = Rarity(["the cat", "the dog", "the end"])
    assert rarity("the") < rarity("cat") < rarity("unheard")
    assert rarity("!") == 0


def choices(count: int, *, seed: int) -> list[Example]:
    """The right choice names the place of the context; its place among the choices is chance, their number varies."""
    random = np.random.default_rng(seed)
    places = np.array([f"place{i}" for i in range(60)])
    examples = []
    for _ in range(count):
        options = random.choice(places, int(random.integers(2, 5)), replace=False)
        right = int(random.integers(len(options)))
        context = f"They all went to {options[right]} that night"
        examples.append(Example(a="Where did they go?", b=context, choices=tuple(map(str, options)), label=right))
    return examples


def test_the_choice_that_the_context_names_is_found() -> None:
    baseline = ChoiceOverlap()
    baseline.fit(choices(100, seed=0))
    test = choices(50, seed=1)
    found = baseline.predict(test)
    assert found.labels == [each.label for each in test]
    assert ((found.probabilities > 0.4) & (found.probabilities <= 1)).all()
    assert baseline.predict([]).labels == []


def test_without_any_shared_word_the_usual_place_is_chosen() -> None:
    baseline = ChoiceOverlap()
    baseline.fit([Example(a="q", choices=("x", "y", "z"), label=1)] * 20)
    assert baseline.predict([Example(a="q", choices=("u", "v", "w"))]).labels == [1]


def questions(count: int, *, seed: int, none: bool) -> list[Example]:
    random = np.random.default_rng(seed)
    names = [f"{first}{last}" for first in ("Ab", "Ed", "Jo", "Lu") for last in ("an", "bert", "cilia", "dith", "sef")]
    examples = []
    for number in range(count):
        one, two = random.choice(names, 2, replace=False)
        context = (
            f"In the year 19{random.integers(10, 99)} the painter {one} left town. The baker {two} stayed with 12 cats."
        )
        asked = ["painter", "baker"][number % 2] if not none or number % 3 else "zookeeper"
        answer = {"painter": str(one), "baker": str(two)}.get(asked)
        label = (Answer(answer, context.index(answer)),) if answer else ()
        examples.append(Example(a=f"Who was the {asked}?", b=context, label=label))
    return examples


@pytest.mark.parametrize("none", [False, True])
def test_the_name_beside_the_words_of_the_question_is_found(none: bool) -> None:
    baseline = AnswerOverlap()
    baseline.fit(questions(200, seed=0, none=none))
    test = questions(60, seed=1, none=none)
    found = baseline.predict(test)
    assert ExactMatch().score(found.labels, [each.label for each in test]) > 0.9
    assert all(label in each.b for label, each in zip(found.labels, test, strict=True))
    assert ("" in found.labels) == none
    assert ((found.probabilities > 0) & (found.probabilities <= 1)).all()


def test_a_context_without_words_has_no_answer() -> None:
    baseline = AnswerOverlap()
    baseline.fit(questions(20, seed=0, none=False))
    assert baseline.predict([Example(a="Who?", b=""), Example(a="Who?", b="... !")]).labels == ["", ""]
    with pytest.raises(ValueError, match="no answer of the training examples is found in its context"):
        baseline.fit([Example(a="Who?", b="...", label=(Answer(".", 0),))])


def test_the_candidate_nearest_to_an_answer() -> None:
    places = [(0, 4), (0, 9), (5, 9), (20, 25)]
    assert nearest(places, (Answer("abcd", 5),)) == 2
    assert nearest(places, (Answer("abcdefghij", 0),)) == 1
    assert nearest(places, (Answer("abc", 12),)) is None
    assert nearest(places, ()) is None
    assert nearest([*places, (0, 0)], ()) == 4


def test_real_questions(shared_data: Callable[[str], Path]) -> None:
    data = json.loads((shared_data("squad") / "squad_subset_train.json").read_text())["data"]
    examples = [
        Example(
            a=each["question"],
            b=paragraph["context"],
            label=tuple(Answer(answer["text"], answer["answer_start"]) for answer in each["answers"]),
        )
        for article in data
        for paragraph in article["paragraphs"]
        for each in paragraph["qas"]
    ]
    baseline = AnswerOverlap()
    baseline.fit(examples[:400])
    test = examples[-200:]
    assert AnswerF1().score(baseline.predict(test).labels, [each.label for each in test]) > 0.15
