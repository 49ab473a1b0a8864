"""Rows of text between the special tokens of a frame: what models that fill masks are trained on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from lmlab.data.loaders.framing import FlatTexts, Integers, frame_rows
from lmlab.data.loaders.loader import CombinedLoader, Loader
from lmlab.data.loaders.mixed import MixedLoader
from lmlab.data.loaders.streams import Tokens
from lmlab.tokenizers.frames import Frame


class Rows(NamedTuple):
    """Rows of one length, before anything is masked."""

    tokens: Integers  # [B, T]
    identity: Integers  # [B, 2] equal for equal rows: static masking depends on it
    segments: Integers | None = None  # [B, T] 0 in the first part of a pair, 1 in the second
    pair: Integers | None = None  # [B] 0 where the second part follows the first, 1 where not
    lengths: Integers | None = None  # [B] without padding; None if no row has any
    positions: Integers | None = None  # [B, T] unless they are counted from 0
    cls: Integers | None = None  # [B] the position of [CLS], at which a pair is classified
    masking_rate: float | None = None  # the fraction of the tokens to mask; None: that of the objective


class RowLoader(Loader):
    """A loader whose batches are `Rows`."""

    def batch(self, step: int) -> Rows:
        raise NotImplementedError


class TextRows(RowLoader):
    """Contiguous text in its frame, which continues over document boundaries: RoBERTa's FULL-SENTENCES.

    Liu et al. 2019, section 4.2. Every epoch visits each row once, in a new order, and from a new offset; if `fixed`,
    every epoch has the same rows.
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
        self._starts = lru_cache(2)(self._find_starts)  # a batch may have rows of two epochs

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": float(self.batch_size * self.window)}

    def batch(self, step: int) -> Rows:
        numbers = step * self.batch_size + np.arange(self.batch_size)
        starts = np.array(
            [self._starts(int(epoch))[position] for epoch, position in zip(*divmod(numbers, self.count), strict=True)]
        )
        part = FlatTexts(self.tokens, starts, np.full_like(starts, self.text))
        rows = frame_rows(self.frame, self.frame.reads, {"a": part})
        identity = np.stack([np.full_like(starts, self.seed), starts], axis=1)
        return Rows(rows.tokens, identity, rows.segments)

    def _find_starts(self, epoch: int) -> Integers:
        """Return the start of each row, in the order of an epoch."""
        generator = np.random.default_rng([self.seed, epoch])
        spare = 0 if self.fixed else len(self.tokens) - self.count * self.text
        offset = generator.integers(0, spare + 1)
        starts: Integers = offset + self.text * generator.permutation(self.count)
        return starts


class WithMaskingRate(RowLoader):
    """The rows of another loader, of whose tokens a fraction of their own is masked."""

    def __init__(self, inner: RowLoader, masking_rate: float) -> None:
        self.inner, self.masking_rate = inner, masking_rate
        self.batch_size, self.window, self.steps_per_epoch = inner.batch_size, inner.window, inner.steps_per_epoch

    @property
    def units_per_step(self) -> Mapping[str, float]:
        return self.inner.units_per_step

    def batch(self, step: int) -> Rows:
        return self.inner.batch(step)._replace(masking_rate=self.masking_rate)


class LengthSchedule(CombinedLoader, RowLoader):
    """Short rows for the first fraction of a run, then rows of the whole window, with as many tokens in each batch.

    Devlin et al. 2019, appendix A.2: 90% of the steps at 128 tokens, since attention costs the square of the length,
    the rest at 512 to learn the positions. Several short lengths come one after the other, with the same number of
    steps each. Where the number of steps is not known, because the budget is a time, the lengths alternate in random
    order. Until `plan` is called, as in validation, every batch has the whole window.
    """

    def __init__(self, short: Sequence[RowLoader], long: RowLoader, *, fraction: float) -> None:
        """`fraction` is that of the steps with short rows."""
        self.long, self.fraction = long, fraction
        self._parts: list[tuple[float, Loader]] = [(fraction / len(short), loader) for loader in short]
        self._parts.append((1 - fraction, long))
        self.ends = [0] * len(short)
        self.alternating: MixedLoader | None = None
        self.batch_size = long.batch_size
        self.window = long.window
        self.steps_per_epoch = sum(part * loader.steps_per_epoch for part, loader in self._parts)

    @property
    def parts(self) -> list[tuple[float, Loader]]:
        return self._parts

    def plan(self, total_steps: int | None) -> None:
        """Set how many batches have each length."""
        if total_steps is None:
            named = {str(number): part for number, part in enumerate(self.parts)}
            loaders = {name: loader for name, (_, loader) in named.items()}
            fractions = {name: fraction for name, (fraction, _) in named.items()}
            self.alternating = MixedLoader(loaders, fractions, seed=0)
        else:
            self.alternating = None
            short = len(self.ends)
            self.ends = [round(self.fraction * total_steps * (part + 1) / short) for part in range(short)]

    def batch(self, step: int) -> Rows:
        if self.alternating is not None:
            return cast(Rows, self.alternating.batch(step))
        part = bisect_right(self.ends, step)
        first = self.ends[part - 1] if part else 0
        return cast(Rows, self.parts[part][1].batch(step - first))
