"""Devices: which one computes, in which precision, with which random numbers, and how memory is reused."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` is a GPU if there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name.partition(":")[0] not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device {name!r} is not known; give auto, cpu, cuda (or cuda:1 …) or mps")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}; try --device cpu") from None
    return device


def free_memory(device: torch.device | None = None) -> int | None:
    """Bytes that this process may still take on a device, within the limit of its container; None if not known."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    path = Path("/proc/meminfo")
    if not path.is_file():
        return None
    sizes = dict(re.findall(r"(MemAvailable|SwapFree):\s*(\d+) kB", path.read_text()))
    if "MemAvailable" not in sizes:
        return None
    free = sum(map(int, sizes.values())) << 10
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and used.is_file() and (most := limit.read_text().strip()).isdigit():
        free = min(free, max(0, int(most) - int(used.read_text())))
    return free


def choose_dtype(precision: str, device: torch.device, *, bf16_on_cpu: bool = False) -> torch.dtype | None:
    """The data type for autocast; None for plain fp32.

    `auto` is bf16 on a GPU that has it. On a CPU that has it, only with `bf16_on_cpu`: where that is known to be faster
    and as good.
    """
    if precision == "auto":
        has_bf16 = torch.cuda.is_bf16_supported() if device.type == "cuda" else device.type == "cpu" and cpu_has_bf16()
        return torch.bfloat16 if has_bf16 and (device.type == "cuda" or bf16_on_cpu) else None
    if precision == "fp16" and device.type == "cpu":
        raise ValueError("train.precision = 'fp16' needs a GPU; on a CPU use fp32 or bf16")
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def cpu_has_bf16() -> bool:
    """Whether PyTorch's matrix products use bf16 instructions of this CPU; elsewhere they are emulated, and slow."""
    if not torch.backends.mkldnn.is_available() or "AVX512" not in torch.backends.cpu.get_cpu_capability():  # type: ignore[no-untyped-call]
        return False
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    allowed = limit in ("ALL", "DEFAULT") or any(name in limit for name in ("BF16", "FP16", "AMX"))
    return allowed and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@contextmanager
def own_randomness(device: torch.device, *, seed: int) -> Iterator[None]:
    """Use random numbers from `seed` within this block; afterwards the generators continue as if it had not run."""
    before = random_tensors(device)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        restore_random(before, device)


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """The states of the random number generators of the CPU and of `device`, by name."""
    tensors = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        tensors["random.mps"] = torch.mps.get_rng_state()
    return tensors


def restore_random(tensors: dict[str, Tensor], device: torch.device) -> None:
    """Restore the generator states that `random_tensors` returned."""
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
    elif device.type == "mps" and "random.mps" in tensors:
        torch.mps.set_rng_state(tensors["random.mps"])


def keep_buffers() -> bool:
    """Make glibc keep freed memory for the next step; False if there is no glibc.

    By default glibc returns large buffers to the system after each use and requests them again.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        return bool(library.mallopt(M_MMAP_THRESHOLD, 2**30) and library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
    except (OSError, AttributeError):
        return False
