"""Exact match and F1 of answers: worked cases of SQuAD's scripts, and a plain writing of their rules."""

from __future__ import annotations

import collections
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmlab.metrics.answers import AnswerF1, ExactMatch


def normal(text: str) -> str:
    text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def expected(said: str, answers: list[str], *, version: int) -> tuple[float, float]:
    """Exact match and F1 of one question, by the definition of SQuAD 1.1 or 2.0."""
    if version == 2:
        answers = [each for each in answers if normal(each)] or [""]
    best = [0.0, 0.0]
    for answer in answers:
        words, gold = normal(said).split(), normal(answer).split()
        common = sum((collections.Counter(words) & collections.Counter(gold)).values())
        if version == 2 and (not words or not gold):
            f1 = float(words == gold)
        elif common == 0:
            f1 = 0.0
        else:
            precision, recall = common / len(words), common / len(gold)
            f1 = 2 * precision * recall / (precision + recall)
        best = [max(best[0], float(normal(said) == normal(answer))), max(best[1], f1)]
    return best[0], best[1]


@pytest.mark.parametrize(
    ("said", "answers", "exact", "f1"),
    [
        ("the Denver Broncos!", ["Denver Broncos"], 1, 1),
        ("Denver  broncos", ["The Denver Broncos", "Broncos"], 1, 1),
        ("Broncos", ["Denver Broncos"], 0, 2 / 3),
        ("an apple a day", ["apple day"], 1, 1),
        ("24 - 10", ["24–10", "24-10"], 0, 0),  # "24 10" and, without the hyphen, "2410"; the long dash stays
        ("the the cat cat", ["cat"], 0, 2 / 3),  # repeated words count
        ("Santa Clara, California", ["Santa Clara", "Levi's Stadium", "California."], 0, 4 / 5),
        ("", ["Paris"], 0, 0),
        ("theatre", ["theatre"], 1, 1),  # no article within a word
    ],
)
def test_worked_cases(said: str, answers: list[str], exact: float, f1: float) -> None:
    assert ExactMatch().score([said], [answers]) == exact
    assert AnswerF1().score([said], [answers]) == pytest.approx(f1)


def test_no_answer_is_right_where_there_is_none_and_only_there() -> None:
    true = [(), (), (("Paris", 3),), (("Paris", 3),)]
    said = ["", "Paris", "", "in Paris"]
    assert ExactMatch().score(said, true) == 1 / 4
    assert AnswerF1().score(said, true) == pytest.approx((1 + 0 + 0 + 2 / 3) / 4)


def test_versions_differ_where_an_answer_is_an_article() -> None:
    assert (ExactMatch().score(["an"], [["a"]]), AnswerF1().score(["an"], [["a"]])) == (1, 0)  # 1.1
    assert AnswerF1().score(["an", ""], [["a"], []]) == 1  # 2.0: such an answer is none


WORDS = st.lists(st.sampled_from(["a", "The", "cat", "Cat.", "dog", "-", "an", "x-y", "\u00a0", "'s"]), max_size=5)
TEXT = WORDS.map(" ".join)


@given(st.lists(st.tuples(TEXT, st.lists(TEXT, min_size=1, max_size=3)), min_size=1, max_size=4), st.booleans())
def test_scores_follow_the_definition(questions: list[tuple[str, list[str]]], unanswerable: bool) -> None:
    if unanswerable:
        questions = [*questions, ("cat", [])]
    said, true = zip(*questions, strict=True)
    scores = [expected(*each, version=2 if unanswerable else 1) for each in questions]
    assert ExactMatch().score(said, true) == pytest.approx(sum(each[0] for each in scores) / len(scores))
    assert AnswerF1().score(said, true) == pytest.approx(sum(each[1] for each in scores) / len(scores))
