"""The cost of a run: time on processors and GPUs, energy and CO2e, and the method by which they were measured."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lmlab.costs.countries import WORLD, ElectricityGrid, find_grid
from lmlab.units import PER_SECOND, main_unit

if TYPE_CHECKING:
    import torch

    from lmlab.costs.parameters import Parameters
    from lmlab.training.distributed.world import World
    from lmlab.training.progress import TrainingProgress

RAPL = Path("/sys/class/powercap")
WATTS_PER_CORE = 8.0
"""Assumed power of one busy core with its share of the board, where no meter is readable; LMLAB_WATTS overrides it."""
WATTS_PER_GPU = {"cuda": 300.0, "mps": 15.0}
"""Assumed power of a busy GPU, where no meter is readable; LMLAB_GPU_WATTS overrides it."""
GRAMS_PER_KWH = WORLD.grams_per_kwh
CODECARBON, OLD_CODECARBON = "LMLAB_CODECARBON", "LMLAB_SECOND_OPINION"


class Cost(NamedTuple):
    """Time and energy between two readings of the meter."""

    seconds: float
    cpu_seconds: float
    joules: float
    gpu_seconds: float = 0.0  # wall time for which a GPU was held

    def plus(self, other: Cost) -> Cost:
        """The sum of two costs."""
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def grams(self) -> float:
        """Grams of CO2e in the country of LMLAB_COUNTRY, else at the world's average intensity."""
        return find_grid().grams(self.joules)

    def as_dict(self, *, method: str, grid: ElectricityGrid | None = None) -> dict[str, Any]:
        """All figures for JSON, with the method and the country that they depend on."""
        position = grid or find_grid()
        return {
            **self._asdict(),
            "grams": position.grams(self.joules),
            "energy_method": method,
            "country": position.code,
            "grams_per_kwh": position.grams_per_kwh,
        }


class EnergyMeter:
    """Reads the energy counters of RAPL and NVML if they are readable, else multiplies seconds by assumed watts.

    RAPL counts the whole processor, including other processes; CPU seconds are those of this process. Of several
    processes that train together on a machine, the first one reads RAPL.
    """

    def __init__(self, device: torch.device | None = None, *, first: bool = True) -> None:
        """`first` is whether this process is the first on its machine, which counts the energy of all of them."""
        kind = "cpu" if device is None else device.type
        self.counters = _rapl_counters()
        self.gpu = _NVML.open(device) if device is not None and kind == "cuda" else None
        self.watts = _watts("LMLAB_WATTS", WATTS_PER_CORE)
        self.gpu_watts = _watts("LMLAB_GPU_WATTS", WATTS_PER_GPU.get(kind, 0.0)) if kind != "cpu" else 0.0
        self.method = "RAPL" if self.counters else f"CPU seconds x {self.watts:g} W"
        if kind != "cpu":
            self.method += " + NVML" if self.gpu is not None else f" + GPU seconds x {self.gpu_watts:g} W"
        self._on_gpu, self._first = kind != "cpu", first
        self._last = self._read()

    def lap(self) -> Cost:
        """The cost since the last lap."""
        now = self._read()
        seconds, cpu = now.seconds - self._last.seconds, now.cpu_seconds - self._last.cpu_seconds
        joules = cpu * self.watts
        if self.counters:
            pairs = zip(self.counters.values(), now.microjoules, self._last.microjoules, strict=True)
            joules = sum((after - before) % limit for limit, after, before in pairs) / 1e6 * self._first
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
    """The counter of microjoules of each package, and the value at which it wraps around."""
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


def total_cost(
    cost: Cost, *, parameters: Parameters, flops: float, method: str, grid: ElectricityGrid | None = None
) -> dict[str, Any]:
    """The cost of a finished run for JSON: parameters, FLOPs, time, energy and CO2e."""
    return {
        "flops": flops,
        "parameters": {**parameters._asdict(), "non_embedding": parameters.non_embedding},
        "cost": cost.as_dict(method=method, grid=grid),
    }


class CostTracker:
    """Measures what a run costs, and adds it to the progress of the run."""

    def __init__(self, device: torch.device, grid: ElectricityGrid, progress: TrainingProgress, world: World) -> None:
        self.meter = EnergyMeter(device, first=world.local_rank == 0)
        self.grid, self.progress, self.world = grid, progress, world
        progress.energy_method = self.meter.method

    def add(self, *, training: bool) -> float:
        """Add the cost since the last call, of training or of something else; return the seconds that it took.

        Processes run at the same time: their CPU seconds and joules are added, the seconds on the clock averaged.
        """
        lap = self.world.totals(self.meter.lap()._asdict())
        cost = Cost(**{**lap, "seconds": lap["seconds"] / self.world.size})
        self.progress.cost = Cost(*self.progress.cost).plus(cost)
        if training:
            self.progress.training_cost = Cost(*self.progress.training_cost).plus(cost)
            self.progress.seconds += cost.seconds
        return cost.seconds

    def so_far(self) -> dict[str, Any]:
        """The cost so far, for a line of metrics."""
        progress, cost = self.progress, Cost(*self.progress.cost)
        unit = main_unit(progress.units)
        rate = progress.units.get(unit, 0) / progress.seconds if progress.seconds else 0.0
        return {
            **cost._asdict(),
            "training_joules": Cost(*progress.training_cost).joules,
            "grams": self.grid.grams(cost.joules),
            unit + PER_SECOND: rate,
        }

    def total(self, parameters: Parameters) -> dict[str, Any]:
        """The cost of the finished run, for the last line of metrics."""
        progress, method = self.progress, self.meter.method
        found = total_cost(
            Cost(*progress.cost), parameters=parameters, flops=progress.flops, method=method, grid=self.grid
        )
        found["cost"]["training_joules"] = Cost(*progress.training_cost).joules
        return found


class CodecarbonResult:
    """What codecarbon measured; filled in when the work is done."""

    text = ""


@contextmanager
def codecarbon(grid: ElectricityGrid | None = None) -> Iterator[CodecarbonResult]:
    """Measure the work in this block with codecarbon too, if LMLAB_CODECARBON=1 asks for it."""
    result = CodecarbonResult()
    if not _wants_codecarbon():
        yield result
        return
    try:
        from codecarbon import OfflineEmissionsTracker, __version__
    except ImportError:
        raise ValueError(f"{CODECARBON}=1 needs codecarbon: pip install 'lmlab[energy]'") from None
    position = grid or find_grid()
    tracker = OfflineEmissionsTracker(
        country_iso_code=position.alpha3 or "USA", save_to_file=False, log_level="error", measure_power_secs=5
    )
    tracker.start()
    try:
        yield result
    finally:
        kilograms = tracker.stop()
        kwh = tracker.final_emissions_data.energy_consumed
        grams = f", {1000 * kilograms:.3g} g CO2e" if position.alpha3 and kilograms is not None else ""
        result.text = f"{1000 * kwh:.3g} Wh{grams} (codecarbon {__version__}, since the run was last started)"


def _wants_codecarbon() -> bool:
    """Whether an environment variable asks for codecarbon; until 0.5 it had another name and the value `codecarbon`."""
    new, old = os.environ.get(CODECARBON, ""), os.environ.get(OLD_CODECARBON, "")
    for name, value, allowed in ((CODECARBON, new, "1"), (OLD_CODECARBON, old, "codecarbon")):
        if value not in ("", "0", allowed):
            raise ValueError(f"{name}={value}: give {allowed}, or leave it out")
    if old:
        warnings.warn(f"{OLD_CODECARBON} is now {CODECARBON}=1", FutureWarning, stacklevel=4)
    return new == "1" or bool(old)
