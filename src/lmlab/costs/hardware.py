"""Devices to reckon with: what they compute at best, hold, draw and cost.

The peak is the data sheet's for dense matrix products in the precision in which such a device is trained on: bf16 or
fp16 with fp32 sums on tensor cores, plain fp32 on devices that have none. For the four oldest it is the sustained fp32
rate that Vaswani et al. 2017 (footnote 5) reckon with. Watts are the data sheet's thermal design power: a ceiling that
busy devices come close to. Prices are on-demand list prices per device and hour in US dollars, of which many are lower
by now and none is a quotation; `--price-per-hour` replaces them.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from lmlab.config import suggest

T = 1e12
GB = 1e9


class Device(NamedTuple):
    """One accelerator."""

    name: str
    peak: float  # FLOP/s
    memory: float  # bytes
    watts: float
    price: float | None  # US dollars per hour
    half: bool  # trained in bf16 or fp16
    source: str


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device("k40", 3.7 * T, 12 * GB, 235, None, False, "Vaswani et al. 2017; NVIDIA"),
        Device("k80", 2.8 * T, 12 * GB, 150, 0.90, False, "Vaswani et al. 2017, one of two chips; AWS p2.xlarge"),
        Device("m40", 6.0 * T, 12 * GB, 250, None, False, "Vaswani et al. 2017; NVIDIA"),
        Device("p100", 9.5 * T, 16 * GB, 300, 1.46, False, "Vaswani et al. 2017; NVIDIA; Google Cloud"),
        Device("v100", 125 * T, 32 * GB, 300, 3.06, True, "NVIDIA V100 SXM2; AWS p3.2xlarge"),
        Device("t4", 65 * T, 16 * GB, 70, 0.35, True, "NVIDIA T4; Google Cloud"),
        Device("a100", 312 * T, 80 * GB, 400, 5.12, True, "NVIDIA A100 SXM 80 GB; AWS p4de.24xlarge / 8"),
        Device("a100-40", 312 * T, 40 * GB, 400, 4.10, True, "NVIDIA A100 SXM 40 GB; AWS p4d.24xlarge / 8"),
        Device("a10g", 70 * T, 24 * GB, 300, 1.01, True, "NVIDIA A10G; AWS g5.xlarge"),
        Device("l4", 121 * T, 24 * GB, 72, 0.71, True, "NVIDIA L4; Google Cloud g2-standard-4"),
        Device("h100", 989 * T, 80 * GB, 700, 12.29, True, "NVIDIA H100 SXM; AWS p5.48xlarge / 8"),
        Device("h200", 989 * T, 141 * GB, 700, None, True, "NVIDIA H200 SXM"),
        Device("b200", 2250 * T, 180 * GB, 1000, None, True, "NVIDIA B200 (DGX)"),
        Device("rtx3090", 71 * T, 24 * GB, 350, None, True, "NVIDIA GA102 white paper, fp32 sums"),
        Device("rtx4090", 165 * T, 24 * GB, 450, None, True, "NVIDIA Ada white paper, fp32 sums"),
        Device("mi300x", 1307 * T, 192 * GB, 750, None, True, "AMD MI300X"),
        Device("tpuv2", 45 * T, 16 * GB, 280, 1.13, True, "Google Cloud, one chip of v2-8; Jouppi et al. 2020"),
        Device("tpuv3", 123 * T, 32 * GB, 450, 2.00, True, "Google Cloud, one chip of v3-8; Jouppi et al. 2020"),
        Device("tpuv4", 275 * T, 32 * GB, 192, 3.22, True, "Google Cloud; Jouppi et al. 2023"),
    )
}
THIS = "this"


class Cluster(NamedTuple):
    """So many devices of one kind."""

    device: Device
    devices: int

    @property
    def name(self) -> str:
        return f"{self.device.name}x{self.devices}"


def parse_hardware(text: str) -> Cluster:
    """Read `a100`, `a100x8` or `h100x1024`; a ValueError names the nearest device."""
    given = text.strip().lower()
    if given in DEVICES:
        return Cluster(DEVICES[given], 1)
    name, cross, count = given.rpartition("x")
    if cross and name in DEVICES:
        if count.isascii() and count.isdigit() and int(count) > 0:
            return Cluster(DEVICES[name], int(count))
        raise ValueError(f"hardware {text!r}: {count!r} is no number of devices; write {name}x8")
    wanted = name if count.isdigit() and not difflib.get_close_matches(given, DEVICES, cutoff=0.8) else given
    raise ValueError(f"unknown hardware {text!r}{suggest(wanted, [*DEVICES, THIS])}; several are written a100x8")
