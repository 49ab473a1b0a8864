"""The table of devices: every figure has a source, or is called an assumption, where users see it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from lmlab.cli import app
from lmlab.costs.design import describe
from lmlab.costs.estimate import Speed, estimate
from lmlab.costs.hardware import DEVICES, FIGURES, Device


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_every_figure_has_a_source_or_is_assumed(device: Device) -> None:
    assert device.source
    assert set(device.assumed) <= set(FIGURES)
    assert (device.price is not None) == bool(device.price_source)
    assert device.price is not None or "price" not in device.assumed
    assert bool(device.assumptions) == bool(device.assumed)
    found = estimate(describe("gpt2", size="tiny"), hardware=device.name).as_dict()
    assert found["hardware_from"] == device.source
    assert found["price_from"] == device.price_source
    assert found["hardware_assumptions"] == device.assumptions


def test_assumptions_are_shown() -> None:
    def shown(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["cost", "gpt2", "--size", "tiny", *arguments], env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        return result.output

    guessed = shown("--hardware", "a10g")
    assert "Without a source: peak and watts of the a10g are assumed." in guessed
    assert "Price: AWS g5.xlarge" in guessed
    assert "Without a source: price of the tpuv4 is assumed." in shown("--hardware", "tpuv4")
    known = shown("--hardware", "h100x8", "--price-per-hour", "2")
    assert "Hardware: NVIDIA H100 SXM5" in known
    assert "Price: given." in known
    assert "Without a source" not in known
    assert "Price:" not in shown("--hardware", "b200")


def test_a_given_cost_is_no_assumption_and_a_trial_has_no_data_sheet() -> None:
    given = estimate(describe("gpt2", size="tiny"), hardware="tpuv4", price_per_hour=1.0)
    assert (given.price_from, given.assumptions) == ("given", "")
    speed = Speed("here", 1000.0, 3000.0, 16.0, 1e11, 8e9, "CPU seconds x 8 W")
    tried = estimate(describe("gpt2", size="tiny"), tokens=1e6, speed=speed)
    assert (tried.hardware_from, tried.price_from, tried.assumptions) == ("measured on this machine", "", "")
