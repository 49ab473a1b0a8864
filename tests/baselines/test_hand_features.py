"""The lecture's classifier over six hand-made features, with its worked examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from lmlab.baselines.hand_features import (
    NAMES,
    NEGATIVE,
    POSITIVE,
    HandFeatures,
    Lexicon,
    learn_lexicon,
    six_features,
    unit,
)
from lmlab.data.readers.examples import Example

REVIEW = (
    "It's hokey. There are virtually no surprises, and the writing is second-rate. So why was it so enjoyable? For one "
    "thing, the cast is great. Another nice touch is the music. I was overcome with the urge to get off the couch and "
    "start dancing. It sucked me in, and it'll do the same to you."
)


def test_the_unit_of_the_lecture() -> None:
    z, y = unit([0.3, 0.2, 0.9], weights=[0.1, 0.4, 0.2], bias=0.4)
    assert z == pytest.approx(0.69)
    assert y == pytest.approx(0.666, abs=5e-4)
    assert unit([1000.0], weights=[-1.0], bias=0.0)[1] == 0


def test_the_worked_example_of_the_book() -> None:
    """Jurafsky & Martin, chapter 5: three positive words, two negative, a "no", three pronouns, no "!", 66 words."""
    features = six_features(REVIEW)
    np.testing.assert_allclose(features, [3, 2, 1, 3, 0, math.log(66)])
    assert features[5] == pytest.approx(4.19, abs=5e-3)
    weights, bias = [2.5, -5.0, -1.2, 0.5, 2.0, 0.7], 0.1
    assert unit([3, 2, 1, 3, 0, 4.19], weights=weights, bias=bias)[1] == pytest.approx(0.70, abs=5e-3)
    assert unit(features, weights=weights, bias=bias)[1] == pytest.approx(0.70, abs=5e-3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [0, 0, 0, 0, 0, 0]),
        ("No! GREAT", [1, 0, 1, 0, 1, math.log(3)]),
        ("nothing known", [0, 0, 0, 0, 0, math.log(2)]),  # "no" within a word is none
        ("You’re ours", [0, 0, 0, 2, 0, math.log(2)]),
    ],
)
def test_features_of_short_texts(text: str, expected: list[float]) -> None:
    np.testing.assert_allclose(six_features(text), expected)
    assert len(expected) == len(NAMES)


def test_the_lists_are_apart() -> None:
    assert not POSITIVE & NEGATIVE
    assert min(len(POSITIVE), len(NEGATIVE)) > 100


def reviews(count: int, *, seed: int) -> list[Example]:
    random = np.random.default_rng(seed)
    good, bad = ["great", "superb", "moving", "zorp"], ["dull", "awful", "boring", "blorb"]
    examples = []
    for _ in range(count):
        label = ["neg", "pos"][int(random.integers(2))]
        sure, other = (good, bad) if label == "pos" else (bad, good)
        words = [
            *random.choice(sure, 2),
            *random.choice(other, int(random.integers(2))),
            *random.choice(["film", "it"], 4),
        ]
        examples.append(Example(a=" ".join(words), label=label))
    return examples


@pytest.mark.parametrize("hidden", [0, 8])
@pytest.mark.parametrize("lexicon", ["written", "learnt"])
def test_reviews_are_told_apart(hidden: int, lexicon: str) -> None:
    train, test = reviews(300, seed=0), reviews(200, seed=1)
    found = []
    for _ in range(2):
        baseline = HandFeatures(hidden=hidden, lexicon=lexicon)
        baseline.fit(train)
        found.append(baseline.predict(test))
    right = np.mean([a == b.label for a, b in zip(found[0].labels, test, strict=True)])
    assert right > (0.9 if lexicon == "learnt" else 0.8)  # the made-up words are in no written list
    np.testing.assert_array_equal(found[0].probabilities, found[1].probabilities)


def test_without_a_hidden_layer_it_is_logistic_regression() -> None:
    train = reviews(100, seed=0)
    baseline = HandFeatures()
    baseline.fit(train)
    features = np.stack([six_features(each.a) for each in train])
    features = (features - features.mean(0)) / np.maximum(features.std(0), 1e-6)
    # two rows of weights, w and −w, for the one w of scikit-learn: half the penalty
    reference = LogisticRegression(C=2, tol=1e-9).fit(features, [each.label for each in train])
    expected = reference.predict_proba(features).max(1)
    np.testing.assert_allclose(baseline.predict(train).probabilities, expected, atol=1e-3)


def test_a_hidden_layer_finds_what_no_straight_line_does() -> None:
    """Exactly one of "!" and "no" (Minsky & Papert's exclusive or)."""
    examples = [
        Example(a=" ".join(["word"] * 3 + ["no"] * no + ["!"] * mark), label=str(no != mark))
        for no in (0, 1)
        for mark in (0, 1)
    ] * 10
    scores = {}
    for hidden in (0, 8):
        baseline = HandFeatures(hidden=hidden)
        baseline.fit(examples)
        scores[hidden] = np.mean(
            [a == b.label for a, b in zip(baseline.predict(examples).labels, examples, strict=True)]
        )
    assert scores[8] == 1


def test_a_learnt_lexicon_has_the_words_that_decide() -> None:
    lexicon = learn_lexicon(reviews(300, seed=0), positive="pos", size=4)
    assert lexicon == Lexicon(
        frozenset({"great", "superb", "moving", "zorp"}), frozenset({"dull", "awful", "boring", "blorb"})
    )
    assert learn_lexicon(
        [Example(a="same same", label="pos"), Example(a="same same", label="neg")], positive="pos"
    ) == (
        frozenset(),
        frozenset(),
    )


def test_lists_are_learnt_for_two_classes_only() -> None:
    with pytest.raises(ValueError, match="word lists are learnt for two classes, and there are 3"):
        HandFeatures(lexicon="learnt").fit([Example(a="x", label=label) for label in "abc"])
    with pytest.raises(ValueError, match="must be 'written' or 'learnt'"):
        HandFeatures(lexicon="guessed")
    three = HandFeatures()
    three.fit([Example(a=text, label=label) for text, label in (("great", "a"), ("awful", "b"), ("x ! !", "c"))] * 9)
    assert three.predict([Example(a="great"), Example(a="awful"), Example(a="x ! !")]).labels == ["a", "b", "c"]
