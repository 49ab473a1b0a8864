"""Sums in a fixed order: the same bits for any number of processes, which are threads here."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from queue import Queue
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmlab.training.distributed.gradient_sum import ExactSum
from lmlab.training.distributed.world import World

SIZES = (300, 5)
"""Elements of the parameters; a third one has a gradient in every other micro-batch, and a fourth never."""


class Thread(World):
    """One of several threads that exchange tensors by queues."""

    def __init__(self, rank: int, size: int, queues: dict[tuple[int, int], Queue[Any]]) -> None:
        self.rank, self.size, self.queues = rank, size, queues

    def send(self, tensors: Iterable[Tensor], to: int) -> None:
        self.queues[self.rank, to].put([each.clone() for each in tensors])

    def receive(self, tensors: Iterable[Tensor], sender: int) -> None:
        for mine, theirs in zip(tensors, self.queues[sender, self.rank].get(timeout=60), strict=True):
            mine.copy_(theirs)

    def swap(self, tensors: Sequence[Tensor], other: int) -> list[Tensor]:
        self.send(tensors, other)
        return list(self.queues[other, self.rank].get(timeout=60))

    def gather(self, value: Any) -> list[Any]:
        for other in range(self.size):
            self.queues[self.rank, other].put(value)
        return [self.queues[other, self.rank].get(timeout=60) for other in range(self.size)]

    def broadcast_tensors(self, tensors: Iterable[Tensor], sender: int) -> None:
        if self.rank == sender:
            for other in set(range(self.size)) - {sender}:
                self.send(tensors, other)
        else:
            self.receive(tensors, sender)


def gradients_of(leaf: int) -> list[Tensor | None]:
    generator = torch.Generator().manual_seed(leaf)
    made: list[Tensor | None] = [torch.randn(size, generator=generator) * 10.0 ** (leaf % 5) for size in SIZES]
    return [*made, torch.randn(2, generator=generator) if leaf % 2 else None, None]


def reference(start: int, stop: int) -> list[Tensor | None]:
    """The sum by the definition of the tree."""
    if stop - start == 1:
        return gradients_of(start)
    half = 1 << ((stop - start - 1).bit_length() - 1)
    pairs = zip(reference(start, start + half), reference(start + half, stop), strict=True)
    return [b if a is None else a if b is None else a + b for a, b in pairs]


def add_up(world: World, groups: int, per_group: int, results: dict[int, list[Tensor | None]]) -> None:
    parameters = [nn.Parameter(torch.zeros(size)) for size in (*SIZES, 2, 4)]
    adding = ExactSum(parameters, groups=groups, per_group=per_group, world=world)
    for group in world.share(groups):
        for turn in range(per_group):
            for parameter, gradient in zip(parameters, gradients_of(group * per_group + turn), strict=True):
                parameter.grad = gradient
            adding.add()
    adding.finish()
    results[world.rank] = [parameter.grad for parameter in parameters]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("groups", "per_group"), [(1, 1), (2, 1), (3, 1), (4, 1), (6, 1), (7, 1), (8, 1), (3, 3)])
def test_the_sum_does_not_depend_on_the_processes(groups: int, per_group: int, size: int) -> None:
    queues: dict[tuple[int, int], Queue[Any]] = {(a, b): Queue() for a in range(size) for b in range(size)}
    results: dict[int, list[Tensor | None]] = {}
    threads = [
        threading.Thread(target=add_up, args=(Thread(rank, size, queues), groups, per_group, results))
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert sorted(results) == list(range(size))
    expected = reference(0, groups * per_group)
    for found in results.values():
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or mine.equal(theirs)


def test_other_orders_have_other_bits() -> None:
    """So that the test above can fail."""
    backwards = gradients_of(7)[0]
    for leaf in range(6, -1, -1):
        backwards = backwards + gradients_of(leaf)[0]
    assert not backwards.equal(reference(0, 8)[0])


def test_sparse_gradients_are_added_as_dense_ones() -> None:
    table = nn.Embedding(6, 2, sparse=True)
    adding = ExactSum([table.weight], groups=2, per_group=1, world=World())
    for rows in ([1, 1, 4], [4, 5]):
        table(torch.tensor(rows)).sum().backward()
        adding.add()
    adding.finish()
    assert table.weight.grad is not None
    assert table.weight.grad[:, 0].tolist() == [0, 2, 0, 0, 2, 1]
