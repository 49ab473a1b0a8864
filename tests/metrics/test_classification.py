"""Metrics of classes and scores against scikit-learn and scipy, on random and on nasty inputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from lmlab.metrics.classification import F1, Accuracy, MacroF1, Matthews, confusion, positive_label
from lmlab.metrics.correlation import Pearson, Spearman
from lmlab.metrics.metric import Collected, Metric
from toy_tasks import metrics_for


def pairs_of(values: st.SearchStrategy, *, least: int = 1) -> st.SearchStrategy:
    return st.lists(st.tuples(values, values), min_size=least, max_size=40)


REFERENCES: dict[str, tuple[Metric, Callable]] = {
    "accuracy": (Accuracy(), sklearn.metrics.accuracy_score),
    "f1": (F1("b"), lambda t, p: sklearn.metrics.f1_score([x == "b" for x in t], [x == "b" for x in p])),
    "macro_f1": (MacroF1(), lambda t, p: sklearn.metrics.f1_score(t, p, average="macro")),
    "matthews": (Matthews(), sklearn.metrics.matthews_corrcoef),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("classes", ["a", "ab", "abcd"])
def test_measures_of_classes_are_those_of_scikit_learn(name: str, classes: str) -> None:
    metric, reference = REFERENCES[name]

    @given(pairs_of(st.sampled_from(classes)))
    def check(pairs: list[tuple[str, str]]) -> None:
        predicted, true = (list(each) for each in zip(*pairs, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs
            expected = reference(true, predicted)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # ours
            assert metric.score(predicted, true) == pytest.approx(expected, abs=1e-12)

    check()


@pytest.mark.parametrize("name", REFERENCES)
def test_a_draw_scores_as_its_examples_written_out(name: str) -> None:
    metric, reference = REFERENCES[name]
    random = np.random.default_rng(0)
    predicted, true = random.choice(list("abc"), 30), random.choice(list("abc"), 30)
    chosen = random.integers(0, 30, size=(20, 30))
    counts = np.stack([np.bincount(row, minlength=30) for row in chosen]).astype(float)
    drawn = metric.resampler(predicted.tolist(), true.tolist())(counts)
    expected = [reference(true[row].tolist(), predicted[row].tolist()) for row in chosen]
    np.testing.assert_allclose(drawn, expected, atol=1e-12)


# where scores are close together in the last digits, every formula of a correlation gives another number
SCORES = st.one_of(st.integers(-5, 5).map(float), st.floats(-100, 100).map(lambda x: round(x, 3)))


@pytest.mark.parametrize(
    ("metric", "reference"), [(Pearson(), scipy.stats.pearsonr), (Spearman(), scipy.stats.spearmanr)]
)
def test_correlations_are_those_of_scipy_ties_and_constants_included(metric: Metric, reference: Callable) -> None:
    @given(pairs_of(SCORES, least=2))
    def check(pairs: list[tuple[float, float]]) -> None:
        predicted, true = zip(*pairs, strict=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = float(reference(predicted, true).statistic)
        if len(set(predicted)) == 1 or len(set(true)) == 1:
            expected = math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert metric.score(predicted, true) == pytest.approx(expected, abs=1e-9, nan_ok=True)

    check()


@pytest.mark.parametrize(
    ("metric", "reference"), [(Pearson(), scipy.stats.pearsonr), (Spearman(), scipy.stats.spearmanr)]
)
def test_a_draw_correlates_as_its_examples_written_out(metric: Metric, reference: Callable) -> None:
    random = np.random.default_rng(1)
    predicted, true = random.integers(0, 6, 30) / 7, random.normal(size=30).round(1)
    chosen = random.integers(0, 30, size=(20, 30))
    chosen[0] = 3  # one example, thirty times: no correlation
    counts = np.stack([np.bincount(row, minlength=30) for row in chosen]).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = metric.resampler(predicted.tolist(), true.tolist())(counts)
    assert math.isnan(drawn[0])
    expected = [reference(predicted[row], true[row]).statistic for row in chosen[1:]]
    np.testing.assert_allclose(drawn[1:], expected, atol=1e-12)


@pytest.mark.parametrize("metric", [Pearson(), Spearman()])
@pytest.mark.parametrize(
    ("predicted", "true"),
    [
        ([], []),
        ([1.0], [2.0]),
        ([0.1] * 7, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
        ([1.0, math.nan, 2.0], [1.0, 2.0, 3.0]),
        ([1.0, math.inf, 2.0], [1.0, 2.0, 3.0]),
    ],
)
def test_no_correlation_is_no_number_and_no_warning(metric: Metric, predicted: list, true: list) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(metric.score(predicted, true))


def test_a_large_offset_or_scale_costs_no_digits() -> None:
    x, y = [0.0, 1.0, 2.0, 4.0], [0.0, 3.0, 1.0, 5.0]
    expected = Pearson().score(x, y)
    assert Pearson().score([1e9 + each for each in x], y) == pytest.approx(expected, rel=1e-9)
    assert Pearson().score([1e200 * each for each in x], [1e-200 * each for each in y]) == pytest.approx(expected)


def test_unequal_numbers_are_refused_and_nothing_is_no_number() -> None:
    for metric in (Accuracy(), F1("a"), MacroF1(), Matthews(), Pearson()):
        with pytest.raises(ValueError, match=r"^2 predictions for 1 examples: give one for each$"):
            metric.score(["a", "b"], ["a"])
        assert math.isnan(metric.score([], []))


def test_a_measure_collects_batches_as_a_metric() -> None:
    metric = Collected(Matthews())
    assert metric.better == "higher"
    metric.add((["a", "b"], ["a", "a"]))
    metric.add((["b"], ["b"]))
    assert metric.value() == pytest.approx(sklearn.metrics.matthews_corrcoef(["a", "a", "b"], ["a", "b", "b"]))


def test_confusion_counts_true_rows_and_predicted_columns() -> None:
    true, predicted = ["a", "a", "b", "c"], ["a", "c", "b", "b"]
    np.testing.assert_array_equal(
        confusion(predicted, true, labels="abc"), sklearn.metrics.confusion_matrix(true, predicted)
    )
    with pytest.raises(ValueError, match="'z' is none of the labels a, b"):
        confusion(["z"], ["a"], labels="ab")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["0", "1"], "1"), (["not_equivalent", "Equivalent"], "Equivalent"), (["cat", "dog"], None), (["yes", "1"], None)],
)
def test_the_positive_of_two_labels_is_found_by_its_name(labels: list[str], expected: str | None) -> None:
    assert positive_label(labels) == expected


@pytest.mark.parametrize(
    ("task", "settings", "expected"),
    [
        ("classification", {"labels": ["0", "1"]}, ["accuracy", "f1"]),
        ("classification", {"labels": ["cat", "dog"]}, ["accuracy", "macro_f1"]),
        ("classification", {"labels": ["a", "b", "c"]}, ["accuracy", "macro_f1"]),
        ("classification", {"labels": ["0", "1"], "metric": "f1"}, ["f1", "accuracy"]),
        ("classification", {"labels": ["0", "1"], "metric": "matthews"}, ["matthews", "accuracy", "f1"]),
        ("regression", {"metric": "pearson"}, ["pearson", "spearman"]),
        ("regression", {"metric": "spearman"}, ["spearman", "pearson"]),
        ("choice", {}, ["accuracy"]),
        ("tagging", {"scheme": "IOB1"}, ["f1", "precision", "recall", "accuracy"]),
        ("tagging", {}, ["accuracy"]),
        ("spans", {}, ["f1", "exact_match"]),
    ],
)
def test_each_task_has_its_measures_the_main_one_first(task: str, settings: dict, expected: list[str]) -> None:
    metrics = metrics_for(task, **settings)
    assert list(metrics) == expected
    assert all(metric.name == name and metric.better == "higher" for name, metric in metrics.items())


def test_what_cannot_be_measured_is_reported() -> None:
    with pytest.raises(ValueError, match="unknown task 'parsing'"):
        metrics_for("parsing")
    with pytest.raises(ValueError, match=r"which class is F1 about\? .*cat, dog"):
        metrics_for("classification", metric="f1", labels=["cat", "dog"])
    with pytest.raises(ValueError, match="regression has no metric 'f1'; it has pearson, spearman"):
        metrics_for("regression", metric="f1")
