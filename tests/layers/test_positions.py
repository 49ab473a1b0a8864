"""Positions: the sine formula, one by one."""

from __future__ import annotations

import math

import pytest
import torch

from lmlab.layers.positions import (
    FIRST,
    LearnedPositions,
    SinusoidalPositions,
    UnboundedSinusoidalPositions,
    check_window,
    sinusoids,
)


@pytest.mark.parametrize("width", [2, 8, 7])
def test_sinusoids_are_the_formula(width: int) -> None:
    table = sinusoids(torch.arange(30), width)
    assert table.shape == (30, width)
    for position in range(30):
        for dimension in range(width):
            angle = position / 10000 ** (2 * (dimension // 2) / width)
            expected = math.sin(angle) if dimension % 2 == 0 else math.cos(angle)
            assert table[position, dimension].item() == pytest.approx(expected, abs=1e-5)


def test_moving_on_is_a_rotation() -> None:
    """PE(pos + k) is the same linear map of PE(pos) for every pos."""
    table = sinusoids(torch.arange(50), 2).double()
    turn = torch.tensor([[math.cos(3), math.sin(3)], [-math.sin(3), math.cos(3)]], dtype=torch.float64)
    torch.testing.assert_close(table[3:], table[:-3] @ turn.T, atol=1e-5, rtol=1e-5)


def test_slices_begin_at_the_start() -> None:
    learned, fixed = LearnedPositions(10, 4), SinusoidalPositions(10, 4)
    torch.testing.assert_close(learned(3, 2), learned.weight[3:5], atol=0, rtol=0)
    torch.testing.assert_close(fixed(3, 2), sinusoids(torch.tensor([3, 4]), 4), atol=0, rtol=0)
    assert list(fixed.state_dict()) == []


def test_the_window_has_an_end() -> None:
    check_window(8, 2, 10)
    with pytest.raises(ValueError, match="3 tokens after the 8 already read do not fit into a window of 10"):
        check_window(8, 3, 10)


def test_a_table_of_waves_that_grows_twice_at_once_keeps_the_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one text needs a longer table, another that needs one still longer comes between."""
    waves = UnboundedSinusoidalPositions(6)
    make = waves._make

    def interrupted(count: int) -> torch.Tensor:
        monkeypatch.setattr(waves, "_make", make)
        waves(0, 8 * FIRST)
        return make(count)

    monkeypatch.setattr(waves, "_make", interrupted)
    found = waves(1, FIRST)
    torch.testing.assert_close(found, sinusoids(torch.arange(1, FIRST + 1), 6))
    assert len(waves.table) == 8 * FIRST
