"""Student's t distribution: its tails and quantiles, for any number of degrees of freedom above 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

LARGEST = 1e150
"""Larger values of |t| count as this one, whose square is still a number."""


def student_tails(t: float, *, freedom: float) -> float:
    """P(|T| > |t|), where T is Student's t."""
    return math.exp(log_student_tails(t, freedom=freedom))


def log_student_tails(t: float, *, freedom: float) -> float:
    """The natural logarithm of P(|T| > |t|): I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t²)."""
    square = min(abs(t), LARGEST) ** 2
    if not square:
        return 0.0
    x, y = freedom / (freedom + square), square / (freedom + square)
    a, b = freedom / 2, 0.5
    if x <= (a + 1) / (a + b + 2):
        return _log_incomplete_beta(x, y, a, b)
    return math.log1p(-math.exp(_log_incomplete_beta(y, x, b, a)))


@lru_cache(maxsize=256)
def student_quantile(level: float, *, freedom: float) -> float:
    """The value that |T| exceeds with a probability of `level`, where T is Student's t."""
    if not 0 < level <= 1 or not freedom > 0:
        raise ValueError(f"level={level} must lie above 0 and at most at 1, and freedom={freedom} above 0")
    target = math.log(level)
    low, high = 0.0, 1.0
    while log_student_tails(high, freedom=freedom) > target:
        low, high = high, 2 * high
    return find_root(lambda t: target - log_student_tails(t, freedom=freedom), low, high, tolerance=1e-13)


def find_root(function: Callable[[float], float], low: float, high: float, *, tolerance: float) -> float:
    """Where an increasing function is 0, within `tolerance`: `function(low)` <= 0 <= `function(high)`.

    Regula falsi in the variant called Illinois (Dowell & Jarratt 1971), which halves the value at an end that stays.
    """
    below, above = function(low), function(high)
    if below >= 0:
        return low
    last = 0.0
    for _ in range(200):
        middle = (low * above - high * below) / (above - below)
        if not low < middle < high:  # rounding
            middle = (low + high) / 2
        value = function(middle)
        if abs(value) < tolerance or high - low < 4e-16 * high:
            break
        if value < 0:
            low, below, above = middle, value, above / 2 if last < 0 else above
        else:
            high, above, below = middle, value, below / 2 if last > 0 else below
        last = value
    return middle


def _log_incomplete_beta(x: float, y: float, a: float, b: float) -> float:
    """The logarithm of the regularised incomplete beta function I_x(a, b), y = 1 − x (DLMF 8.17.22).

    The continued fraction 1 + d_1 / (1 + d_2 / (1 + …)) is computed by the method of Lentz; it converges quickly for
    x < (a + 1) / (a + b + 2).
    """
    log_x = math.log(x) if x < 0.5 else math.log1p(-y)
    front = math.lgamma(a + b) - math.lgamma(a + 1) - math.lgamma(b) + a * log_x + b * math.log(y)
    above, below, fraction = 1.0, 0.0, 1.0
    for k in range(1, 1000):
        m = k // 2
        if k % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 / (1 + d * below)
        above = 1 + d / above
        fraction *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return front - math.log(fraction)
