"""The contract of loaders: numbered batches, where batch k is a pure function of the data, the settings and k.

So batches can be made in another thread, and a run resumes from the number of its next batch alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class Loader(ABC):
    """An endless, numbered supply of batches, as arrays; an objective turns them into inputs and labels."""

    batch_size: int
    window: int
    steps_per_epoch: float
    continuous: bool = False
    """Whether each row continues in the next batch, so that a state is carried; a batch is a tensor, or several."""

    @property
    def most_lanes(self) -> int:
        """The number of parts into which the rows of a batch can be divided."""
        return self.batch_size

    @property
    @abstractmethod
    def units_per_step(self) -> Mapping[str, float]:
        """The mean amount of each unit in a batch; a budget may count any of them (`tokens`, `examples`)."""

    @abstractmethod
    def batch(self, step: int) -> Any:
        """Return batch number `step`."""

    def restarts(self, step: int) -> bool:
        """Whether batch `step` does not continue the one before, so that a carried state must be reset."""
        return True

    def plan(self, total_steps: int | None) -> None:
        """Called before training with the number of batches; None if only a time limit ends the run."""
        return

    def rate_factor(self, step: int) -> float:
        """Return the factor of the learning rate for batch `step`; 1 unless batches differ in size on purpose."""
        return 1.0


class CombinedLoader(Loader):
    """A loader made of others: each step takes a batch of one of them."""

    @property
    @abstractmethod
    def parts(self) -> list[tuple[float, Loader]]:
        """The loaders, each with its fraction of the steps."""

    @property
    def units_per_step(self) -> dict[str, float]:
        names = self.parts[0][1].units_per_step
        return {name: sum(fraction * loader.units_per_step[name] for fraction, loader in self.parts) for name in names}
