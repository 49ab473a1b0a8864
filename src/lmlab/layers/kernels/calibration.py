"""From which size on which kernel is the fastest: measured on the machine, with defaults that are safe everywhere.

Only products with prepared or rounded weights are concerned, those of models that are used: training and its validation
losses do not depend on it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from lmlab.files import write_text
from lmlab.parsing import load_json

FILE = "kernels.json"
WIDTHS = (256, 512, 768, 1024, 1536, 2048)
"""Square matrices that are tried."""
ROWS = (16, 32, 64, 128, 256)
"""Numbers of vectors that are tried."""
CLEARLY = 0.95
"""The fraction of the time of the other kernel below which one is faster."""
SECONDS = 0.006
"""How long each kernel is timed at each size."""


class Thresholds(NamedTuple):
    """Sizes at which one kernel becomes faster than another; they change speed, and results by rounding at most."""

    few_prepared: int = 64
    """At most this number of vectors is multiplied with prepared weights."""
    vector_blocks: int = 2**19
    """Weights from which on a product of a prepared weight with a single vector is worth two threads."""
    int8_packed: int = 2**20
    """Weights from which on products of int8 weights with several vectors are worth packing the weights."""


class Pair(NamedTuple):
    """The same product by two kernels."""

    one: Callable[[], object]
    other: Callable[[], object]


_used = Thresholds()


def thresholds() -> Thresholds:
    """Those that are used."""
    return _used


def use(found: Thresholds) -> None:
    """Use these from now on."""
    global _used
    _used = found


def measure(pairs_at: Sequence[Callable[[int], Pair]]) -> Thresholds:
    """Measure for about a second; `pairs_at` are, by size, the two kernels between which each threshold decides.

    They are: prepared weights or F.linear, by the number of vectors; one or all threads, and plain or packed int8, by
    the width of a square matrix.
    """
    prepared, threads, packed = pairs_at
    return Thresholds(
        few_prepared=max((rows for rows in ROWS if _is_faster(prepared(rows))), default=1),
        vector_blocks=_first_width(threads) ** 2,
        int8_packed=_first_width(packed) ** 2,
    )


def _first_width(pair_at: Callable[[int], Pair]) -> int:
    """The width from which on the other kernel is faster at all that are tried; twice the last one if it never is."""
    first = 2 * WIDTHS[-1]
    for width in reversed(WIDTHS):
        one, other = pair_at(width)
        if not _is_faster(Pair(other, one)):
            break
        first = width
    return first


def _is_faster(pair: Pair) -> bool:
    """Whether the first kernel is clearly faster; the fastest of several calls of each, in turns, count."""
    best = [float("inf"), float("inf")]
    for kernel in pair:
        kernel()
    end = time.perf_counter() + 2 * SECONDS
    while time.perf_counter() < end:
        for number, kernel in enumerate(pair):
            begin = time.perf_counter()
            kernel()
            best[number] = min(best[number], time.perf_counter() - begin)
    return best[0] < CLEARLY * best[1]


def machine() -> str:
    """What the figures hold for: processor, version of PyTorch, threads and instruction sets."""
    name, path = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if path.is_file() and (found := re.search(r"^model name\s*:\s*(.+)$", path.read_text(errors="replace"), re.M)):
        name = found[1]
    allowed = [os.environ[each] for each in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA") if each in os.environ]
    return ", ".join([name, f"torch {torch.__version__}", f"{torch.get_num_threads()} threads", *allowed])


def save(found: Thresholds, folder: Path) -> Path:
    """Write the figures of this machine into the cache; those of others stay."""
    path = folder / FILE
    known = _read(path)
    known[machine()] = found._asdict()
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(known, indent=1) + "\n", shared=True)
    return path


def load(folder: Path) -> Thresholds | None:
    """The figures of this machine from the cache; None where there are none, or they are damaged."""
    found = _read(folder / FILE).get(machine())
    if not isinstance(found, dict) or found.keys() != set(Thresholds._fields):
        return None
    if not all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in found.values()):
        return None
    return Thresholds(**found)


def _read(path: Path) -> dict[str, object]:
    try:
        found = load_json(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
