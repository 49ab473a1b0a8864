"""The processes that train together: which one writes, which one decides, and totals over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
Number = TypeVar("Number", int, float)


class World:
    """A world of one process, which writes, decides and counts alone.

    Training asks its world wherever processes could differ: clocks and signals (`broadcast`), counts (`totals`), files
    (`writes`), random numbers (`spread_seed`) and the data of a step (`micro_batches`). A world of several processes
    overrides `broadcast`, `totals`, `gather` and `wrap`; every process calls these in the same order.
    """

    rank: int = 0
    size: int = 1
    gradient_scale: float = 1.0
    """What losses are multiplied by: `size` if `wrap` averages gradients over processes (DDP), 1 if it adds them."""

    @property
    def writes(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """The value of process 0, in every process."""
        return value

    def first(self, make: Callable[[], T]) -> T:
        """What `make` returns; process 0 calls it before all others, which then find its result in the cache."""
        if self.writes:
            made = make()
            self.broadcast(None)
            return made
        self.broadcast(None)
        return make()

    def totals(self, amounts: Mapping[str, Number]) -> dict[str, Number]:
        """Amounts by name, summed over all processes."""
        return dict(amounts)

    def gather(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """The tensors of every process, in the order of their ranks; without gradients."""
        return [tensors]

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module that training calls: `module`, wrapped so that its gradients are those of all processes."""
        return module

    def micro_batches(self, step: int, count: int) -> range:
        """The numbers of the `count` micro-batches that this process reads in a step.

        Two processes with one micro-batch each read what one process reads in two.
        """
        first = (step * self.size + self.rank) * count
        return range(first, first + count)

    def spread_seed(self, seed: int) -> None:
        """Give each process its own random numbers for dropout; called once all have the same initial weights."""
        if self.size > 1:
            torch.manual_seed(seed * self.size + self.rank)


ALONE = World()
"""The world of a single process."""
