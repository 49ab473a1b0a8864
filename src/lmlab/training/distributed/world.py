"""The processes that train together: which one writes, which one decides, and totals over all of them.

Models, objectives and tasks are written for one device. Training asks its `World` wherever processes could differ, and
everything else is applied from outside, around the `Learner`. group.py has the world
of several processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
Amount = TypeVar("Amount", int, float)


class LostProcessError(ValueError):
    """A process of the run has ended, so that the others cannot continue."""


class World:
    """A world of one process, which writes, decides and counts alone.

    Training asks its world wherever processes could differ: clocks and signals (`any`, `broadcast`), counts (`totals`),
    files (`writes`), gradients (`wrap`, `accumulating`) and the data of a step (`share`). A world of several processes
    overrides these; every process calls them in the same order.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """The number of this process on its machine."""
    gradient_scale: float = 1.0
    """What losses are multiplied by: `size` if `wrap` averages gradients over processes (DDP), 1 if it adds them."""
    sharded: bool = False
    """Whether each process keeps a part of the weights only (FSDP)."""

    @property
    def writes(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks; whatever JSON can hold."""
        return [value]

    def broadcast(self, value: T) -> T:
        """The value of process 0, in every process; whatever JSON can hold."""
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return any(self.gather(bool(flag)))

    def first(self, make: Callable[[], T]) -> T:
        """What `make` returns; process 0 calls it before all others, which then find its result in the cache.

        The first process of every other machine is next: it may have a cache of its own.
        """
        made: list[T] = []
        for turn in (self.rank == 0, self.local_rank == 0, True):
            if turn and not made:
                made.append(make())
            self.gather(None)
        return made[0]

    def totals(self, amounts: Mapping[str, Amount | Sequence[Amount]]) -> dict[str, Amount]:
        """Amounts by name, summed over all processes; the sum does not depend on how they are divided among these.

        A name that one process has is in the result of all.
        """
        lists = {name: list(each) if isinstance(each, Sequence) else [each] for name, each in amounts.items()}
        everyone = self.gather(lists)
        names = dict.fromkeys(name for each in everyone for name in each)
        return {name: _add([value for each in everyone for value in each.get(name, ())]) for name in names}

    def gather_tensors(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """The tensors of every process, in the order of their ranks; without gradients."""
        return [tensors]

    def collect(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of all processes by name, in the process that writes; names differ between processes."""
        return dict(tensors)

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors that may be sharded over the processes, each as a whole in the process that writes."""
        return dict(tensors)

    def part(self, tensor: Tensor, parameter: Tensor) -> Tensor:
        """The part of a whole tensor that this process keeps, if it keeps only a part of the parameter."""
        return tensor

    def local(self, tensor: Tensor) -> Tensor:
        """What this process has of a tensor, in the same memory."""
        return tensor

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The norm of all gradients together."""
        return torch.nn.utils.get_total_norm(gradients)

    def send(self, tensors: Iterable[Tensor], to: int) -> None:
        """Send tensors to another process, which calls `receive`."""
        raise AssertionError("one process has no other")

    def receive(self, tensors: Iterable[Tensor], sender: int) -> None:
        """Overwrite tensors by those that another process sends."""
        raise AssertionError("one process has no other")

    def swap(self, tensors: Sequence[Tensor], other: int) -> list[Tensor]:
        """Exchange tensors with another process, and return those of the other one."""
        raise AssertionError("one process has no other")

    def broadcast_tensors(self, tensors: Iterable[Tensor], sender: int) -> None:
        """Overwrite tensors by those of the process `sender`, in every process."""

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module that training calls: `module`, wrapped so that its gradients are those of all processes."""
        return module

    def accumulating(self, wrapped: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """A context for a micro-batch; gradients are exchanged in the `last` one of a step."""
        return nullcontext()

    def share(self, count: int) -> range:
        """The numbers, of `count` parts of a step, that are this process's: each process has some that are adjacent."""
        return share(count, self.rank, self.size)

    def close(self) -> None:
        """End the connection to the other processes."""


ALONE = World()
"""The world of a single process."""


def share(count: int, rank: int, size: int) -> range:
    """The parts of process `rank`, if `count` parts are divided among `size` processes as evenly as possible."""
    return range(rank * count // size, (rank + 1) * count // size)


def _add(values: list[Any]) -> Any:
    """The sum of numbers: exact for whole numbers, and correctly rounded for others, in whatever order they are."""
    if all(isinstance(each, int) for each in values):
        return sum(values)
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # infinite
        return sum(values)
