"""Random numbers of torch: those of the CPU, and those of the device that a model is on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def own_randomness(device: torch.device, *, seed: int) -> Iterator[None]:
    """Random numbers from `seed` on, on the CPU and on `device`; afterwards those before go on as if nothing was."""
    before = random_tensors(device)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        restore_random(before, device)


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """Where the generators of the CPU and of `device` stand, by name."""
    tensors = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        tensors["random.mps"] = torch.mps.get_rng_state()
    return tensors


def restore_random(tensors: dict[str, Tensor], device: torch.device) -> None:
    """Put the generators back to where `random_tensors` saw them."""
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
    elif device.type == "mps" and "random.mps" in tensors:
        torch.mps.set_rng_state(tensors["random.mps"])
