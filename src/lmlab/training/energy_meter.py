"""What a run costs: time on processors and GPUs, energy and CO2e, with the method named."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lmlab.costs.countries import WORLD, Grid, find_grid

if TYPE_CHECKING:
    import torch

    from lmlab.costs.parameters import Parameters

RAPL = Path("/sys/class/powercap")
WATTS_PER_CORE = 8.0
"""Assumed power of one busy core with its share of the board, where no meter is readable; LMLAB_WATTS overrides it."""
WATTS_PER_GPU = {"cuda": 300.0, "mps": 15.0}
"""Assumed power of a busy GPU, where no meter is readable; LMLAB_GPU_WATTS overrides it."""
GRAMS_PER_KWH = WORLD.grams_per_kwh
SECOND_OPINION = "LMLAB_SECOND_OPINION"


class Cost(NamedTuple):
    """What was spent between two readings of the meter."""

    seconds: float
    cpu_seconds: float
    joules: float
    gpu_seconds: float = 0.0  # wall time for which a GPU was held

    def plus(self, other: Cost) -> Cost:
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def grams(self) -> float:
        """CO2e where LMLAB_COUNTRY says that we are, else at the world's average intensity."""
        return find_grid().grams(self.joules)

    def as_dict(self, *, method: str, grid: Grid | None = None) -> dict[str, Any]:
        """For JSON: everything, with the method and the place that the figures depend on."""
        place = grid or find_grid()
        return {
            **self._asdict(),
            "grams": place.grams(self.joules),
            "energy_method": method,
            "country": place.code,
            "grams_per_kwh": place.grams_per_kwh,
        }


class Meter:
    """Reads RAPL's energy counters and NVML's where they can be read, else takes seconds times stated watts.

    RAPL counts the whole processor, whoever uses it; CPU seconds are this process's own.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        kind = "cpu" if device is None else device.type
        self.counters = _rapl_counters()
        self.gpu = _NVML.open(device) if device is not None and kind == "cuda" else None
        self.watts = _watts("LMLAB_WATTS", WATTS_PER_CORE)
        self.gpu_watts = _watts("LMLAB_GPU_WATTS", WATTS_PER_GPU.get(kind, 0.0)) if kind != "cpu" else 0.0
        self.method = "RAPL" if self.counters else f"CPU seconds x {self.watts:g} W"
        if kind != "cpu":
            self.method += " + NVML" if self.gpu is not None else f" + GPU seconds x {self.gpu_watts:g} W"
        self._on_gpu = kind != "cpu"
        self._last = self._read()

    def lap(self) -> Cost:
        """What was spent since the last lap."""
        now = self._read()
        seconds, cpu = now.seconds - self._last.seconds, now.cpu_seconds - self._last.cpu_seconds
        joules = cpu * self.watts
        if self.counters:
            pairs = zip(self.counters.values(), now.microjoules, self._last.microjoules, strict=True)
            joules = sum((after - before) % limit for limit, after, before in pairs) / 1e6
        gpu_seconds = seconds if self._on_gpu else 0.0
        if self.gpu is not None:
            joules += (now.gpu_millijoules - self._last.gpu_millijoules) / 1e3
        else:
            joules += gpu_seconds * self.gpu_watts
        self._last = now
        return Cost(seconds, cpu, joules, gpu_seconds)

    def _read(self) -> _Reading:
        return _Reading(
            time.perf_counter(),
            time.process_time(),
            [int(path.read_text()) for path in self.counters],
            self.gpu.millijoules() if self.gpu is not None else 0,
        )


class _Reading(NamedTuple):
    seconds: float
    cpu_seconds: float
    microjoules: list[int]
    gpu_millijoules: int


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


class _NVML:
    """The energy counter of one NVIDIA GPU (Volta and later)."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    @classmethod
    def open(cls, device: torch.device) -> _NVML | None:
        """The counter of a CUDA device, found by its UUID; None where it cannot be read."""
        try:
            import pynvml
            import torch

            pynvml.nvmlInit()
            name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
            meter = cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(name))
            meter.millijoules()
            return meter
        except Exception:  # no library, no driver, an old GPU: each fails in its own way, and none is an error here
            return None

    def millijoules(self) -> int:
        return int(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle))


def _watts(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        watts = float(text) if text else default
    except ValueError:
        watts = -1.0
    if not 0 <= watts < 1e6:
        raise ValueError(f"{variable}={text}: give the power in watts, for instance {default:g}")
    return watts


def price_tag(
    cost: Cost, *, parameters: Parameters, flops: float, method: str, grid: Grid | None = None
) -> dict[str, Any]:
    """The price of a run for JSON: what was learnt under `parameters`, what was computed, and what that cost."""
    return {
        "flops": flops,
        "parameters": {**parameters._asdict(), "non_embedding": parameters.non_embedding},
        "cost": cost.as_dict(method=method, grid=grid),
    }


class Opinion:
    """What somebody else's meter says of the same work; filled in when the work is done."""

    text = ""


@contextmanager
def second_opinion(grid: Grid | None = None) -> Iterator[Opinion]:
    """Let codecarbon meter the work too, if it is asked for with LMLAB_SECOND_OPINION=codecarbon."""
    opinion, wanted = Opinion(), os.environ.get(SECOND_OPINION, "")
    if not wanted:
        yield opinion
        return
    if wanted != "codecarbon":
        raise ValueError(f"{SECOND_OPINION}={wanted}: only codecarbon is known")
    try:
        import codecarbon
    except ImportError:
        raise ValueError(f"{SECOND_OPINION}=codecarbon needs codecarbon: pip install 'lmlab[energy]'") from None
    place = grid or find_grid()
    tracker = codecarbon.OfflineEmissionsTracker(
        country_iso_code=place.alpha3 or "USA", save_to_file=False, log_level="error", measure_power_secs=5
    )
    tracker.start()
    try:
        yield opinion
    finally:
        kilograms = tracker.stop()
        kwh = tracker.final_emissions_data.energy_consumed
        version = getattr(codecarbon, "__version__", "")
        grams = f", {1000 * kilograms:.3g} g CO2e" if place.alpha3 and kilograms is not None else ""
        opinion.text = f"{1000 * kwh:.3g} Wh{grams} (codecarbon {version}, since the run was last started)"
