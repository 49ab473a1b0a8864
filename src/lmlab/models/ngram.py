"""The n-gram model: the probability of a token from counts of the few tokens before it, smoothed.

Modified Kneser–Ney (Chen & Goodman 1998) is the default and the strongest; its details follow KenLM's estimator
(Heafield et al. 2013), so that both give the same probabilities. The mathematics is in `ngrams/counting.py` and
`ngrams/smoothing.py`; here is what looks the probabilities up.

The boundary token ends a sentence when it is predicted and opens one when it is context; contexts never cross it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor

from lmlab.models.model import TokenModelConfig
from lmlab.ngrams.counting import Counts, Finder, Integers, Progress, count_ngrams, trace
from lmlab.ngrams.levels import Level, PackedLevel, Quantized, pack, read_level
from lmlab.ngrams.smoothing import (
    Floats,
    SmoothedOrder,
    add_k,
    back_off,
    held_out_weights,
    jelinek_mercer,
    kneser_ney,
)
from lmlab.ngrams.smoothing_on_disk import estimate

Smoothing = Literal["modified-kneser-ney", "kneser-ney", "jelinek-mercer", "add-k", "backoff"]
HELD_OUT = 0.1


class NGram:
    """A smoothed n-gram model; one that has read nothing gives every token the same probability."""

    class Config(TokenModelConfig):
        order: int = Field(
            default=5,
            ge=1,
            le=32,
            description="n: length of the longest n-gram, n-1 tokens of context and the next one",
        )
        smoothing: Smoothing = Field(default="modified-kneser-ney", description="smoothing method for unseen n-grams")
        k: float = Field(default=0.1, gt=0, allow_inf_nan=False, description="k of add-k smoothing")
        boundary: int = Field(default=0, ge=0, description="boundary token between documents; set by the tokenizer")
        minimum_counts: list[int] = Field(
            default=[],
            description="count cutoffs: the lowest count kept, for each order from 1; the last holds for all above",
        )

        @model_validator(mode="after")
        def _consistent(self) -> NGram.Config:
            if self.boundary >= self.vocabulary:
                raise ValueError(f"boundary {self.boundary} is not a token of a vocabulary of {self.vocabulary}")
            given = self.minimum_counts
            if given and (given[0] != 1 or given != sorted(given) or len(given) > self.order):
                raise ValueError(
                    f"minimum_counts {given} must start with 1 (single tokens are kept), never decrease, "
                    f"and have at most one number for each of the {self.order} orders, such as [1, 1, 2]"
                )
            return self

    stateful: ClassVar[bool] = False

    def __init__(self, config: Config, *, levels: Sequence[Level | PackedLevel] | None = None) -> None:
        self.config = config
        self.levels = list(levels) if levels is not None else _uniform(config)

    @classmethod
    def fit(
        cls,
        tokens: npt.NDArray[np.integer],
        *,
        config: Config,
        valid: npt.NDArray[np.integer] | None = None,
        progress: Progress | None = None,
    ) -> NGram:
        """Count a stream and smooth; `valid`, else the stream's tail, tunes the weights of Jelinek–Mercer.

        Exceptions of `progress` are passed on, so counting can be interrupted between two orders.
        """
        V, b = config.vocabulary, config.boundary
        weights = np.empty(0)
        if config.smoothing == "jelinek-mercer":
            head, tail = tokens, tokens if valid is None else valid
            cut = int((1.0 - HELD_OUT) * len(tokens))
            if valid is None and 1 < cut < len(tokens) - 1:
                head, tail = tokens[:cut], tokens[cut:]
            first = count_ngrams(head, vocabulary=V, boundary=b, order=config.order, progress=_part(progress, 0.0, 0.3))
            weights = held_out_weights(first, tail, boundary=b, progress=_part(progress, 0.3, 0.4))
        counting, smoothing = _part(progress, 0.4 if len(weights) else 0.0, 0.8), _part(progress, 0.8, 1.0)
        counted = count_ngrams(tokens, vocabulary=V, boundary=b, order=config.order, progress=counting)
        kept = [level.counts >= least for level, least in zip(counted, _least_counts(config), strict=True)]
        match config.smoothing:
            case "modified-kneser-ney" | "kneser-ney":
                modified = config.smoothing.startswith("modified")
                estimates = kneser_ney(counted, kept=kept, modified=modified, progress=smoothing)
            case "jelinek-mercer":
                estimates = jelinek_mercer(counted, kept=kept, weights=weights, progress=smoothing)
            case "add-k":
                estimates = add_k(counted, kept=kept, k=config.k, progress=smoothing)
            case "backoff":
                estimates = back_off(counted, kept=kept, progress=smoothing)
        model = cls(config, levels=_store(counted, estimates, kept, vocabulary=V))
        if progress is not None:
            progress("smoothing", 1.0)
        return model

    @classmethod
    def fit_on_disk(
        cls,
        tokens: npt.NDArray[np.integer],
        *,
        config: Config,
        memory: int,
        folder: Path,
        progress: Progress | None = None,
    ) -> NGram:
        """The same by Kneser–Ney in about `memory` bytes, for any length of text; its n-grams are files in `folder`.

        The logarithms of n-grams of two tokens or more are rounded to 256 values for each order.
        """
        if not config.smoothing.endswith("kneser-ney"):
            raise ValueError(
                f"--memory counts on disk, which is possible with kneser-ney and modified-kneser-ney, not with "
                f"{config.smoothing}; leave --memory out, or choose --set model.smoothing=modified-kneser-ney"
            )
        estimates = estimate(
            tokens,
            vocabulary=config.vocabulary,
            boundary=config.boundary,
            order=config.order,
            minimum_counts=_least_counts(config),
            modified=config.smoothing.startswith("modified"),
            memory=memory,
            folder=folder,
            progress=progress,
        )
        packing = _part(progress, 0.9, 1.0) or (lambda stage, done: None)
        levels = pack(estimates, minimum_counts=_least_counts(config), report=lambda done: packing("storing", done))
        return cls(config, levels=levels)

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    @property
    def window(self) -> int | None:
        return None

    def offers(self) -> tuple[object, ...]:
        return (self,)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def parameters(self) -> int:
        """How many numbers are stored: a probability per n-gram, and a back-off weight where it can be a context."""
        return sum(level.size for level in self.levels) + sum(level.size for level in self.levels[:-1])

    def flops(self, window: int) -> float:
        """One look-up and one addition of logarithms per order, whatever the window."""
        return 2.0 * self.config.order

    def start(self, batch_size: int, **inputs: Any) -> Tensor:
        """The context [B, n-1] of texts that begin: only boundaries."""
        return torch.full((batch_size, self.config.order - 1), self.config.boundary)

    def step(self, tokens: Tensor, state: Tensor, **inputs: Any) -> tuple[Tensor, Tensor]:
        """Read tokens [B, T]; give the log-probabilities [B, V] of the next one, and the new context."""
        context = self._advance(torch.cat([state, tokens], dim=1))
        return torch.from_numpy(self.log_probabilities(context.cpu().numpy())).float().to(tokens.device), context

    def log_probabilities(self, context: Integers) -> Floats:
        """ln p(w|context) [B, V] of every token after each context [B, n-1].

        The distribution of the empty context is lowered by all back-off weights on the way down to it; then the
        tokens seen after each longer context are written over it.
        """
        B = len(context)
        contexts = [ranks[:, -1] for ranks in trace(self._finders[:-1], context)] if context.size else []
        backoffs = np.zeros((len(contexts) + 1, B))
        for n, ranks in enumerate(contexts):
            backoffs[n] = _take(self.levels[n].log_backoffs, ranks)
        backoffs = np.cumsum(backoffs[::-1], axis=0)[::-1]  # [n]: all weights from contexts of n+1 tokens up
        scores = self.levels[0].log_probabilities + backoffs[0][:, None]
        for n, ranks in enumerate(contexts, start=1):
            rows = np.flatnonzero(ranks >= 0)
            first, many = self.levels[n].children(ranks[rows])
            row = np.repeat(rows, many)
            position = np.arange(len(row)) + np.repeat(first - np.cumsum(many) + many, many)
            scores[row, self.levels[n].last_tokens(position)] = (
                self.levels[n].log_probabilities[position] + backoffs[n][row]
            )
        return np.asarray(scores, np.float64)

    def score(self, tokens: Tensor, targets: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The surprisal in nats [B, T] of each target, the token that follows tokens[:, t], and the new context."""
        history = torch.cat([state, tokens], dim=1)
        read, wanted = history.cpu().numpy().astype(np.int64), targets.cpu().numpy().astype(np.int64)
        T = wanted.shape[1]
        if np.array_equal(wanted[:, :-1], read[:, read.shape[1] - T + 1 :]):
            nats = self.surprisal(np.concatenate([read, wanted[:, -1:]], axis=1))[:, -T:]
        else:  # targets of the caller's own choice: each one with its own context
            every = np.lib.stride_tricks.sliding_window_view(read, self.config.order - 1 or 1, axis=1)[:, -T:]
            lines = np.concatenate([every.reshape(-1, every.shape[2]), wanted.reshape(-1, 1)], axis=1)
            nats = self.surprisal(lines)[:, -1].reshape(wanted.shape)
        return torch.from_numpy(nats).float().to(tokens.device), self._advance(history)

    def surprisal(self, tokens: Integers) -> Floats:
        """-ln p [B, T-1] of each of the tokens [B, T] but the first, after all those before it in its row."""
        ranks = trace(self._finders, tokens)
        score = self.levels[0].log_probabilities[tokens[:, 1:]]
        for n in range(1, self.config.order):
            backed_off = score + _take(self.levels[n - 1].log_backoffs, ranks[n - 1][:, :-1])
            here = ranks[n][:, 1:]
            score = np.where(here >= 0, _take(self.levels[n].log_probabilities, here), backed_off)
        return -score

    def _advance(self, history: Tensor) -> Tensor:
        """The last n-1 tokens of a history [B, T]; those before the nearest boundary are forgotten."""
        context = history[:, history.shape[1] - (self.config.order - 1) :]
        forgotten = (context == self.config.boundary).flip(1).cummax(dim=1).values.flip(1)
        return context.masked_fill(forgotten, self.config.boundary)

    @property
    def _finders(self) -> list[Finder]:
        return [level.find for level in self.levels[1:]]

    def tensors(self) -> dict[str, Tensor]:
        """Everything but the configuration, by name; `from_tensors` takes it back."""
        return {
            f"{n}.{name}": torch.from_numpy(array)
            for n, level in enumerate(self.levels, start=1)
            for name, array in level.arrays().items()
        }

    @classmethod
    def from_tensors(cls, config: Config, tensors: Mapping[str, Tensor]) -> NGram:
        """The model with these `tensors()`; a ValueError if they do not fit the configuration."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
        levels: list[Level | PackedLevel] = []
        for n in range(1, config.order + 1):
            contexts = levels[-1].size if levels else 1
            levels.append(read_level(arrays, n, order=config.order, contexts=contexts, vocabulary=config.vocabulary))
        return cls(config, levels=levels)


def _least_counts(config: NGram.Config) -> list[int]:
    """The lowest count that is kept, for each order; single tokens are all kept."""
    least = config.minimum_counts or [1]
    return [0, *least[1:], *least[-1:] * (config.order - len(least))]


def _part(progress: Progress | None, low: float, high: float) -> Progress | None:
    """The same for a part of the work, which goes from one fraction of the whole to another."""
    return None if progress is None else lambda stage, done: progress(stage, low + (high - low) * done)


def _uniform(config: NGram.Config) -> list[Level]:
    V = config.vocabulary
    nothing = Level(np.empty(0, np.int64), np.empty(0), np.empty(0), V)
    return [Level(np.arange(V), np.full(V, -np.log(V)), np.zeros(V), V), *[nothing] * (config.order - 1)]


def _store(
    counted: Sequence[Counts],
    estimates: Sequence[SmoothedOrder],
    kept: Sequence[npt.NDArray[np.bool_]],
    *,
    vocabulary: int,
) -> list[Level]:
    """The kept n-grams as logarithms; where some are dropped, the ranks in the keys above them are renewed."""
    levels: list[Level] = []
    renewed: Integers | None = None
    whole = all(keep.all() for keep in kept)  # a total of counts needs all of them
    for level, found, keep in zip(counted, estimates, kept, strict=True):
        keys, (probabilities, backoffs, counts) = level.keys, found
        if not keep.all():
            keys, probabilities, backoffs = keys[keep], probabilities[keep], backoffs[keep]
        if renewed is not None:
            keys = renewed[keys // vocabulary] * vocabulary + keys % vocabulary
        renewed = None if keep.all() else np.cumsum(keep) - 1
        logs = np.minimum(np.log(probabilities), 0.0), np.log(backoffs)
        levels.append(Level(keys, *logs, vocabulary, counts if whole else None))
    return levels


def _take(values: Floats | Quantized, ranks: Integers) -> Floats:
    """The value at each rank, 0 where the rank is -1."""
    if len(values) == 0:
        return np.zeros(ranks.shape)
    return np.where(ranks >= 0, values[ranks], 0.0)
