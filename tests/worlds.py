"""A world of several processes for tests: gloo on one machine, with a learner that DDP or FSDP2 wraps."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from lmlab.training.distributed import World


class GlooWorld(World):
    """Processes that exchange counts, decisions and tensors by gloo; DDP averages their gradients."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.gradient_scale = rank, size, float(size)

    def broadcast(self, value: Any) -> Any:
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def totals(self, amounts: Mapping[str, Any]) -> dict[str, Any]:
        names = sorted(amounts)
        sums = torch.tensor([amounts[name] for name in names], dtype=torch.float64)
        dist.all_reduce(sums)
        return {name: type(amounts[name])(sums[names.index(name)].item()) for name in amounts}

    def gather(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, tensors)
        return everyone

    def wrap(self, module: nn.Module) -> nn.Module:
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return module
        return DistributedDataParallel(module, find_unused_parameters=True)


def run_processes(size: int, work: Callable[..., None], folder: Path, *arguments: Any) -> None:
    """Call `work(world, folder, *arguments)` in `size` processes; an error in one of them is raised."""
    processes.spawn(_begin, (size, work, folder, arguments), nprocs=size)


def _begin(rank: int, size: int, work: Callable[..., None], folder: Path, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ["LMLAB_CACHE"] = str(folder / "cache")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    try:
        work(GlooWorld(rank, size), folder, *arguments)
    finally:
        dist.destroy_process_group()


class ShardedWorld(GlooWorld):
    """The same with weights that FSDP2 shards over the processes, and gradients that it adds up."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.gradient_scale = 1.0

    def wrap(self, module: nn.Module) -> nn.Module:
        sharded = fully_shard(module)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo has no reduction that divides
        return sharded
