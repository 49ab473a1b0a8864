"""Several processes that train together, for tests: gloo on one machine, with one thread each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from lmlab.training.distributed.group import Group
from lmlab.training.distributed.sharding import ShardedGroup

MEETINGS = itertools.count()
"""Numbers of the files by which processes find each other, one for each world."""


def run_processes(size: int, work: Callable[..., None], folder: Path, *arguments: Any, sharded: bool = False) -> None:
    """Call `work(world, folder, *arguments)` in `size` processes; an error in one of them is raised."""
    meeting = folder / f"meeting-{next(MEETINGS)}"
    processes.spawn(_begin, (size, meeting, work, folder, arguments, sharded), nprocs=size)


def _begin(
    rank: int,
    size: int,
    meeting: Path,
    work: Callable[..., None],
    folder: Path,
    arguments: tuple[Any, ...],
    sharded: bool,
) -> None:
    torch.set_num_threads(1)
    os.environ["LMLAB_CACHE"] = str(folder / "cache")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    try:
        work(ShardedGroup() if sharded else Group(), folder, *arguments)
    finally:
        dist.destroy_process_group()
