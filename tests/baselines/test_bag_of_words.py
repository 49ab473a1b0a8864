"""Linear models against scikit-learn; bags of words on made-up and real texts."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from lmlab.baselines.bag_of_words import TextFeatures, WordClassifier, WordRegression, words_of
from lmlab.baselines.linear import (
    SparseFeatures,
    choice_among,
    cross_entropy_to,
    fit_linear,
    grouped_log_softmax,
    squared_error_to,
)
from lmlab.data.readers.examples import Example
from lmlab.metrics.correlation import Pearson


def sparse(rows: int = 80, width: int = 12, *, seed: int = 0) -> tuple[SparseFeatures, np.ndarray]:
    dense = scipy.sparse.random(rows, width, density=0.3, random_state=seed).toarray()
    dense[3] = 0  # a row without features
    dense[:, 5] = 0  # and a feature without rows
    made = SparseFeatures([{i: row[i] for i in np.flatnonzero(row).tolist()} for row in dense], width=width)
    return made, dense


def test_sparse_products_are_those_of_the_matrix() -> None:
    features, dense = sparse()
    weights, gradients = torch.randn(12, 3), torch.randn(80, 3)
    matrix = torch.from_numpy(dense).float()
    torch.testing.assert_close(features.times(weights), matrix @ weights)
    torch.testing.assert_close(features.back(gradients), matrix.T @ gradients)
    none = SparseFeatures([], width=4)
    assert none.times(torch.randn(4, 2)).shape == (0, 2)
    assert none.back(torch.zeros(0, 2)).tolist() == [[0, 0]] * 4
    assert SparseFeatures([{}, {}], width=4).times(torch.randn(4, 2)).tolist() == [[0, 0]] * 2


@pytest.mark.parametrize("penalty", [1.0, 0.1])
def test_logistic_regression_is_that_of_scikit_learn(penalty: float) -> None:
    features, dense = sparse()
    targets = np.random.default_rng(0).integers(0, 3, 80)
    found = fit_linear(
        features, cross_entropy_to(torch.from_numpy(targets)), outputs=3, penalty=penalty / 80, steps=200
    )
    reference = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=1000).fit(dense, targets)
    np.testing.assert_allclose(found.scores(features).softmax(1), reference.predict_proba(dense), atol=2e-3)


def test_ridge_regression_is_that_of_scikit_learn() -> None:
    features, dense = sparse()
    targets = np.random.default_rng(0).normal(size=80)
    objective = squared_error_to(torch.from_numpy(targets).float())
    found = fit_linear(features, objective, outputs=1, penalty=0.5 / 80, steps=200)
    np.testing.assert_allclose(
        found.scores(features)[:, 0], Ridge(alpha=0.5).fit(dense, targets).predict(dense), atol=2e-3
    )


@pytest.mark.parametrize("kind", ["classes", "numbers", "choices"])
def test_gradients_are_those_of_automatic_differentiation(kind: str) -> None:
    scores = torch.randn(7, 1 if kind != "classes" else 3, dtype=torch.float64, requires_grad=True)
    objective = {
        "classes": cross_entropy_to(torch.tensor([0, 1, 2, 0, 1, 2, 0])),
        "numbers": squared_error_to(torch.randn(7, dtype=torch.float64)),
        "choices": choice_among(torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.tensor([1, 2, 6])),
    }[kind]
    loss, gradient = objective(scores)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss, scores)[0])


def test_a_softmax_among_the_rows_of_a_group() -> None:
    scores = torch.tensor([1.0, 2.0, 500.0, -500.0, 3.0])
    expected = torch.cat([scores[:2].log_softmax(0), scores[2:4].log_softmax(0), torch.zeros(1)])
    torch.testing.assert_close(grouped_log_softmax(scores, torch.tensor([0, 0, 1, 1, 2])), expected)


TEXTS = ["the cat sat on the mat", "a dog sat", "the dog and the cat , the end !", "cat cat cat"]


def test_features_are_tf_idf_as_in_scikit_learn() -> None:
    examples = [Example(a=text) for text in TEXTS]
    features = TextFeatures(examples)
    rows = features.rows(examples)
    reference = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, tokenizer=words_of, token_pattern=None)
    expected = reference.fit_transform(TEXTS)
    assert features.width == expected.shape[1]
    for row, theirs in zip(rows, expected.toarray(), strict=True):
        np.testing.assert_allclose(sorted(row.values()), sorted(theirs[theirs > 0]))
    assert features.rows([Example(a="unheard words only")]) == [{}]


def test_a_pair_has_the_words_of_each_those_of_both_and_how_much_is_shared() -> None:
    pair = Example(a="a red cat", b="a red dog sat")
    features = TextFeatures([pair])
    row = features.rows([pair])[0]
    shared = [row[features.width - len(TextFeatures.SHARED) + i] for i in range(len(TextFeatures.SHARED))]
    assert shared == pytest.approx([2 / 5, 2 / 3, 2 / 4, 1 / 4, 2 / (3**0.5 * 2), 3 / 4])
    same = features.rows([Example(a="a red cat", b="a red cat")])[0]
    assert [same[features.width - 6 + i] for i in range(6)] == pytest.approx([1] * 6)
    empty = features.rows([Example(a="", b="")])[0]
    assert all(value == 0 for value in empty.values())


def made_up(count: int, *, seed: int) -> list[Example]:
    random = np.random.default_rng(seed)
    words = np.array(["film", "plot", "story", "actor", "scene", "music", "light", "night", "city"])
    examples = []
    for _ in range(count):
        good = random.random() < 0.5
        text = [*random.choice(words, 6), "not" if random.random() < 0.5 else "so", "good" if good else "bad"]
        examples.append(Example(a=" ".join(text), label="up" if good == (text[-2] == "so") else "down"))
    return examples


@pytest.mark.parametrize("with_valid", [True, False])
def test_a_word_pair_that_decides_is_learnt(with_valid: bool) -> None:
    train, valid, test = (made_up(count, seed=seed) for seed, count in enumerate((300, 60, 200)))
    classifier = WordClassifier()
    classifier.fit(train, valid=valid if with_valid else None)
    found = classifier.predict(test)
    right = np.array([label == each.label for label, each in zip(found.labels, test, strict=True)])
    assert right.mean() > 0.97
    assert (found.probabilities >= 0.5).all()
    again = WordClassifier()
    again.fit(train, valid=valid if with_valid else None)
    np.testing.assert_array_equal(again.predict(test).probabilities, found.probabilities)
    np.testing.assert_allclose(classifier.probabilities(test).sum(1), 1, atol=1e-5)


def test_few_examples_one_class_empty_texts_and_labels_only_in_valid_are_no_trouble() -> None:
    classifier = WordClassifier()
    classifier.fit([Example(a="", label="x")])
    found = classifier.predict([Example(a="anything"), Example(a="")])
    assert found.labels == ["x", "x"]
    assert found.probabilities.tolist() == [1, 1]
    assert classifier.predict([]).labels == []
    classifier.fit(made_up(60, seed=0), valid=[Example(a="good", label="sideways"), Example(a="so good", label="up")])
    assert set(classifier.labels) == {"up", "down"}


def test_a_score_that_follows_shared_words_is_learnt_on_its_own_scale() -> None:
    random = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(200)])
    examples = []
    for _ in range(500):
        both, a, b = random.choice(words, int(random.integers(0, 9))), random.choice(words, 2), random.choice(words, 2)
        examples.append(Example(a=" ".join([*a, *both]), b=" ".join([*both, *b]), label=100 + 10.0 * len(both)))
    regression = WordRegression()
    regression.fit(examples[:400])
    found, true = regression.predict(examples[400:]).labels, [each.label for each in examples[400:]]
    assert Pearson().score(found, true) > 0.9
    assert np.abs(np.array(found) - true).mean() < 12
    constant = WordRegression()
    constant.fit([Example(a=text, label=3.0) for text in TEXTS])
    assert constant.predict([Example(a="a cat")]).labels == pytest.approx([3.0])


def test_real_sentences(shared_data: Callable[[str], Path]) -> None:
    """10,662 sentences of film reviews: all of them teach naive Bayes 76 to 79% (Wang & Manning 2012)."""
    archive = zipfile.ZipFile(next(shared_data("sentence_polarity").glob("*.zip")))
    examples = []
    for label in ("pos", "neg"):
        name = next(each for each in archive.namelist() if each.endswith(f".{label}"))
        lines = archive.read(name).decode("latin-1").splitlines()
        examples.append([Example(a=line, label=label) for line in lines])
    pairs = [each for both in zip(*examples, strict=True) for each in both]
    train, test = pairs[:4000], pairs[-1000:]
    classifier = WordClassifier()
    classifier.fit(train)
    right = np.mean([a == b.label for a, b in zip(classifier.predict(test).labels, test, strict=True)])
    assert right > 0.68
