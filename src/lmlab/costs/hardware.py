"""Devices: their peak FLOP/s, memory, power and price, with sources.

The peak is that of the data sheet for dense matrix products in the usual training precision: bf16 or fp16 with fp32
sums on tensor cores, plain fp32 on devices without them. For the four oldest it is the sustained fp32 rate that
Vaswani et al. 2017 (footnote 5) assume. Watts are the thermal design power: an upper limit that busy devices come close
to. Prices are on-demand list prices per device and hour in US dollars of the year given; many are lower now.
`--price-per-hour` replaces them.

All were looked up in November 2026 in stored public copies; "by way of" names where a vendor's number was found.
Numbers without a source are assumptions: they are listed in `assumed`, and `lmlab cost` shows them.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from lmlab.config import suggest

T = 1e12
GB = 1e9
FIGURES = ("peak", "memory", "watts", "price")


class Device(NamedTuple):
    """One accelerator; the numbers listed in `assumed` are from memory."""

    name: str
    peak: float  # FLOP/s
    memory: float  # bytes
    watts: float
    half: bool  # trained in bf16 or fp16
    source: str  # of peak, memory and watts
    price: float | None = None  # US dollars per hour
    price_source: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def assumptions(self) -> str:
        """The numbers of this device without a source, in words; may be empty."""
        return self.assumptions_but()

    def assumptions_but(self, *given: str) -> str:
        """The same, without the numbers that the user has given."""
        left = [figure for figure in self.assumed if figure not in given]
        return f"{' and '.join(left)} of the {self.name} {'is' if len(left) == 1 else 'are'} assumed" if left else ""


NOTES = "by way of G. Klockwood's notes on processors"
IMPACT = "by way of mlco2/impact, gpus.csv"
CATALOG = "by way of gpu-runtime-predictor, gpu_catalog.json"
JOUPPI = "design power of Jouppi et al. 2020, by way of AshokBhat/ml"
TABLES = "by way of public price tables"
SKYPILOT = "list price in us-central1, by way of SkyPilot's catalog v1"

# fmt: off
DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device("k40", 3.7 * T, 12 * GB, 235, False, f"Vaswani et al. 2017; NVIDIA Tesla K40c (245 W), {IMPACT}",
               assumed=("watts",)),
        Device("k80", 2.8 * T, 12 * GB, 150, False, f"Vaswani et al. 2017; one of two chips of 300 W, {IMPACT}",
               0.90, f"AWS p2.xlarge, {TABLES}"),
        Device("m40", 6.0 * T, 12 * GB, 250, False, f"Vaswani et al. 2017; NVIDIA Tesla M40, {IMPACT}"),
        Device("p100", 9.5 * T, 16 * GB, 300, False, "Vaswani et al. 2017; NVIDIA P100 SXM2, by way of sysrqmts.com",
               1.46, f"Google Cloud, {SKYPILOT}; without a host"),
        Device("v100", 125 * T, 32 * GB, 300, True, f"NVIDIA V100 SXM2 32 GB, {IMPACT}; peak {CATALOG}",
               3.06, f"AWS p3.2xlarge (with 16 GB), list price in us-east-1, {TABLES}"),
        Device("t4", 65 * T, 16 * GB, 70, True, f"NVIDIA T4 data sheet, {IMPACT}",
               0.35, f"Google Cloud, {SKYPILOT}; without a host"),
        Device("a100", 312 * T, 80 * GB, 400, True, f"NVIDIA A100 SXM4 80 GB data sheet, {IMPACT}",
               5.12, f"AWS p4de.24xlarge ($40.97) / 8, {TABLES}"),
        Device("a100-40", 312 * T, 40 * GB, 400, True, f"NVIDIA A100 40 GB, {CATALOG}",
               4.10, "AWS p4d.24xlarge ($32.77) / 8, by way of usage.ai, June 2026"),
        Device("a10g", 70 * T, 24 * GB, 300, True, "NVIDIA A10G: memory by way of Baseten, A10 vs A10G",
               1.01, "AWS g5.xlarge, list price in us-east-1, by way of FactualMinds, June 2026", ("peak", "watts")),
        Device("l4", 121 * T, 24 * GB, 72, True, "NVIDIA L4 (242 TFLOP/s with sparsity), by way of Grokipedia",
               0.71, f"Google Cloud g2-standard-4, list price in us-central1, {TABLES}"),
        Device("h100", 989 * T, 80 * GB, 700, True, f"NVIDIA H100 SXM5, {NOTES}",
               12.29, "AWS p5.48xlarge ($98.32) / 8, by way of usage.ai, June 2026"),
        Device("h200", 989 * T, 141 * GB, 700, True, f"NVIDIA H200 SXM, as the H100, {NOTES}; hmc-tech.com"),
        Device("b200", 2250 * T, 180 * GB, 1000, True, f"NVIDIA HGX B200, {NOTES}; DGX B200 user guide: 1,440 GB / 8"),
        Device("rtx3090", 71 * T, 24 * GB, 350, True,
               f"NVIDIA RTX 3090, {IMPACT}; half of the 142 TFLOP/s with fp16 sums, by way of Tom's Hardware, 2022"),
        Device("rtx4090", 165 * T, 24 * GB, 450, True, "NVIDIA RTX 4090, by way of waredb.com; 450 W: WCCFTech, 2022"),
        Device("mi300x", 1307 * T, 192 * GB, 750, True, "AMD MI300X (some 1.3 PFLOP/s), by way of J. Watkins, MI300"),
        Device("tpuv2", 45 * T, 16 * GB, 280, True, f"Google, Cloud TPU pricing (8 GiB a core); {IMPACT}; {JOUPPI}",
               1.13, f"Google Cloud, one of four chips of v2-8, {SKYPILOT}"),
        Device("tpuv3", 123 * T, 32 * GB, 450, True, f"Google, Cloud TPU v3 (262 W at most measured); {JOUPPI}",
               2.00, f"Google Cloud, one of four chips of v3-8, {SKYPILOT}"),
        Device("tpuv4", 275 * T, 32 * GB, 192, True, "Google, Cloud TPU v4 (192 W is the most that was measured)",
               3.22, "Google Cloud", ("price",)),
    )
}
# fmt: on
THIS = "this"


class Cluster(NamedTuple):
    """A number of devices of one kind."""

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
        raise ValueError(f"hardware {text!r}: {count!r} is not a number of devices; write {name}x8")
    wanted = name if count.isdigit() and not difflib.get_close_matches(given, DEVICES, cutoff=0.8) else given
    raise ValueError(f"unknown hardware {text!r}{suggest(wanted, [*DEVICES, THIS])}; for several devices write a100x8")
