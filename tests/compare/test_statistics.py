"""Intervals, paired differences and ties, against formulas and figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lmlab.compare.statistics import Bootstrap, Difference, holm, tied_groups


def test_the_interval_is_that_of_the_normal_law_for_many_equal_units() -> None:
    generator = np.random.default_rng(1)
    bits = generator.normal(200.0, 30.0, size=400)
    estimate = Bootstrap({"a": [bits]}, np.full(400, 100.0)).estimate("a")
    error = bits.std(ddof=1) / np.sqrt(400) / 100
    assert estimate.value == pytest.approx(bits.mean() / 100)
    assert estimate.low == pytest.approx(estimate.value - 1.96 * error, abs=0.15 * error)
    assert estimate.high == pytest.approx(estimate.value + 1.96 * error, abs=0.15 * error)


def test_the_score_is_a_ratio_of_sums_not_a_mean_of_ratios() -> None:
    bootstrap = Bootstrap({"a": [np.array([10.0, 300.0])]}, np.array([10.0, 100.0]))
    assert bootstrap.estimate("a").value == pytest.approx(310 / 110)


def test_pairs_see_a_small_difference_that_intervals_do_not() -> None:
    generator = np.random.default_rng(2)
    hard = generator.normal(200.0, 40.0, size=100)
    bits = {"a": [hard], "b": [hard + generator.normal(2.0, 1.0, size=100)]}
    bootstrap = Bootstrap(bits, np.full(100, 100.0))
    (difference,) = bootstrap.differences()
    assert bootstrap.estimate("a").high > bootstrap.estimate("b").low, "the intervals overlap"
    assert (difference.better, difference.worse, difference.real) == ("a", "b", True)
    assert difference.low is not None
    assert 0 < difference.low < difference.bits < difference.high


def test_noise_and_equality_are_not_real() -> None:
    generator = np.random.default_rng(3)
    same = generator.normal(200.0, 40.0, size=50)
    bits = {"a": [same], "b": [same.copy()], "c": [same + generator.normal(0.0, 20.0, size=50)]}
    assert not any(each.real for each in Bootstrap(bits, np.full(50, 100.0)).differences())


def test_false_alarms_are_as_rare_as_promised() -> None:
    generator = np.random.default_rng(4)
    alarms = 0
    for trial in range(200):
        bits = {name: [generator.normal(200.0, 20.0, size=40)] for name in "abc"}
        found = Bootstrap(bits, np.full(40, 100.0), draws=300, seed=trial).differences()
        alarms += any(each.real for each in found)
    assert alarms <= 22  # 5% of 200, and three standard deviations


def test_seeds_that_differ_widen_the_interval() -> None:
    hard = np.random.default_rng(5).normal(200.0, 5.0, size=200)
    sizes = np.full(200, 100.0)
    one = Bootstrap({"a": [hard]}, sizes).estimate("a")
    three = Bootstrap({"a": [hard - 20, hard, hard + 20]}, sizes).estimate("a")
    assert three.value == pytest.approx(one.value)
    assert three.high - three.low > 5 * (one.high - one.low)


def test_too_few_units_say_nothing() -> None:
    bootstrap = Bootstrap({"a": [np.array([10.0, 11.0])], "b": [np.array([90.0, 91.0])]}, np.array([10.0, 10.0]))
    assert bootstrap.estimate("a")[1:] == (None, None)
    assert not bootstrap.differences()[0].real


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_ties_are_the_longest_stretches() -> None:
    def pair(better: str, worse: str, real: bool) -> Difference:
        return Difference(better, worse, 0.1, 0.0, 0.2, 0.0, real)

    found = [
        pair("a", "b", False), pair("a", "c", True), pair("a", "d", True),
        pair("b", "c", False), pair("b", "d", True), pair("c", "d", True),
    ]  # fmt: skip
    assert tied_groups("abcd", found) == [["a", "b"], ["b", "c"]]
    assert tied_groups("abcd", [each._replace(real=True) for each in found]) == []
    assert tied_groups("abcd", [each._replace(real=False) for each in found]) == [list("abcd")]
