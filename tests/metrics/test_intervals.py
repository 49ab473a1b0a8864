"""Intervals against scipy and against what they promise; calibration by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.stats

from lmlab.metrics import intervals
from lmlab.metrics.calibration import expected_calibration_error, reliability_curve
from lmlab.metrics.classification import F1, Accuracy
from lmlab.metrics.correlation import Pearson, Spearman
from lmlab.metrics.intervals import bootstrap, compare, estimate, mean_interval, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 10, 29, 30, 100, 999])
@pytest.mark.parametrize("share", [0.5, 0.6, 0.9, 0.975, 0.9995, 0.025])
def test_students_quantiles_are_those_of_scipy(freedom: int, share: float) -> None:
    expected = scipy.stats.t.ppf(share, freedom)
    assert student_quantile(share, freedom=freedom) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_mean_of_seeds_has_students_interval() -> None:
    values = [0.81, 0.84, 0.79, 0.86, 0.52]
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=scipy.stats.sem(values))
    assert mean_interval(values) == pytest.approx((np.mean(values), low, high))
    assert mean_interval([0.5]) == (0.5, None, None)
    assert mean_interval([0.5, 0.5]) == (0.5, 0.5, 0.5)
    assert math.isnan(mean_interval([]).value)
    assert mean_interval([0.5, math.nan])[1:] == (None, None)


def test_the_interval_of_an_accuracy_is_that_of_the_binomial_law() -> None:
    true, predicted = ["a"] * 400, ["a"] * 300 + ["b"] * 100
    low, high = bootstrap(Accuracy(), predicted, true, resamples=4000)
    expected = scipy.stats.binom(400, 0.75).ppf([0.025, 0.975]) / 400
    assert (low, high) == pytest.approx(tuple(expected), abs=0.006)
    assert estimate(Accuracy(), predicted, true)[0] == 0.75


@pytest.mark.parametrize("measure", [Pearson(), Spearman()])
def test_the_interval_of_a_correlation_holds_the_truth_as_often_as_it_says(measure) -> None:
    random = np.random.default_rng(0)
    truth = {"pearson": 0.6, "spearman": 6 / math.pi * math.asin(0.3)}[measure.name]
    inside = 0
    for trial in range(200):
        x = random.normal(size=100)
        y = 0.6 * x + 0.8 * random.normal(size=100)
        low, high = bootstrap(measure, x, y, resamples=300, seed=trial)
        inside += low <= truth <= high
    assert 0.87 <= inside / 200 <= 0.99


def test_the_draws_are_the_same_however_many_are_made_at_once(monkeypatch) -> None:
    random = np.random.default_rng(0)
    true, predicted = random.choice(["0", "1"], 50).tolist(), random.choice(["0", "1"], 50).tolist()
    whole = bootstrap(F1("1"), predicted, true, seed=3)
    monkeypatch.setattr(intervals, "AT_ONCE", 120)
    assert bootstrap(F1("1"), predicted, true, seed=3) == whole
    assert bootstrap(F1("1"), predicted, true, seed=4) != whole


def test_too_few_examples_or_a_constant_have_no_interval_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bootstrap(Accuracy(), ["a"] * 4, ["a"] * 4) == (None, None)
        assert bootstrap(Pearson(), [1.0] * 9, list(range(9))) == (None, None)
        result = compare(Pearson(), [[1.0] * 9], [list(range(9))], list(range(9)))
        assert result.low is None
        assert result.p == 1


def test_two_systems_are_compared_on_the_same_examples() -> None:
    """Both miss the same hard examples: a paired difference is found that the two intervals alone would not show."""
    true = ["a"] * 300
    first = ["a"] * 220 + ["b"] * 80
    second = ["a"] * 205 + ["b"] * 95
    result = compare(Accuracy(), [first], [second], true)
    assert result.ahead == pytest.approx(15 / 300)
    assert 0 < result.low < result.ahead < result.high
    assert result.share > 0.999
    # each of 15 examples of 300 that only one has right: the standard error of the difference
    error = math.sqrt(0.05 * 0.95 / 300)
    assert result.p == pytest.approx(math.erfc(0.05 / error / math.sqrt(2)), rel=1, abs=1e-4)
    back = compare(Accuracy(), [second], [first], true)
    assert (back.ahead, back.share) == (pytest.approx(-result.ahead), pytest.approx(1 - result.share))
    assert back.p == pytest.approx(result.p)
    same = compare(Accuracy(), [first], [first], true)
    assert (same.ahead, same.share, same.p) == (0, 0.5, 1)
    of_seeds = compare(Accuracy(), [first, second], [second, second], true)
    assert of_seeds.ahead == pytest.approx(result.ahead / 2), "the mean over seeds"
    assert of_seeds.high - of_seeds.low == pytest.approx((result.high - result.low) / 2), "on the very same draws"
    assert bootstrap(Accuracy(), first, true).low < bootstrap(Accuracy(), second, true).high


def test_false_alarms_are_as_rare_as_p_says() -> None:
    random = np.random.default_rng(0)
    true = np.zeros(200, dtype=int).tolist()
    alarms = 0
    for trial in range(200):
        first, second = (random.random((2, 200)) < 0.3).astype(int).tolist()
        alarms += compare(Accuracy(), [first], [second], true, resamples=200, seed=trial).p < 0.05
    assert alarms <= 22  # of 10 that are expected, 4 standard deviations more


def test_calibration_by_hand() -> None:
    confidences = [0.95, 0.95, 0.85, 0.55, 0.55, 1.0]
    right = [True, False, True, True, False, True]
    curve = reliability_curve(confidences, right)
    assert [each.size for each in curve] == [0, 0, 0, 0, 0, 2, 0, 0, 1, 3]
    assert curve[5] == (0.5, 0.6, 2, pytest.approx(0.55), 0.5)
    assert math.isnan(curve[0].accuracy)
    expected = (2 * 0.05 + 1 * 0.15 + 3 * abs(2.9 / 3 - 2 / 3)) / 6
    assert expected_calibration_error(confidences, right) == pytest.approx(expected)
    assert expected_calibration_error([0.0, 1.0], [False, True]) == 0
    assert math.isnan(expected_calibration_error([], []))
    for tenths in range(1, 11):  # what lies on an edge belongs below it, whatever the rounding of 10 × 0.7
        assert reliability_curve([tenths / 10], [True])[tenths - 1].size == 1
    assert reliability_curve([0.0], [True])[0].size == 1
    with pytest.raises(ValueError, match="from 0 to 1"):
        reliability_curve([1.2], [True])
    with pytest.raises(ValueError, match="2 confidences, 1 predictions"):
        reliability_curve([0.2, 0.3], [True])


def test_confidences_that_are_true_have_no_calibration_error() -> None:
    random = np.random.default_rng(0)
    confidences = random.random(100_000)
    right = random.random(100_000) < confidences
    assert expected_calibration_error(confidences, right) < 0.01
    assert expected_calibration_error(confidences**0.5, right) > 0.1


def test_all_right_is_not_certain() -> None:
    """Where every draw is the same the bootstrap says nothing: Wilson's interval stands in (10 of 10: from 0.7225)."""
    from lmlab.metrics.classification import Accuracy

    low, high = bootstrap(Accuracy(), ["a"] * 10, ["a"] * 10)
    assert (low, high) == (pytest.approx(0.722467, abs=1e-5), 1.0)
    low, high = bootstrap(Accuracy(), ["b"] * 100, ["a"] * 100)
    assert (low, high) == (0.0, pytest.approx(0.036994, abs=1e-5))
