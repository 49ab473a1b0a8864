"""What is right most often, and the table of baselines."""

from __future__ import annotations

import numpy as np
import pytest

from lmlab.data.readers.examples import TASKS, Answer, Example
from lmlab.tasks import load_task
from toy_tasks import metrics_for


def fitted(task: str, train: list[Example]):
    baseline = load_task(task).make_baseline("majority")
    baseline.fit(train)
    return baseline


def test_the_most_frequent_label_with_its_share() -> None:
    majority = fitted("classification", [Example(a="x", label=label) for label in "abbba"])
    assert majority.predict([Example(a="y")] * 2)[0] == ["b", "b"]
    np.testing.assert_allclose(majority.predict([Example(a="y")] * 2).probabilities, [0.6, 0.6])
    assert fitted("classification", [Example(a="x", label=each) for each in "ba"]).predict([Example("y")]).labels == [
        "b"
    ]


def test_the_mean_score() -> None:
    found = fitted("regression", [Example(a="x", label=each) for each in (1.0, 2.0, 4.5)]).predict([Example(a="y")])
    assert found.labels == [2.5]
    assert np.isnan(found.probabilities).all()


def test_the_most_frequent_place_that_a_question_has() -> None:
    train = [Example(a="q", choices=("1", "2", "3"), label=label) for label in (2, 2, 2, 1, 1, 0)]
    found = fitted("choice", train).predict([Example(a="q", choices=tuple("abc")), Example(a="q", choices=tuple("ab"))])
    assert found.labels == [2, 1]
    np.testing.assert_allclose(found.probabilities, [1 / 2, 2 / 3])


def test_guessing_is_right_as_often_as_there_are_choices() -> None:
    """Whatever the right places are: a third of three choices, a half of two."""
    baseline = load_task("choice").make_baseline("chance")
    examples = [Example(a="q", choices=tuple("abc"), label=2), Example(a="q", choices=tuple("ab"), label=0)]
    baseline.fit(examples)
    said = baseline.predict(examples)
    np.testing.assert_allclose(said.probabilities, [1 / 3, 1 / 2])
    accuracy = metrics_for("choice")["accuracy"]
    assert accuracy.score(said.labels, [2, 0]) == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert accuracy.score([2, 1], [2, 0]) == 0.5


def test_the_most_frequent_tag_of_each_word() -> None:
    train = [
        Example(a=("Paris", "is", "Paris"), label=("B-LOC", "O", "B-LOC")),
        Example(a=("Paris", "laughs", "here"), label=("B-PER", "O", "O")),
    ]
    found = fitted("tagging", train).predict([Example(a=("Paris", "never", "laughs")), Example(a=())])
    assert found.labels == [("B-LOC", "O", "O"), ()]
    assert found.probabilities[0] == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)


def test_the_most_frequent_answer_may_be_none() -> None:
    one, two = (Answer("two", 0),), (Answer("three", 0),)
    assert fitted("spans", [Example("q", "c", label=each) for each in (one, one, two)]).predict([Example("q", "c")])[
        0
    ] == ["two"]
    with_none = [Example("q", "c", label=each) for each in ((), one, (), two)]
    assert fitted("spans", with_none).predict([Example("q", "c")]).labels == [""]


def test_every_task_has_a_majority_and_a_bag_of_words() -> None:
    for task in map(load_task, TASKS):
        assert {"majority", "bag of words"} <= set(task.baselines)
        for name in task.baselines:
            assert task.make_baseline(name).name == name.replace(" ", "_")


def test_unknown_baselines_are_refused() -> None:
    with pytest.raises(ValueError, match="spans has no baseline 'oracle'; it has majority, bag of words"):
        load_task("spans").make_baseline("oracle")


@pytest.mark.parametrize(("task", "name"), [(task, name) for task in TASKS for name in load_task(task).baselines])
def test_nothing_or_unlabelled_examples_are_refused(task: str, name: str) -> None:
    with pytest.raises(ValueError, match="there are no training examples"):
        load_task(task).make_baseline(name).fit([])
    with pytest.raises(ValueError, match=r"^a.tsv, line 3 has no label"):
        load_task(task).make_baseline(name).fit([Example(a="x", source="a.tsv", line=3)])
