"""Estimate training cost (memory, time, energy, CO2e, money) from a design, a number of tokens and the hardware."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lmlab.costs.communication import Exchange, exchanges
from lmlab.costs.countries import ElectricityGrid, find_grid
from lmlab.costs.design import Design, describe
from lmlab.costs.hardware import Cluster, parse_hardware

UTILISATION = 0.4
"""Fraction of the peak that a well-tuned training run reaches; used if nothing better is known."""
TOKENS_PER_PARAMETER = 20
"""Used if no number of tokens is given or published (Hoffmann et al. 2022)."""
HOST = 1.1
"""Power of a device with its share of the computer around it: V100s of 300 W drew 330 (Patterson et al. 2021)."""
PUE = 1.1
"""Power of the data centre per power of its computers (Patterson et al. 2021, for GPT-3's); the mean is 1.6."""
SINGLE = 4
"""Bytes of a number in single precision: weights, gradients and the optimizer's moments are kept in it."""
SCORES = 2**24
"""Scores that the loss holds at once in single precision; in half precision it holds all of them."""
HARDWARE = "a100"


class MemoryEstimate(NamedTuple):
    """Bytes on each device."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        return sum(self)


class Speed(NamedTuple):
    """The result of a benchmark on this machine."""

    machine: str
    tokens_per_second: float
    validation_tokens_per_second: float
    watts: float
    peak: float  # FLOP/s of a large matrix product
    memory: float  # bytes
    method: str  # how energy was metered


class CostEstimate(NamedTuple):
    """The estimated cost of training a design."""

    design: Design
    tokens: float
    tokens_from: str
    batch: int
    counted_flops: float
    training_flops: float  # as published, if the run is the published one and its paper counts differently
    flops_from: str
    hardware: str
    devices: int
    device_memory: float
    peak: float
    utilisation: float
    utilisation_from: str
    seconds: float  # of the whole run
    validation_seconds: float  # seconds of validation; 0 if not estimated
    joules: float
    energy_from: str
    grid: ElectricityGrid
    price_per_hour: float | None
    price_from: str  # source of the price; empty without a price
    hardware_from: str  # source of peak, memory and watts
    assumptions: str  # hardware numbers without a source; may be empty
    memory: Mapping[str, MemoryEstimate]  # by strategy: single, ddp, fsdp

    @property
    def grams(self) -> float:
        return self.grid.grams(self.joules)

    @property
    def dollars(self) -> float | None:
        return None if self.price_per_hour is None else self.seconds / 3600 * self.devices * self.price_per_hour

    @property
    def exchanges(self) -> list[Exchange]:
        """What 8 and 1,024 such devices would send each other."""
        return exchanges(self.design, batch=self.batch, flops_per_second=self.peak * self.utilisation)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        design, published = self.design, self.design.published
        return {
            "model": design.name,
            "size": design.size,
            "basis": design.basis,
            "parameters": design.parameters.total,
            "embedding_parameters": design.parameters.embedding,
            "non_embedding_parameters": design.parameters.non_embedding,
            "pretraining_only_parameters": design.pretraining_only,
            "vocabulary": design.vocabulary,
            "window": design.window,
            "mean_window": design.mean_window,
            "batch": self.batch,
            "tokens": self.tokens,
            "tokens_from": self.tokens_from,
            "forward_flops_per_token": design.forward_flops,
            "training_flops": self.training_flops,
            "training_flops_from": self.flops_from,
            "counted_training_flops": self.counted_flops,
            "hardware": self.hardware,
            "devices": self.devices,
            "peak_flops_per_second": self.peak,
            "utilisation": self.utilisation,
            "utilisation_from": self.utilisation_from,
            "seconds": self.seconds,
            "training_seconds": self.seconds - self.validation_seconds,
            "validation_seconds": self.validation_seconds,
            "device_hours": self.seconds / 3600 * self.devices,
            "joules": self.joules,
            "kwh": self.joules / 3.6e6,
            "energy_from": self.energy_from,
            "grams": self.grams,
            "country": self.grid.code,
            "grams_per_kwh": self.grid.grams_per_kwh,
            "grid_source": self.grid.source,
            "dollars": self.dollars,
            "price_per_hour": self.price_per_hour,
            "price_from": self.price_from,
            "hardware_from": self.hardware_from,
            "hardware_assumptions": self.assumptions,
            "memory": {name: {**part._asdict(), "total": part.total} for name, part in self.memory.items()},
            "device_memory": self.device_memory,
            "communication": [each._asdict() for each in self.exchanges],
            "published": published._asdict() if published is not None else None,
        }


def estimate(
    design: Design,
    *,
    tokens: float | None = None,
    batch: int = 8,
    hardware: str | None = None,
    speed: Speed | None = None,
    utilisation: float | None = None,
    country: str | None = None,
    price_per_hour: float | None = None,
    moments: int = 2,
    validation_tokens: float = 0.0,
) -> CostEstimate:
    """Estimate training on `hardware` (default: that of the paper, else one A100), or at a measured `speed`.

    `batch` is the number of rows per device and step, `moments` the optimizer's numbers per weight, and
    `validation_tokens` the tokens of all validations, whose time is added if the speed is measured.
    """
    _check("tokens", tokens, above=0.0)
    _check("utilisation", utilisation, above=0.0, to=1.0)
    _check("price per hour", price_per_hour, above=-1e-12)
    if batch < 1:
        raise ValueError(f"batch {batch}: give at least 1 (sequences per device)")
    tokens, tokens_from, as_published = _tokens(design, tokens)
    counted = design.training_flops * tokens
    training_flops, flops_from = _count_flops(design, counted, as_published=as_published)
    if speed is not None:
        done = _measure(speed, tokens=tokens, validation_tokens=validation_tokens, flops=counted)
        price_from = "given" if price_per_hour is not None else ""
    else:
        published = design.published
        own = hardware is None and published is not None and published.hardware is not None
        cluster = parse_hardware(hardware or (published.hardware if published else None) or HARDWARE)
        done = _compute_on(cluster, design, utilisation, own=own, flops=counted, priced=price_per_hour is not None)
        price_from = cluster.device.price_source if price_per_hour is None else "given"
        price_per_hour = cluster.device.price if price_per_hour is None else price_per_hour
    return CostEstimate(
        design=design,
        tokens=tokens,
        tokens_from=tokens_from,
        batch=batch,
        counted_flops=counted,
        training_flops=training_flops,
        flops_from=flops_from,
        hardware=done.name,
        devices=done.devices,
        device_memory=done.memory,
        peak=done.peak,
        utilisation=done.utilisation,
        utilisation_from=done.utilisation_from,
        seconds=done.seconds,
        validation_seconds=done.validation_seconds,
        joules=done.joules,
        energy_from=done.energy_from,
        grid=find_grid(country),
        price_per_hour=price_per_hour,
        price_from=price_from,
        hardware_from=done.source,
        assumptions=done.assumptions,
        memory=needed_memory(design, batch=batch, devices=done.devices, moments=moments, half=done.half),
    )


class _Computation(NamedTuple):
    """What training takes on one kind of hardware."""

    name: str
    source: str
    devices: int
    peak: float  # FLOP/s of a device
    memory: float  # bytes of a device
    half: bool  # computes in 16 bits
    utilisation: float
    utilisation_from: str
    seconds: float
    validation_seconds: float
    joules: float
    energy_from: str
    assumptions: str = ""


def _count_flops(design: Design, counted: float, *, as_published: bool) -> tuple[float, str]:
    """The FLOPs of training and how they were found: as the paper computes them, or as counted."""
    published = design.published
    if as_published and published is not None and published.by_time and published.hardware and published.seconds:
        cluster = parse_hardware(published.hardware)
        peak = cluster.device.peak
        return published.seconds * cluster.devices * peak, (
            f"{published.hours:g} h x {cluster.devices} {cluster.device.name} x {peak:.2g} FLOP/s, "
            f"as computed by {published.source}"
        )
    return counted, f"{design.training_flops / design.forward_flops:.3g} x forward x tokens"


def _measure(speed: Speed, *, tokens: float, validation_tokens: float, flops: float) -> _Computation:
    """Training at a speed that was measured on this machine."""
    training, validation = tokens / speed.tokens_per_second, validation_tokens / speed.validation_tokens_per_second
    return _Computation(
        name=speed.machine,
        source="measured on this machine",
        devices=1,
        peak=speed.peak,
        memory=speed.memory,
        half=False,
        utilisation=flops / training / speed.peak,
        utilisation_from="measured on this machine",
        seconds=training + validation,
        validation_seconds=validation,
        joules=(training + validation) * speed.watts,
        energy_from=f"measured on this machine: {speed.method}",
    )


def _compute_on(
    cluster: Cluster, design: Design, utilisation: float | None, *, own: bool, flops: float, priced: bool
) -> _Computation:
    """Training on a cluster; `own` is that of the paper, and `priced` says that the price was given."""
    device = cluster.device
    utilisation, utilisation_from = _utilisation(design, cluster, utilisation, own=own)
    seconds = flops / (cluster.devices * device.peak * utilisation)
    return _Computation(
        name=cluster.name,
        source=device.source,
        devices=cluster.devices,
        peak=device.peak,
        memory=device.memory,
        half=device.half,
        utilisation=utilisation,
        utilisation_from=utilisation_from,
        seconds=seconds,
        validation_seconds=0.0,
        joules=seconds * cluster.devices * device.watts * HOST * PUE,
        energy_from=f"{device.watts:g} W per device x {HOST:g} (host) x {PUE:g} (PUE)",
        assumptions=device.assumptions_but(*(["price"] if priced else [])),
    )


def _tokens(design: Design, given: float | None) -> tuple[float, str, bool]:
    """The number of tokens, its source, and whether it is that of the published run."""
    published = design.published
    if given is not None:
        return given, "given", published is not None and published.tokens == given
    if published is not None and published.tokens is not None:
        return published.tokens, published.source, True
    return (
        float(TOKENS_PER_PARAMETER * design.parameters.total),
        f"{TOKENS_PER_PARAMETER} per parameter (Hoffmann et al. 2022)",
        False,
    )


def _utilisation(design: Design, cluster: Cluster, given: float | None, *, own: bool) -> tuple[float, str]:
    """The fraction of the peak and its source: given, reached by the published run on its hardware, or assumed."""
    if given is not None:
        return given, "given"
    published = design.published
    if own and published is not None and published.seconds and published.tokens:
        spent = published.seconds * cluster.devices * cluster.device.peak
        return design.training_flops * published.tokens / spent, "utilisation of the published run"
    return UTILISATION, "assumed"


def needed_memory(design: Design, *, batch: int, devices: int, moments: int, half: bool) -> dict[str, MemoryEstimate]:
    """Bytes per device by strategy: one device, a copy on each (DDP), or sharded (FSDP).

    In half precision activations take half of the bytes; weights, gradients and moments stay in single precision, as
    with autocast. FSDP (ZeRO stage 3, Rajbhandari et al. 2020) gathers two blocks at once: the current and the next.
    """
    parameters = design.parameters.total + design.pretraining_only
    scores = batch * design.window * design.predicted * design.vocabulary
    activations = design.activations(batch) / (2 if half else 1)
    activations += 6 * scores if half else SINGLE * min(scores, SCORES)
    whole = MemoryEstimate(SINGLE * parameters, SINGLE * parameters, SINGLE * moments * parameters, activations)
    if devices == 1:
        return {"single": whole, "ddp": whole, "fsdp": whole}
    gathered = 2 * SINGLE * min(design.block, parameters / 2)
    shared = MemoryEstimate(
        whole.weights / devices + gathered, whole.gradients / devices, whole.optimizer / devices, activations
    )
    return {"single": whole, "ddp": whole, "fsdp": shared}


def _check(name: str, value: float | None, *, above: float, to: float = math.inf) -> None:
    if value is not None and not (math.isfinite(value) and above < value <= to):
        bounds = f"above {max(above, 0):g}" + (f" and at most {to:g}" if math.isfinite(to) else "")
        raise ValueError(f"{name} {value:g}: give a number {bounds}")


def parse_count(text: str) -> float:
    """Read a number of tokens: `300B`, `5Mtokens`, `1e9`, `20_000` or `2.5Gtokens`.

    A bare M is refused: a budget of `5M` could be minutes.
    """
    match = re.fullmatch(r"\s*([0-9][0-9_,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)\s*([kKMGBT]?)\s*(?:tokens?)?\s*", text)
    if match and match[2] == "M" and "token" not in text:
        raise ValueError(f"tokens {text!r}: M could be millions or minutes; write {match[1]}Mtokens")
    factor = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
    amount = float(match[1].replace(",", "").replace("_", "")) * factor[match[2]] if match else 0.0
    if not 0 < amount < math.inf:
        raise ValueError(f"tokens {text!r}: give a number above zero, such as 5Mtokens, 300B or 1e9")
    return amount


__all__ = ["CostEstimate", "MemoryEstimate", "Speed", "describe", "estimate", "needed_memory", "parse_count"]
