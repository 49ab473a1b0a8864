"""Skip-gram and CBOW with negative sampling (Mikolov et al. 2013b): which words are around a word, and which are not.

    skip-gram   L = −Σ_(c,o) [ log σ(v_c · u_o) + Σ_k log σ(−v_c · u_k) ]
    cbow        L = −Σ_c     [ log σ(h_c · u_c) + Σ_k log σ(−h_c · u_k) ],   h_c = mean of v_o around c

k are drawn as often as the words are seen, to the power 3/4. Frequent words are left out with probability 1 − √(t / f),
and each centre looks between 1 and `context` words to both sides. The draws of k are shared by the words of a row, K of
them with weight k / K each: in expectation the same loss, as one matrix product. Each word of a batch is looked up
once, so that a step changes only the rows of its words. Shapes: B rows, T words, K draws, D width, U different words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.streams import Windows
from lmlab.layers.kernels.negative_sampling import negative_sampling
from lmlab.metrics.metric import StreamingMetric
from lmlab.models.abilities import PredictsNeighbours, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, Loss, PreTraining
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame


class NegativeSamplingConfig(Config):
    """How neighbours are drawn."""

    variant: Literal["skip-gram", "cbow"] = Field(
        "skip-gram", description="skip-gram: a word predicts each word around it; cbow: those together predict the word"
    )
    context: int = Field(5, ge=1, le=100, description="words to each side that count as neighbours, at most")
    negatives: int = Field(5, ge=1, description="number of negative samples for each context word")
    drawn: int = Field(64, ge=1, description="different draws of these for a row of text, which all its words share")
    power: float = Field(
        0.75, ge=0, le=1, description="exponent of the frequency with which negative samples are drawn"
    )
    subsample: float = Field(1e-3, ge=0, description="threshold t above which frequent words are left out; 0: none is")


class WordCounts(NamedTuple):
    """What is counted of a text once, so that no batch costs more for a larger vocabulary."""

    keep: NDArray[np.float64]  # the probability [V] that a word is not left out; 0 where it was never seen
    odds: NDArray[np.float64]  # the running sum [V] of how often each is drawn

    @classmethod
    def of(cls, fractions: NDArray[np.float64], config: NegativeSamplingConfig) -> WordCounts:
        """From the fraction [V] of each word in the text."""
        keep = np.ones_like(fractions)
        if config.subsample:
            keep = np.sqrt(config.subsample / np.maximum(fractions, 1e-12)).clip(max=1)
        return cls(keep * (fractions > 0), np.cumsum(fractions**config.power * (fractions > 0)))


class NegativeSampling(PreTraining):
    """Words around words against words drawn at random."""

    Config: ClassVar[type[Config]] = NegativeSamplingConfig
    reads: ClassVar[tuple[str, ...]] = ("text",)
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False
    sparse: ClassVar[bool] = True
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {}
    loss_weights: ClassVar[Mapping[str, float]] = {"pairs": 1.0}

    def __init__(
        self,
        config: NegativeSamplingConfig | None = None,
        tokenizer: Tokenizer | None = None,
        frame: Frame | None = None,
    ) -> None:
        self.config = config or NegativeSamplingConfig()
        self.left_out = [] if tokenizer is None else [tokenizer.boundary, tokenizer.unknown]
        self._counted: WordCounts | None = None

    @classmethod
    def needs(cls, config: NegativeSamplingConfig) -> tuple[type, ...]:
        return (PredictsNeighbours,)

    def loader(self, data: TextSplit, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        """Shuffled windows; how frequent a word is, is counted in the first text that is opened, that of training."""
        if self._counted is None:
            counts = np.bincount(data.tokens).astype(np.float64)
            for token in self.left_out:
                if token is not None and token < len(counts):
                    counts[token] = 0
            if not counts.any():
                raise ValueError("the text has no known word: give more of it, or --tokenizer words:min=1")
            self._counted = WordCounts.of(counts / counts.sum(), self.config)
        return Windows(data.tokens, batch=batch, window=window, seed=seed)

    def batch(self, raw: Tensor, generator: np.random.Generator | None = None) -> Batch:
        """raw [B, T+1] -> the words that are kept, how far each looks, and words that are no neighbours."""
        generator = generator or np.random.default_rng(0)
        assert self._counted is not None, "the loader is opened first"
        keep, odds = self._counted
        tokens = raw[:, :-1].numpy()
        seen = tokens < len(keep)
        kept = generator.random(tokens.shape) < keep[tokens * seen] * seen
        order = np.argsort(~kept, axis=1, kind="stable")
        lengths = kept.sum(1)
        words = np.take_along_axis(tokens, order, axis=1)[:, : max(1, int(lengths.max()))]
        inside = np.arange(words.shape[1]) < lengths[:, None]
        words, reach = words * inside, generator.integers(1, self.config.context + 1, words.shape) * inside
        drawn = np.searchsorted(odds, generator.random((len(words), self.config.drawn)) * odds[-1], side="right")
        drawn = drawn.clip(max=len(odds) - 1)
        centres, centre = np.unique(words, return_inverse=True)
        others, other = np.unique(np.concatenate([words, drawn], axis=1), return_inverse=True)
        sums = self._around(reach, lengths)
        count = int(sums.sum() if self.config.variant == "skip-gram" else (sums > 0).sum())
        inputs = {"tokens": words, "lengths": lengths}
        labels = {"centres": centres, "others": others, "reach": reach}  # of the first two each word once [U]
        labels |= {"centre": centre.reshape(words.shape), "other": other.reshape(len(words), -1)}  # their places
        return Batch(_tensors(inputs), _tensors(labels), {"pairs": count}, {"tokens": tokens.size})

    def _around(self, reach: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
        """How many neighbours each word has [B, T]."""
        positions = np.arange(reach.shape[1])
        after = np.minimum(reach, np.maximum(lengths[:, None] - 1 - positions, 0))
        return np.where(reach > 0, np.minimum(reach, positions) + after, 0)

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        words, labels = require(model, PredictsNeighbours), batch.labels
        v, u = words.as_centres(labels["centres"]), words.as_neighbours(labels["others"])
        near = _near(labels["reach"], batch.inputs["lengths"]).to(v.dtype)  # [B, T, T]
        add = pair_losses if v.device.type != "cpu" or torch.compiler.is_compiling() else negative_sampling
        weight, cbow = self.config.negatives / self.config.drawn, self.config.variant == "cbow"
        return Loss({"pairs": add(v, u, labels["centre"], labels["other"], near, weight=weight, cbow=cbow)})

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        """Each of the words that are kept, or its mean, with all words of its row and with those drawn."""
        (rows, time), both = batch.labels["centre"].shape, batch.labels["other"].shape[1]  # T and T + K
        product: float = 2.0 * rows * time * require(model, PredictsNeighbours).width
        if self.config.variant == "skip-gram":
            return PASSES * product * both
        return product * (2 * time + PASSES * (both - time))  # which words are near is not learnt


def pair_losses(
    centres: Tensor, others: Tensor, centre: Tensor, other: Tensor, near: Tensor, *, weight: float, cbow: bool
) -> Tensor:
    """The loss of all pairs, as the equations have it; the arguments are those of `negative_sampling`."""
    time = centre.shape[1]
    v, u = F.embedding(centre, centres), F.embedding(other, others)  # [B, T, D], [B, T + K, D]
    count = near.sum(-1, keepdim=True)  # [B, T, 1]
    if cbow:
        h = near @ v / count.clamp(min=1)  # [B, T, D]
        count = (count > 0).to(v.dtype)
        right = count * F.softplus(-(h * u[:, :time]).sum(-1, keepdim=True))
        wrong = F.softplus(h @ u[:, time:].mT)  # [B, T, K]
    else:
        scores = v @ u.mT  # [B, T, T + K]
        right, wrong = near * F.softplus(-scores[..., :time]), F.softplus(scores[..., time:])
    return right.sum() + weight * (count * wrong).sum()


def _near(reach: Tensor, lengths: Tensor) -> Tensor:
    """Which words [B, T, T] are neighbours of which: within the window of the centre word, without the word itself."""
    positions = torch.arange(reach.shape[1], device=reach.device)
    distance = (positions - positions[:, None]).abs()
    return (distance > 0) & (distance <= reach[..., None]) & (positions < lengths[:, None, None])


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
