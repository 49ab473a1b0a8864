"""Two processes with one thread each against one process with two threads, and what DDP costs; memory per process.

GPT-2 small and a medium LSTM (Zaremba et al. 2014) take the same steps on random tokens in three ways, by turns:

    one          one process with two threads
    two          two processes with one thread each, whose gradients DDP averages
    two, apart   the same without any exchange, to see what the exchange costs

The figure is the median over rounds of the median step. `--memory` compares the peak memory of two processes under DDP
and FSDP with what `lmlab cost` predicts. Run it on an otherwise idle machine with two cores:

    python benchmarks/processes.py [--repeats 5] [--steps 5] [--models gpt2,lstm] [--quick] [--memory]
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lmlab.costs.design import describe
from lmlab.costs.estimate import needed_memory
from lmlab.data.loaders.streams import Streams, Windows
from lmlab.models import create
from lmlab.objectives.causal import Causal
from lmlab.training.devices import keep_buffers
from lmlab.training.distributed.group import Group
from lmlab.training.distributed.sharding import ShardedGroup
from lmlab.training.distributed.world import ALONE, World
from lmlab.training.learner import Learner
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step
from timing import make_parser

MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"size": "124M", "vocabulary": 50257, "window": 128, "batch": 4},
    "lstm": {"size": "medium", "vocabulary": 10_000, "window": 35, "batch": 20},
}
QUICK: dict[str, dict[str, Any]] = {
    "gpt2": {"size": "tiny", "vocabulary": 500, "window": 32, "batch": 4},
    "lstm": {"size": "tiny", "vocabulary": 500, "window": 16, "batch": 4},
}
WAYS = {"one": (1, 2), "two": (2, 1), "two, apart": (2, 1)}
"""Processes and threads of each."""
ALLOWED = 0.2
"""Difference between predicted and measured memory that is allowed, as a fraction."""


class Apart(Group):
    """Processes that exchange no gradients."""

    def accumulating(self, wrapped: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        assert isinstance(wrapped, DistributedDataParallel)
        return wrapped.no_sync()


def make_step(name: str, shape: Mapping[str, Any], world: World) -> Step:
    """A training step with two micro-batches, whatever the number of processes."""
    torch.manual_seed(0)
    fields = {"vocabulary": shape["vocabulary"]} | ({"window": shape["window"]} if name == "gpt2" else {})
    learner = Learner(create(name, fields, size=shape["size"]), Causal())
    tokens = np.random.default_rng(0).integers(0, shape["vocabulary"], 200_000).astype(np.uint16)
    config = TrainConfig(batch=shape["batch"], micro_batches=2, optimizer="adamw", rate=1e-4)
    loader = Streams if learner.stateful else Windows
    rows = shape["batch"] if learner.stateful else shape["batch"] // 2
    return Step(learner.train(), loader(tokens, batch=rows, window=shape["window"], seed=0), config, world=world)


def work(rank: int, size: int, way: str, threads: int, name: str, shape: dict[str, Any], steps: int, out: str) -> None:
    """Take steps in one of several processes, and write how long each took and the peak memory."""
    torch.set_num_threads(threads)
    keep_buffers()
    world: World = ALONE
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{out}.meeting", rank=rank, world_size=size)
        world = {"two": Group, "two, apart": Apart, "fsdp": ShardedGroup}[way]()
    before = peak_bytes()
    step = make_step(name, shape, world)
    times, states = [], None
    for number in range(steps + 2):  # two to warm up
        began = time.perf_counter()
        _, states = step(number, 1e-4, states)
        times.append(time.perf_counter() - began)
    step.close()
    found = {"seconds": statistics.median(times[2:]), "bytes": peak_bytes() - before}
    Path(f"{out}.{rank}").write_text(json.dumps(found))
    world.close()


def peak_bytes() -> int:
    """The largest memory that this process has had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def run(way: str, size: int, threads: int, name: str, shape: dict[str, Any], steps: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/result"
        processes.spawn(work, (size, way, threads, name, shape, steps, out), nprocs=size)
        return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(size)]


def compare_speed(name: str, shape: dict[str, Any], *, repeats: int, steps: int) -> None:
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way, (size, threads) in WAYS.items():
            times[way].append(max(each["seconds"] for each in run(way, size, threads, name, shape, steps)))
    one, two, apart = (statistics.median(times[way]) for way in WAYS)
    print(f"{name} {shape['size']}: {1000 * one:.0f} ms in one process, {1000 * two:.0f} ms in two")
    print(f"  two processes are {one / two:.2f} times as fast; DDP takes {(two - apart) / two:.1%} of their step")


def compare_memory(name: str, shape: dict[str, Any], *, steps: int) -> None:
    settings = {"window": shape["window"]} if name == "gpt2" else {}
    design = describe(
        name, size=shape["size"], settings=settings, vocabulary=shape["vocabulary"], window=shape["window"]
    )
    predicted = needed_memory(design, batch=shape["batch"] // 2, devices=2, moments=2, half=False)
    for way, strategy in (("two", "ddp"), ("fsdp", "fsdp")):
        measured = max(each["bytes"] for each in run(way, 2, 1, name, shape, steps))
        total = predicted[strategy].total
        off = measured / total - 1
        verdict = "" if abs(off) <= ALLOWED else f", more than the allowed {ALLOWED:.0%}"
        print(f"{name} {shape['size']} {strategy}: predicted {total / 1e6:,.0f} MB, measured {measured / 1e6:,.0f} MB")
        print(f"  measured is {off:+.0%}{verdict}")


def main() -> None:
    parser = make_parser(__doc__, repeats=5)
    parser.add_argument("--steps", type=int, default=5, help="timed steps in each round")
    parser.add_argument("--models", default="gpt2,lstm")
    parser.add_argument("--quick", action="store_true", help="tiny models, to try the script")
    parser.add_argument("--memory", action="store_true", help="compare memory instead of speed")
    options = parser.parse_args()
    shapes = QUICK if options.quick else MODELS
    for name in options.models.split(","):
        if options.memory:
            compare_memory(name, shapes[name], steps=options.steps)
        else:
            compare_speed(name, shapes[name], repeats=options.repeats, steps=options.steps)


if __name__ == "__main__":
    main()
