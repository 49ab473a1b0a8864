"""What a run costs: CPU time, energy and CO2e, with the method named."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

RAPL = Path("/sys/class/powercap")
WATTS_PER_CORE = 8.0
"""Assumed power of one busy core with its share of the board, where no meter is readable; LMLAB_WATTS overrides it."""
GRAMS_PER_KWH = 473.0
"""World average intensity of electricity in 2024 (Ember, Global Electricity Review 2025)."""


class Cost(NamedTuple):
    """What was spent between two readings of the meter."""

    seconds: float
    cpu_seconds: float
    joules: float

    def plus(self, other: Cost) -> Cost:
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def grams(self) -> float:
        """CO2e at the world's average intensity."""
        return self.joules / 3.6e6 * GRAMS_PER_KWH


class Meter:
    """Reads RAPL's energy counters where they can be read, else CPU seconds times stated watts."""

    def __init__(self) -> None:
        self.counters = _rapl_counters()
        self.watts = float(os.environ.get("LMLAB_WATTS", WATTS_PER_CORE))
        self.method = "RAPL" if self.counters else f"CPU seconds x {self.watts:g} W"
        self._last = self._read()

    def lap(self) -> Cost:
        """What was spent since the last lap."""
        now = self._read()
        seconds, cpu = now[0] - self._last[0], now[1] - self._last[1]
        joules = cpu * self.watts
        if self.counters:
            pairs = zip(self.counters.values(), now[2], self._last[2], strict=True)
            joules = sum((after - before) % limit for limit, after, before in pairs) / 1e6
        self._last = now
        return Cost(seconds, cpu, joules)

    def _read(self) -> tuple[float, float, list[int]]:
        return time.perf_counter(), time.process_time(), [int(path.read_text()) for path in self.counters]


def _rapl_counters() -> dict[Path, int]:
    """Each package's counter of microjoules, and where it wraps around."""
    counters = {}
    for folder in sorted(RAPL.glob("intel-rapl:*")):
        try:
            if (folder / "name").read_text().startswith("package"):
                (folder / "energy_uj").read_text()
                counters[folder / "energy_uj"] = int((folder / "max_energy_range_uj").read_text())
        except (OSError, ValueError):
            continue
    return counters
