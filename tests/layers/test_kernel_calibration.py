"""The choice of kernels: measured, remembered for this machine alone, and never a matter of results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from lmlab.layers.kernels import calibration
from lmlab.layers.kernels.calibration import ROWS, WIDTHS, Pair, Thresholds
from lmlab.layers.kernels.linear import Linear, calibrate, prepare, round_weights


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = calibration.thresholds()
    yield
    calibration.use(before)


class Clock:
    """Time that passes only where a kernel says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def takes(self, seconds: float) -> Callable[[], None]:
        def kernel() -> None:
            self.now += seconds

        return kernel


@pytest.mark.parametrize(("rows", "width"), [(64, 768), (16, 256), (256, 2048)])
def test_thresholds_are_where_the_faster_kernel_changes(rows: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(calibration.time, "perf_counter", lambda: clock.now)

    def prepared(count: int) -> Pair:
        return Pair(clock.takes(0.001 if count <= rows else 0.003), clock.takes(0.002))

    def by_width(size: int) -> Pair:
        return Pair(clock.takes(0.002), clock.takes(0.001 if size >= width else 0.003))

    found = calibration.measure((prepared, by_width, by_width))
    assert found == Thresholds(few_prepared=rows, vector_blocks=width**2, int8_packed=width**2)


def test_a_kernel_that_is_never_faster_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(calibration.time, "perf_counter", lambda: clock.now)
    found = calibration.measure([lambda size: Pair(clock.takes(0.001), clock.takes(0.001))] * 3)
    assert found.few_prepared < min(ROWS)
    assert found.int8_packed > max(WIDTHS) ** 2


def test_figures_are_those_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calibration.load(tmp_path) is None
    kept = Thresholds(few_prepared=7, vector_blocks=8, int8_packed=9)
    calibration.save(kept, tmp_path)
    assert calibration.load(tmp_path) == kept
    monkeypatch.setattr(calibration, "machine", lambda: "another")
    assert calibration.load(tmp_path) is None
    calibration.save(Thresholds(), tmp_path)
    assert len(json.loads((tmp_path / calibration.FILE).read_text())) == 2


@pytest.mark.parametrize("content", ["", "[]", "{", '{"MACHINE": 3}', '{"MACHINE": {"few_prepared": -1}}', "\udcff"])
def test_a_damaged_file_is_no_file(content: str, tmp_path: Path) -> None:
    written = content.replace("MACHINE", calibration.machine()).encode(errors="surrogateescape")
    (tmp_path / calibration.FILE).write_bytes(written)
    assert calibration.load(tmp_path) is None


def test_what_is_measured_changes_no_result() -> None:
    torch.manual_seed(0)
    found = calibrate()
    assert all(value > 0 for value in found)
    plain, whole, x = Linear(300, 400).eval(), Linear(300, 400).eval(), torch.randn(20, 300)
    prepare(plain)
    round_weights(whole, "int8")
    with torch.no_grad():
        results = []
        for each in (Thresholds(1, 1, 1), Thresholds(1000, 10**9, 10**9), found):
            calibration.use(each)
            results.append([layer(rows) for layer in (plain, whole) for rows in (x, x[:1])])
    for others in results[1:]:
        for number, (one, other) in enumerate(zip(results[0], others, strict=True)):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
            assert number < 2 or torch.equal(one, other), "int8 is exact"
