"""Rows of text between the special tokens of a frame: the raw material of models that fill blanks."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from lmlab.data.loaders.framing import Integers, Part, frame_rows
from lmlab.data.loaders.loader import Loader, Tokens, mean_units
from lmlab.tokenizers.frames import Frame


class Rows(NamedTuple):
    """Rows of one length, before anything is hidden from the model."""

    tokens: Integers  # [B, T]
    identity: Integers  # [B, 2] equal for equal rows: what static masking hangs on
    segments: Integers | None = None  # [B, T] 0 in the first part of a pair, 1 in the second
    pair: Integers | None = None  # [B] 0 where the second part is the one that follows, 1 where not
    lengths: Integers | None = None  # [B] where some row has padding after so many tokens
    positions: Integers | None = None  # [B, T] where they are not simply counted from 0
    cls: Integers | None = None  # [B] the place of [CLS], which tells about a pair


class RowLoader(Loader, Protocol):
    """A loader whose batches are `Rows`."""

    def batch(self, step: int) -> Rows: ...


class TextRows:
    """Each row a text in its frame, contiguous and going on over document boundaries: RoBERTa's FULL-SENTENCES.

    Liu et al. 2019, section 4.2. Every epoch visits each row once, in a new order, and from a new offset unless
    `fixed`, where an epoch holds the same rows as the one before.
    """

    def __init__(self, tokens: Tokens, *, frame: Frame, batch: int, window: int, seed: int, fixed: bool) -> None:
        around = frame.overhead(frame.reads, "a")
        if window <= around:
            raise ValueError(
                f"a window of {window} tokens has no room for text among the special tokens around it; "
                f"give {around + 1} or more"
            )
        if len(tokens) < 2:
            raise ValueError(f"the text has {len(tokens)} tokens; at least 2 are needed to predict one from another")
        self.tokens, self.frame, self.seed, self.fixed = tokens, frame, seed, fixed
        self.batch_size = batch
        self.window = min(window, len(tokens) + around)
        self.text = self.window - around
        self.count = max(1, len(tokens) // self.text - (0 if fixed else 1))
        self.steps_per_epoch = self.count / batch
        self._orders: dict[int, Integers] = {}

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": float(self.batch_size * self.window)}

    def batch(self, step: int) -> Rows:
        numbers = step * self.batch_size + np.arange(self.batch_size)
        starts = np.array(
            [self._order(int(epoch))[place] for epoch, place in zip(*divmod(numbers, self.count), strict=True)]
        )
        part = Part(self.tokens, starts, np.full_like(starts, self.text))
        rows = frame_rows(self.frame, self.frame.reads, {"a": part})
        identity = np.stack([np.full_like(starts, self.seed), starts], axis=1)
        return Rows(rows.tokens, identity, rows.segments)

    def restarts(self, step: int) -> bool:
        return True

    def plan(self, total_steps: int | None) -> None: ...

    def _order(self, epoch: int) -> Integers:
        """The start of each row, in the order of an epoch; those of two epochs are kept."""
        kept = self._orders  # read once and written once: threads may share a loader
        if epoch not in kept:
            generator = np.random.default_rng([self.seed, epoch])
            spare = 0 if self.fixed else len(self.tokens) - self.count * self.text
            offset = generator.integers(0, spare + 1)
            order = offset + self.text * generator.permutation(self.count)
            self._orders = dict([*kept.items()][-1:]) | {epoch: order}
            return order
        return kept[epoch]


class LengthSchedule:
    """Short rows for the first share of a run, then rows of the whole window, with as many tokens in each batch.

    Devlin et al. 2019, appendix A.2: 90% of the steps at 128 tokens, since attention costs the square of the length,
    the rest at 512 to learn the positions. Until `plan` says how long the run is, as in validation, every batch is of
    the whole window.
    """

    def __init__(self, short: RowLoader, long: RowLoader, *, share: float) -> None:
        self.short, self.long, self.share = short, long, share
        self.short_steps = 0
        self.batch_size = long.batch_size
        self.window = long.window
        self.steps_per_epoch = share * short.steps_per_epoch + (1 - share) * long.steps_per_epoch

    @property
    def mixture(self) -> list[tuple[float, Loader]]:
        """The loaders that this one is made of, and how much of the run each gives."""
        return [(self.share, self.short), (1 - self.share, self.long)]

    @property
    def units_per_step(self) -> dict[str, float]:
        return mean_units(self.mixture)

    def plan(self, total_steps: int | None) -> None:
        """Work out how many batches are short."""
        if total_steps is None:
            raise ValueError(
                "objective.short makes the rows of the first part of a run short, and with a budget in time nobody "
                "knows where that part ends; give the budget in steps, tokens, epochs or flops, or objective.short=none"
            )
        self.short_steps = round(self.share * total_steps)

    def batch(self, step: int) -> Rows:
        first = self.short_steps
        return self.short.batch(step) if step < first else self.long.batch(step - first)

    def restarts(self, step: int) -> bool:
        return True
