"""Student's t against scipy."""

from __future__ import annotations

import math

import pytest
import scipy.stats

from lmlab.metrics.student_t import find_root, log_student_tails, student_quantile, student_tails

FREEDOMS = [0.3, 1, 1.3, 2, 3, 7.7, 10, 30, 499, 5000, 1e5]


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_tails_are_those_of_scipy(freedom: float) -> None:
    for t in (1e-9, 0.01, 0.5, 1, 1.96, 3, 10, 100, 1e5):
        expected = 2 * scipy.stats.t.sf(t, freedom)
        assert student_tails(t, freedom=freedom) == pytest.approx(expected, rel=1e-9, abs=1e-300)
        assert student_tails(-t, freedom=freedom) == student_tails(t, freedom=freedom)
    assert student_tails(0, freedom=freedom) == 1
    inside = freedom / (freedom + 4)
    assert student_tails(2, freedom=freedom) == pytest.approx(scipy.special.betainc(freedom / 2, 0.5, inside), rel=1e-9)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_quantiles_are_those_of_scipy(freedom: float) -> None:
    for level in (0.999, 0.9, 0.5, 0.05, 0.01, 1e-6, 1e-20):
        expected = scipy.stats.t.isf(level / 2, freedom)
        assert student_quantile(level, freedom=freedom) == pytest.approx(expected, rel=1e-8)
    assert student_quantile(1, freedom=freedom) == pytest.approx(0, abs=1e-12)


def test_tails_too_small_for_a_number_have_a_logarithm() -> None:
    """With one degree of freedom, P(|T| > t) = 2 / (π t) for large t."""
    assert log_student_tails(1e120, freedom=1) == pytest.approx(math.log(2 / math.pi) - 120 * math.log(10))
    assert math.isfinite(log_student_tails(math.inf, freedom=499))
    assert log_student_tails(1000, freedom=499) < -1000


def test_what_is_no_level_is_refused() -> None:
    for level, freedom in ((0, 3), (1.1, 3), (0.05, 0), (math.nan, 3)):
        with pytest.raises(ValueError, match="level="):
            student_quantile(level, freedom=freedom)


def test_roots_of_steep_and_flat_functions() -> None:
    for power in (1, 3, 9):
        root = find_root(lambda x, power=power: x**power - 1e-6, 0.0, 10.0, tolerance=1e-15)
        assert root**power == pytest.approx(1e-6, rel=1e-6)
    assert find_root(lambda x: x, 0.0, 1.0, tolerance=1e-9) == 0
