"""Intervals, paired tests, seeds and groups, against scipy, by hand and by brute force."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from lmlab.metrics import statistics
from lmlab.metrics.classification import F1, Accuracy, Matthews
from lmlab.metrics.correlation import Pearson, Spearman
from lmlab.metrics.statistics import (
    Difference,
    Part,
    RatioOfSums,
    Scores,
    estimate,
    half_width,
    holm,
    letter_display,
    mean_interval,
    p_value,
    tied_groups,
    wilson,
)


def bits_per_byte(bits: dict[str, list[np.ndarray]], sizes: np.ndarray, *, resamples: int = 1000) -> Scores:
    return Scores(RatioOfSums("lower"), bits, sizes, sizes=sizes, resamples=resamples)


# One score


def test_the_interval_is_that_of_the_normal_distribution_for_many_equal_units() -> None:
    bits = np.random.default_rng(1).normal(200.0, 30.0, size=400)
    found = bits_per_byte({"a": [bits]}, np.full(400, 100.0), resamples=4000).estimate("a")
    error = bits.std(ddof=1) / np.sqrt(400) / 100
    assert found.value == pytest.approx(bits.mean() / 100)
    assert found.low == pytest.approx(found.value - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(found.value + 1.96 * error, abs=0.15 * error)


def test_the_score_is_a_ratio_of_sums_not_a_mean_of_ratios() -> None:
    scores = bits_per_byte({"a": [np.array([10.0, 300.0])]}, np.array([10.0, 100.0]))
    assert scores.estimate("a") == (pytest.approx(310 / 110), None, None)


def test_the_mean_of_values_has_students_interval() -> None:
    values = [0.81, 0.84, 0.79, 0.86, 0.52]
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=scipy.stats.sem(values))
    assert mean_interval(values) == pytest.approx((np.mean(values), low, high))
    assert mean_interval([0.5]) == (0.5, None, None)
    assert mean_interval([0.5, 0.5, 0.5]) == (0.5, None, None), "equal values do not say that others are equal"
    assert mean_interval([1e6 / 3] * 4 + [1e6 / 3 + 1e-10])[1:] == (None, None), "rounding is relative to the values"
    assert math.isnan(mean_interval([]).value)
    assert mean_interval([0.5, math.nan])[1:] == (None, None)


@pytest.mark.parametrize(("right", "units"), [(0, 10), (3, 10), (10, 10), (0, 100), (57, 100), (1, 1)])
def test_proportions_have_wilsons_interval(right: int, units: int) -> None:
    expected = scipy.stats.binomtest(right, units).proportion_ci(method="wilson")
    assert wilson(right, units) == pytest.approx((right / units, expected.low, expected.high), abs=1e-6)
    assert math.isnan(wilson(0, 0).value)


def test_an_accuracy_is_a_proportion_but_a_correlation_is_not() -> None:
    true, predicted = ["a"] * 300 + ["b"] * 100, ["a"] * 400
    assert estimate(Accuracy(), predicted, true) == wilson(300, 400)
    perfect = ["0", "1"] * 20
    assert estimate(Accuracy(), perfect, perfect)[1:] == wilson(40, 40)[1:], "all right is not certain"
    for metric in (F1("1"), Matthews()):
        assert estimate(metric, perfect, perfect) == (pytest.approx(1), None, None), (
            "every resample says 1: nothing is known"
        )
    assert estimate(Pearson(), [1.0, 2, 3, 4, 5, 6], [2.0, 4, 6, 8, 10, 12])[1:] == (None, None)


@pytest.mark.parametrize("metric", [Pearson(), Spearman()])
def test_the_interval_of_a_correlation_covers_the_truth_as_often_as_it_says(metric) -> None:
    random = np.random.default_rng(0)
    truth = {"pearson": 0.6, "spearman": 6 / math.pi * math.asin(0.3)}[metric.name]
    inside = 0
    for trial in range(200):
        x = random.normal(size=100)
        y = 0.6 * x + 0.8 * random.normal(size=100)
        _, low, high = estimate(metric, x, y, resamples=300, seed=trial)
        inside += low <= truth <= high
    assert 0.87 <= inside / 200 <= 0.99


def test_resamples_are_the_same_in_any_number_of_chunks(monkeypatch) -> None:
    random = np.random.default_rng(0)
    true, predicted = random.choice(["0", "1"], 50).tolist(), random.choice(["0", "1"], 50).tolist()
    whole = estimate(F1("1"), predicted, true, seed=3)
    monkeypatch.setattr(statistics, "CHUNK", 120)
    assert estimate(F1("1"), predicted, true, seed=3) == whole
    assert estimate(F1("1"), predicted, true, seed=4) != whole


def test_too_few_examples_or_a_constant_have_no_interval_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimate(Accuracy(), ["a"] * 4, ["a"] * 4)[1:] == (None, None)
        assert estimate(Pearson(), [1.0] * 9, list(range(9)))[1:] == (None, None)
        (found,) = Scores(Pearson(), {"a": [[1.0] * 9], "b": [list(range(9))]}, list(range(9))).compare()
        assert (found.low, found.p, found.significant) == (None, 1, False)
        two = bits_per_byte({"a": [np.array([10.0, 11.0])], "b": [np.array([90.0, 91.0])]}, np.array([10.0, 10.0]))
        assert two.estimate("a")[1:] == (None, None)
        assert not two.compare()[0].significant


def test_examples_of_a_group_are_resampled_together() -> None:
    """Ten equal answers to one paragraph say as much as one: the interval is that of the paragraphs."""
    random = np.random.default_rng(0)
    right = random.random(60) < 0.7
    alone = Scores(Accuracy(), {"a": [right.tolist()]}, [True] * 60, groups=range(60))
    repeated = np.repeat(right, 10).tolist()
    grouped = Scores(Accuracy(), {"a": [repeated]}, [True] * 600, groups=np.repeat(np.arange(60), 10).tolist())
    assert grouped.units == 60
    assert grouped.estimate("a") == pytest.approx(alone.estimate("a"))


def test_units_of_unequal_size_count_as_fewer() -> None:
    """A document of 90 pages and ten of one page: (90 + 10)² / (90² + 10) = 1.23; two are the least."""
    one_book = np.array([90.0] + [1.0] * 10)
    assert bits_per_byte({"a": [one_book]}, one_book).effective_units == 2
    two_sizes = np.array([3.0] * 10 + [1.0] * 30)
    assert bits_per_byte({"a": [two_sizes]}, two_sizes).effective_units == pytest.approx(60**2 / 120)
    keys = [0] * 3 + [1] * 3 + [2] * 2 + [3] + [4]
    grouped = Scores(Accuracy(), {"a": [["x"] * 10]}, ["x"] * 10, groups=keys)
    assert (grouped.units, grouped.effective_units) == (5, pytest.approx(100 / 24))
    assert Scores(Accuracy(), {"a": [["x"] * 8]}, ["x"] * 8).effective_units == 8
    assert math.isnan(Scores(Accuracy(), {"a": [[]]}, []).estimate("a").value)


# Seeds


def test_the_interval_of_seeds_is_students_where_units_do_not_vary() -> None:
    units = np.full(50, 100.0)
    seeds = [200.0, 202.0, 207.0]
    found = bits_per_byte({"a": [np.full(50, bits) for bits in seeds]}, units).estimate("a")
    assert found == pytest.approx(mean_interval([bits / 100 for bits in seeds]))


def test_the_difference_of_seeds_is_welchs_where_units_do_not_vary() -> None:
    one, other = [2.00, 2.02, 2.07], [2.10, 2.11, 2.30, 2.12]
    bits = {name: [np.full(50, 100 * score) for score in scores] for name, scores in (("a", one), ("b", other))}
    (found,) = bits_per_byte(bits, np.full(50, 100.0)).compare()
    expected = scipy.stats.ttest_ind(other, one, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_half_widths_of_units_and_seeds_add_as_squares() -> None:
    hard = np.random.default_rng(5).normal(200.0, 30.0, size=200)
    sizes = np.full(200, 100.0)
    seeds = [hard - 4, hard, hard + 7]
    both = bits_per_byte({"a": seeds}, sizes, resamples=4000).estimate("a")
    over_seeds = mean_interval([each.mean() / 100 for each in seeds])
    over_units = scipy.stats.t.ppf(0.975, 199) * hard.std(ddof=1) / math.sqrt(200) / 100
    expected = math.hypot(over_seeds.high - over_seeds.value, over_units)
    assert both.high - both.value == pytest.approx(expected, rel=0.03)
    assert both.value - both.low == pytest.approx(expected, rel=0.03)


def test_noise_of_single_units_counts_once() -> None:
    """Seeds that change each unit independently: the variance of their scores has all of it, nothing is added."""
    generator = np.random.default_rng(1)
    noise = generator.normal(200.0, 30.0, size=(5, 400))
    scores = bits_per_byte({"a": list(noise)}, np.full(400, 100.0), resamples=4000)
    found, over_seeds = scores.estimate("a"), mean_interval((noise.mean(axis=1) / 100).tolist())
    of_models = scipy.stats.t.ppf(0.975, 399) * noise.mean(axis=0).std(ddof=1) / math.sqrt(400) / 100
    assert found.high - found.value == pytest.approx(max(over_seeds.high - over_seeds.value, of_models), rel=0.05)
    shared = generator.normal(0.0, 20.0, size=400)  # documents that are hard for all seeds
    both = bits_per_byte({"a": list(noise + shared)}, np.full(400, 100.0), resamples=4000).estimate("a")
    seeds = mean_interval(((noise + shared).mean(axis=1) / 100).tolist())
    over_units = scipy.stats.t.ppf(0.975, 399) * 20 / math.sqrt(400) / 100
    assert both.high - both.value == pytest.approx(math.hypot(seeds.high - seeds.value, over_units), rel=0.1)


def test_seeds_with_equal_scores_do_not_make_an_interval_narrower() -> None:
    """By chance both seeds have as many right answers, to other questions: the interval is that of the models."""
    right = [[True] * 10 + [False] * 10, [False] * 10 + [True] * 10]
    other = [[True] * 12 + [False] * 8, [False] * 8 + [True] * 12]
    scores = Scores(Accuracy(), {"a": right, "b": other}, [True] * 20, resamples=4000)
    (found,) = scores.compare()
    means = np.mean(other, axis=0) - np.mean(right, axis=0)
    expected = scipy.stats.ttest_1samp(means, 0.0)
    assert found.value == pytest.approx(0.1)
    assert found.p == pytest.approx(expected.pvalue, rel=0.2)


def test_seeds_that_all_have_everything_right_are_not_certain() -> None:
    scores = Scores(Accuracy(), {"a": [["x"] * 30, ["x"] * 30]}, ["x"] * 30)
    assert scores.estimate("a") == wilson(30, 30)


def test_a_difference_between_seeds_that_vary_is_not_significant() -> None:
    """Ten documents make no seed: each seed differs clearly from the other system's, but the seeds vary as much."""
    hard = np.random.default_rng(0).normal(200.0, 20.0, size=500)
    bits = {"a": [hard, hard + 4], "b": [hard + 3, hard + 8]}
    (found,) = bits_per_byte(bits, np.full(500, 100.0)).compare()
    assert found.value == pytest.approx(0.035)
    assert not found.significant
    (of_one,) = bits_per_byte({"a": bits["a"][:1], "b": bits["b"][:1]}, np.full(500, 100.0)).compare()
    assert of_one.significant


# Two systems


def test_the_paired_test_sees_a_small_difference_that_intervals_do_not() -> None:
    generator = np.random.default_rng(2)
    hard = generator.normal(200.0, 40.0, size=100)
    bits = {"a": [hard], "b": [hard + generator.normal(2.0, 1.0, size=100)]}
    scores = bits_per_byte(bits, np.full(100, 100.0), resamples=4000)
    (found,) = scores.compare()
    assert scores.estimate("a").high > scores.estimate("b").low, "the intervals overlap"
    assert (found.better, found.worse, found.significant) == ("a", "b", True)
    assert 0 < found.low < found.value < found.high
    expected = scipy.stats.ttest_rel(bits["b"][0], bits["a"][0]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low / 100, expected.high / 100), rel=0.02)


def test_the_paired_test_of_an_accuracy_agrees_with_the_t_test_of_items() -> None:
    random = np.random.default_rng(3)
    true = ["a"] * 300
    first = np.where(random.random(300) < 0.8, "a", "b")
    second = np.where(random.random(300) < 0.2, "b", first)
    (found,) = Scores(Accuracy(), {"one": [first.tolist()], "two": [second.tolist()]}, true, resamples=8000).compare()
    expected = scipy.stats.ttest_rel((first == "a") * 1.0, (second == "a") * 1.0)
    assert (found.better, found.worse) == ("one", "two")
    assert math.log(found.p) == pytest.approx(math.log(expected.pvalue), rel=0.03)
    (back,) = Scores(Accuracy(), {"two": [second.tolist()], "one": [first.tolist()]}, true, resamples=8000).compare()
    assert back == found, "the order in which systems are given does not matter"


def test_equal_systems_and_noise_do_not_differ() -> None:
    generator = np.random.default_rng(3)
    same = generator.normal(200.0, 40.0, size=50)
    bits = {"a": [same], "b": [same.copy()], "c": [same + generator.normal(0.0, 20.0, size=50)]}
    found = bits_per_byte(bits, np.full(50, 100.0)).compare()
    assert not any(each.significant for each in found)
    assert next(each for each in found if {each.better, each.worse} == {"a", "b"}).p == 1


def test_the_difference_of_equal_scores_is_plus_zero() -> None:
    same = np.random.default_rng(3).normal(200.0, 40.0, size=50)
    (found,) = bits_per_byte({"a": [same], "b": [same.copy()]}, np.full(50, 100.0)).compare()
    assert math.copysign(1, found.value) == 1
    (found,) = bits_per_byte({"a": [1e9 * same], "b": [1e9 * same + 1e-6]}, np.full(50, 100.0)).compare()
    assert (found.value, found.p) == (0, 1), "a rounding error of large scores"


@pytest.mark.parametrize(("units", "significant"), [(5, False), (6, True), (20, True)])
def test_the_same_difference_in_every_unit_is_a_sign_test(units: int, *, significant: bool) -> None:
    sizes = np.arange(1.0, units + 1)
    (found,) = bits_per_byte({"a": [2 * sizes], "b": [3 * sizes]}, sizes).compare()
    assert found.p == pytest.approx(scipy.stats.binomtest(units, units).pvalue)
    assert found.significant == significant
    assert (found.low, found.high) == (None, None), "an interval of no width would claim certainty"


def test_opposite_seeds_have_no_interval_of_zero_width() -> None:
    true = [1, 0] * 20
    found = Scores(Accuracy(), {"a": [[1] * 40, [0] * 40]}, true).estimate("a")
    assert (found.value, found.low, found.high) == (0.5, None, None)


def test_only_the_pairs_asked_for_are_corrected_for() -> None:
    generator = np.random.default_rng(1)
    bits = {name: [generator.normal(200.0 + 4 * number, 20.0, size=60)] for number, name in enumerate("abc")}
    scores = bits_per_byte(bits, np.full(60, 100.0))
    every = {frozenset(each[:2]): each.p for each in scores.compare()}
    (alone,) = scores.compare([("c", "a")])
    assert alone.p < every[frozenset("ac")] == pytest.approx(min(1, 3 * alone.p))
    assert (alone.better, alone.worse) == (scores.order[0], scores.order[-1])


def test_higher_is_better_where_the_measure_says_so() -> None:
    scores = Scores(Accuracy(), {"poor": [["a", "b"] * 20], "good": [["a", "a", "a", "b"] * 10]}, ["a"] * 40)
    assert scores.order == ["good", "poor"]
    (found,) = scores.compare()
    assert (found.better, found.value) == ("good", 0.25)


# p-values


def test_p_values_end_the_interval_at_zero_as_scipy_computes_it() -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        parts = [
            Part(10 ** random.uniform(-8, 2), random.choice([4, 19, 499, 9999])),
            Part(10 ** random.uniform(-8, 2), random.choice([1, 1.2, 2, 3.7, 8, 18])),
        ]
        difference = 10 ** random.uniform(-2, 1) * math.sqrt(sum(part.variance for part in parts))

        def beyond(log_p: float, parts=parts, difference=difference) -> float:
            squares = [v * scipy.stats.t.isf(math.exp(log_p) / 2, freedom) ** 2 for v, freedom in parts]
            return sum(squares) - difference**2

        expected = math.exp(scipy.optimize.brentq(beyond, -340, -1e-15, xtol=1e-13))
        assert p_value(-difference, parts) == pytest.approx(expected, rel=1e-6)
        assert p_value(difference, parts[1:]) == pytest.approx(
            2 * scipy.stats.t.sf(difference / math.sqrt(parts[1].variance), parts[1].freedom), rel=1e-6
        )


def test_p_is_the_level_of_an_interval_of_that_width() -> None:
    parts = [Part(0.04, 19), Part(0.09, 2)]
    for level in (0.5, 0.05, 0.001):
        assert p_value(half_width(parts, level=level), parts) == pytest.approx(level, rel=1e-8)


def test_p_values_at_the_ends() -> None:
    assert p_value(0.0, [Part(1, 3), Part(1, 3)]) == 1
    assert p_value(0.1, []) == p_value(0.1, [Part(0, 3)]) == 0
    assert 0 <= p_value(1e9, [Part(1e-300, 499), Part(1e-300, 4)]) < 1e-200


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


# Groups and letters


def pairs(order: str, pattern: tuple[bool, ...]) -> list[Difference]:
    every = itertools.combinations(order, 2)
    return [Difference(a, b, 0.1, 0.0, 0.2, 0.0, each) for (a, b), each in zip(every, pattern, strict=True)]


@pytest.mark.parametrize("systems", [1, 2, 3, 4, 5, 6])
def test_two_systems_share_a_letter_exactly_if_they_do_not_differ_significantly(systems: int) -> None:
    """All patterns of significance, 32,768 of them for six systems."""
    order = "uvwxyz"[:systems]
    count = systems * (systems - 1) // 2
    for pattern in itertools.product((False, True), repeat=count):
        found = pairs(order, pattern)
        letters = {name: set(each) for name, each in letter_display(order, found).items()}
        wrong = [each for each in found if bool(letters[each.better] & letters[each.worse]) is each.significant]
        assert not wrong, (pattern, letters)
        assert all(letters.values()), "every system has a letter"


def test_letters_by_hand() -> None:
    found = pairs("abcd", (False, True, True, False, True, True))  # a-b and b-c do not differ
    assert tied_groups("abcd", found) == [["a", "b"], ["b", "c"], ["d"]]
    assert letter_display("abcd", found) == {"a": "a", "b": "ab", "c": "b", "d": "c"}
    assert tied_groups("abcd", pairs("abcd", (True,) * 6)) == [["a"], ["b"], ["c"], ["d"]]
    assert tied_groups("abcd", pairs("abcd", (False,) * 6)) == [list("abcd")]
    not_next_to_each_other = pairs("abc", (False, False, True))  # only b and c differ
    assert letter_display("abc", not_next_to_each_other) == {"a": "ab", "b": "a", "c": "b"}


def test_many_systems_still_have_different_letters() -> None:
    order = [f"system{number}" for number in range(60)]
    found = [Difference(a, b, 0.1, 0.0, 0.2, 0.0, True) for a, b in itertools.combinations(order, 2)]
    assert len(set(letter_display(order, found).values())) == 60
