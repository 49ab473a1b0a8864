"""Batches of recordings of similar length, with their framed texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.recordings import SpeechSplit
from lmlab.data.loaders.bucketing import Buckets
from lmlab.data.loaders.framing import FlatTexts, frame_rows
from lmlab.data.loaders.loader import Loader
from lmlab.tokenizers.frames import Frame


class SpeechRows(NamedTuple):
    """Recordings and their targets, padded at their ends."""

    sound: NDArray[np.float32]  # [B, M, F]
    lengths: NDArray[np.int64]  # [B], frames
    target: NDArray[np.int64]  # [B, T + 1], with the special tokens of the frame
    target_lengths: NDArray[np.int64]  # [B], the predicted tokens: all but those before the text
    prompt: int  # special tokens before each text; all but the last predict nothing


class SpeechBatches(Loader):
    """Shuffled recordings; a batch has as many frames as `batch` recordings of mean length, padding included."""

    def __init__(self, data: SpeechSplit, *, frame: Frame, batch: int, window: int, seed: int) -> None:
        around = frame.overhead("tokens", "b") - 1
        targets = data.token_lengths + around
        self._kept = np.flatnonzero(targets <= window)
        if len(self._kept) < len(data):
            longest = int(targets.max())
            raise ValueError(f"a text has {longest} tokens, and the model writes {window}: set model.window={longest}")
        frames = data.frame_lengths
        self.frame, self.data, self.prompt = frame, data, len(frame.row()["tokens"])
        self._buckets = Buckets([frames], tokens=max(int(frames.max()), batch * round(float(frames.mean()))), seed=seed)
        self.steps_per_epoch = float(self._buckets.count)
        self.batch_size = max(1, round(len(data) / self._buckets.count))
        self.window = max(1, round(float(targets.mean())))
        self._totals = float(targets.sum()), float(frames.sum())

    @property
    def units_per_step(self) -> dict[str, float]:
        """`tokens` are predicted ones, `frames` those of the spectrograms."""
        tokens, frames = (total / self._buckets.count for total in self._totals)
        return {"tokens": tokens, "frames": frames}

    def batch(self, step: int) -> SpeechRows:
        data, rows = self.data, self._buckets.rows(step)
        lengths = data.frame_lengths[rows]
        sound = np.zeros((len(rows), data.sounds.shape[1], int(lengths.max())), np.float32)
        for position, row in enumerate(rows.tolist()):
            sound[position, :, : lengths[position]] = data.sound(row).T
        part = FlatTexts(data.tokens, data.token_starts[rows], data.token_lengths[rows])
        framed = frame_rows(self.frame, "tokens", {"b": part})
        return SpeechRows(sound, lengths, framed.tokens, framed.lengths - 1, self.prompt)
