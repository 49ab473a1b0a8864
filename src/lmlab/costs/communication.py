"""What devices that train together send each other, and how much of their time that may take: on paper.

A ring all-reduce of b bytes among n devices sends 2 (n − 1) / n · b from each; an all-gather or a reduce-scatter half
of it (Rajbhandari et al. 2020, section 7). DDP reduces the gradients once per step. FSDP gathers the weights for the
forward and for the backward pass, and scatters the gradients: 1.5 times as much.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from lmlab.costs.design import Design

SINGLE = 4
"""Bytes of a weight or a gradient: both are exchanged in single precision."""
NODE = 8
"""Devices of one machine."""
WITHIN, BETWEEN = 300e9, 25e9
"""Bytes per second that a device sends: within a machine (NVLink of an A100), and to others (200 Gbit/s). Assumed."""
SIZES = (8, 1024)
"""Numbers of devices that are shown."""


class Exchange(NamedTuple):
    """One step of several devices: what each sends, and the efficiency."""

    devices: int
    strategy: Literal["ddp", "fsdp"]
    sent: float  # bytes, by each device in each step
    seconds: float  # that sending takes
    efficiency: float  # if nothing is sent while the devices compute
    overlapped: float  # if as much as possible is sent while they compute


def exchanges(design: Design, *, batch: int, flops_per_second: float) -> list[Exchange]:
    """The exchange of 8 and of 1,024 devices, each of which computes `batch` rows in a step."""
    weights = SINGLE * (design.parameters.total + design.pretraining_only)
    computing = batch * design.mean_window * design.training_flops / flops_per_second
    found = []
    for devices in SIZES:
        rate = WITHIN if devices <= NODE else BETWEEN
        for strategy, passes in (("ddp", 2), ("fsdp", 3)):
            sent = passes * (devices - 1) / devices * weights
            seconds = sent / rate
            found.append(
                Exchange(
                    devices,
                    "ddp" if strategy == "ddp" else "fsdp",
                    sent,
                    seconds,
                    computing / (computing + seconds),
                    min(1.0, computing / seconds),
                )
            )
    return found
