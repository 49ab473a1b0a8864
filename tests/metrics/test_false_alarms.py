"""A quick version of benchmarks/false_alarms.py: false alarms are rare, intervals cover the truth."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

TRIALS = 200


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "false_alarms.py"
    spec = importlib.util.spec_from_file_location("false_alarms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["false_alarms"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("metric", "documents", "seeds", "variances"),
    [
        ("bits per byte", 20, 1, "none"),
        ("bits per byte", 20, 2, "unequal"),
        ("bits per byte", 20, 3, "none"),
        ("bits per byte", 500, 2, "equal"),
        ("bits per byte", 500, 2, "unequal"),
        ("bits per byte", 500, 3, "equal"),
        ("accuracy", 20, 3, "none"),
        ("accuracy", 20, 2, "unequal"),
        ("accuracy", 500, 5, "none"),
    ],
)
def test_false_alarms_are_5_percent_at_most(
    simulation: ModuleType, metric: str, documents: int, seeds: int, variances: str
) -> None:
    """Within three standard errors of the simulation.

    With few seeds that vary in all documents, the method until version 0.5 (seeds resampled, normal distribution) is
    beyond that bound: the simulation computes it beside.
    """
    bound = 0.05 + 3 * math.sqrt(0.05 * 0.95 / TRIALS)
    setting = simulation.Setting(documents, seeds, variances, metric)
    found = simulation.simulate(setting, trials=TRIALS)
    assert found.alarm <= bound
    assert found.family <= bound
    assert found.covers >= 1 - bound
    assert found.covers_difference >= 1 - bound
    if metric == "bits per byte":
        assert found.power_1 <= found.power_2 <= found.power_5
    if metric == "bits per byte" and documents == 500:
        assert found.naive > bound, "the simulation would notice"
