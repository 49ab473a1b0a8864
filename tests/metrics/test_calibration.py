"""Calibration by hand and against confidences that are true."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lmlab.metrics.calibration import expected_calibration_error, reliability_curve


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
