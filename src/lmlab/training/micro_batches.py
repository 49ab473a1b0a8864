"""How a step is divided into micro-batches: by the settings alone, so that the run is the same for any processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from lmlab.data.loaders.loader import Loader
from lmlab.models.states import map_state
from lmlab.training.settings import TrainConfig


class MicroBatch(NamedTuple):
    """Rows that are read together: a batch of the loader, or a part of its rows."""

    number: int  # of the batch, for the loader
    lane: int  # which part of its rows
    position: int  # in the run: the random numbers of the model depend on it


class Division(NamedTuple):
    """The micro-batches of a step, in groups; each group is read by one process, one micro-batch after the other.

    Where rows continue from batch to batch (`continuous`), each batch is divided by its rows into lanes, and each lane
    with its carried state is a group. Elsewhere the loader makes smaller batches, and each is a group.
    """

    groups: int
    per_group: int
    lanes: int

    @property
    def batches(self) -> int:
        """Batches of the loader in a step."""
        return self.groups * self.per_group // self.lanes

    def of_groups(self, step: int, groups: Iterable[int]) -> list[MicroBatch]:
        """The micro-batches of some groups of a step."""
        first = step * self.groups * self.per_group
        places = [(group, turn) for group in groups for turn in range(self.per_group)]
        return [
            MicroBatch(
                step * self.batches + (turn if self.lanes > 1 or self.groups == 1 else group),
                group if self.lanes > 1 else 0,
                first + group * self.per_group + turn,
            )
            for group, turn in places
        ]


def divide(config: TrainConfig, loader: Loader) -> Division:
    """The division that the settings describe, for a loader that `rows_of_loader` sized."""
    parts = config.micro_batches or 1
    if not loader.continuous:
        return Division(config.accumulate * parts, 1, 1)
    if parts > loader.most_lanes:
        raise ValueError(
            f"train.micro_batches = {parts} divides the rows of a batch, and it has {loader.most_lanes} that can be "
            "divided: raise train.batch, give more text, or lower train.micro_batches"
        )
    return Division(parts, config.accumulate, parts)


def rows_of_loader(config: TrainConfig, *, continuous: bool) -> int:
    """The rows of the batches that a loader should make: of a whole batch, or of a micro-batch."""
    parts = config.micro_batches or 1
    if continuous:
        return config.batch
    if config.batch % parts:
        raise ValueError(
            f"train.batch = {config.batch} cannot be divided into train.micro_batches = {parts} equal parts: give a "
            f"multiple of {parts}, for instance train.batch={-(-config.batch // parts) * parts}"
        )
    return config.batch // parts


def choose_micro_batches(config: TrainConfig, *, processes: int, continuous: bool) -> TrainConfig:
    """The settings with as many micro-batches as the processes need, unless they say how many."""
    if config.micro_batches is not None or processes == 1:
        return config
    more = 1 if continuous else config.accumulate
    parts = [n for n in range(1, config.batch + 1) if (continuous or config.batch % n == 0) and n * more >= processes]
    if not parts:
        raise ValueError(
            f"train.batch = {config.batch} and train.accumulate = {config.accumulate} cannot be divided among "
            f"{processes} processes: raise train.batch, or start fewer processes"
        )
    even = [n for n in parts if n * more % processes == 0]
    return config.model_copy(update={"micro_batches": (even or parts)[0]})


def slice_rows(raw: Any, lane: int, lanes: int) -> Any:
    """The rows of one lane of a raw batch: of a tensor [B, …], or of each in a tuple."""
    if lanes == 1:
        return raw
    return map_state(lambda each: each[len(each) * lane // lanes : len(each) * (lane + 1) // lanes], raw)


def seed_of(seed: int, position: int) -> int:
    """The seed of the random numbers of a model in one micro-batch."""
    return int(np.random.SeedSequence([seed, position]).generate_state(1, np.uint64)[0] >> np.uint64(1))
