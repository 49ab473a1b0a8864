"""What an objective is: it makes batches of raw material, and asks a model for the loss on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.loaders.loader import CombinedLoader, Loader
from lmlab.metrics.metric import StreamingMetric
from lmlab.models.abilities import State
from lmlab.models.model import Model
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.units import main_unit

IGNORE = -100
"""The target where nothing is predicted."""
SAMPLED = 32
"""Batches of an epoch, at most, whose FLOPs are counted to know those of the mean batch."""


class Batch(NamedTuple):
    """What the model reads, and what it should say."""

    inputs: dict[str, Tensor]  # the arguments of the model's forward
    labels: dict[str, Tensor]  # targets, and their positions
    counts: Mapping[str, int] = {}  # predictions by term of the loss: known before the forward pass
    units: Mapping[str, int] = {}  # what budgets count: tokens read, padding left out

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return self._replace(
            inputs={name: value.to(device) for name, value in self.inputs.items()},
            labels={name: value.to(device) for name, value in self.labels.items()},
        )


class Loss(NamedTuple):
    """The loss of a batch as sums by term, so that means are taken once, over all micro-batches (and processes)."""

    sums: dict[str, Tensor]
    state: State = None
    watched: Mapping[str, Any] = {}
    """What metrics are shown, by their names: tensors on the device, or what else a metric collects."""
    scores: Tensor | None = None
    """Of a task: the scores of its head, without gradients, from which predictions are decoded."""


def weighted_mean(sums: Mapping[str, Tensor], counts: Mapping[str, int], weights: Mapping[str, float]) -> Tensor:
    """Σ_t w_t · sum_t / N_t over the terms t of a loss; what has the weight 0 is only watched."""
    terms = [weight * sums[name] / max(1, counts[name]) for name, weight in weights.items() if weight]
    mean = terms[0]
    for term in terms[1:]:
        mean = mean + term
    return mean


class Objective(Protocol):
    """Something to learn; it knows the tokenizer and the data, but of a model only its abilities and its frame."""

    Config: ClassVar[type[Config]]
    reads: ClassVar[tuple[str, ...]]
    """The kinds of data that it learns from (data.DATA)."""
    default_for: ClassVar[tuple[str, ...]]
    """Those of them for which it is taken unasked by a system whose own objective does not read them."""
    specials: ClassVar[tuple[str, ...]]
    """The special tokens that it needs: of `pad`, `cls`, `sep`, `mask`."""
    likelihood: ClassVar[bool]
    """Whether the loss is that of the text itself, token by token, so that bits per byte can be computed from it."""
    additive: ClassVar[bool]
    """Whether the loss of a batch is a sum over its parts; for a contrastive one all parts are embedded first."""
    sparse: ClassVar[bool]
    """Whether gradients of embedding tables have only the rows of a batch."""
    separates: bool
    """Whether the metric `nats` leaves out what separates documents, which is predicted but is no text."""
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]]
    """What evaluation measures, by the names of what the loss watches."""

    @classmethod
    def needs(cls, config: Any) -> tuple[type, ...]:
        """The abilities without which a model cannot learn this."""

    @classmethod
    def usual_for(cls, data: str) -> dict[str, Any]:
        """Settings that go with a kind of data, unless the user says otherwise."""

    @classmethod
    def settings_from_corpus(cls, config: Any, corpus: Corpus) -> dict[str, Any]:
        """Settings that only the data know, such as the names of classes; they are saved with the run."""

    def __init__(self, config: Any, tokenizer: Tokenizer | None, frame: Frame | None) -> None:
        """`frame` adds the special tokens to the texts of the run; nothing else does. None where no text is read."""

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """The weight of each term of the loss, the main term first."""

    def heads(self, model: Model) -> dict[str, nn.Module]:
        """What is learnt besides a model, over its vectors: nothing, in pre-training."""

    def loader(self, data: Any, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        """Numbered batches of raw material from a split; batch k is a pure function of these settings and k."""

    def batch(self, raw: Any, generator: np.random.Generator) -> Batch:
        """Inputs and labels from raw material, on the CPU; runs ahead of training, in another thread."""

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        """The loss on a batch; called by `Learner.forward` alone."""

    def step_flops(self, model: Model, heads: Mapping[str, nn.Module], loader: Loader) -> float:
        """Floating-point operations of the forward and backward pass over one batch of a loader, on average."""


@runtime_checkable
class NotAdditive(Protocol):
    """An objective whose loss compares all rows of a batch (contrastive): the losses of micro-batches do not add up.

    Training embeds the micro-batches one by one, takes the loss of all vectors, and passes its gradient back through
    each micro-batch. `loss` does the same for a batch that is read at once.
    """

    def embed(self, model: Any, heads: Mapping[str, nn.Module], batch: Batch) -> dict[str, Tensor]:
        """Vectors of a micro-batch by name, with one row per example; labels may be among them."""

    def compare(self, heads: Mapping[str, nn.Module], vectors: Mapping[str, Tensor]) -> Loss:
        """The loss of all vectors of a batch."""


@runtime_checkable
class Augments(Protocol):
    """An objective that changes its raw material at random in training, and not in validation."""

    def augment(self, raw: Any, generator: np.random.Generator) -> Any:
        """The raw material of a batch, changed by the random numbers of the batch."""


@runtime_checkable
class ReadsMedia(Protocol):
    """An objective over pictures or sounds: it needs the processor that makes them the inputs of a model."""

    def process_by(self, processor: Any) -> None:
        """Called once, after the objective is created."""


def mean_flops(loader: Loader, flops_of: Callable[[Loader, int], tuple[float, Mapping[str, int]]]) -> float:
    """The FLOPs of a batch, on average; `flops_of(loader, k)` gives those of batch k, and how much it has of each unit.

    Batches of the first epoch are counted, up to SAMPLED that are evenly spread over it. Since batches may differ in
    size, it is the FLOPs per unit that are taken from these. Of loaders by turns it is the mean.
    """
    if isinstance(loader, CombinedLoader):
        return sum(fraction * mean_flops(part, flops_of) for fraction, part in loader.parts)
    unit, batches = main_unit(loader.units_per_step), max(1, int(loader.steps_per_epoch))
    counted = [flops_of(loader, number) for number in sorted({k * batches // SAMPLED for k in range(SAMPLED)})]
    amount = sum(units[unit] for _, units in counted)
    return sum(flops for flops, _ in counted) / max(1, amount) * loader.units_per_step[unit]


class PreTraining:
    """What objectives over plain data share: no head of their own, nothing that depends on the kind of data."""

    default_for: ClassVar[tuple[str, ...]] = ()
    additive: ClassVar[bool] = True
    sparse: ClassVar[bool] = False
    separates: bool = False

    @classmethod
    def usual_for(cls, data: str) -> dict[str, Any]:
        return {}

    @classmethod
    def settings_from_corpus(cls, config: Any, corpus: Corpus) -> dict[str, Any]:
        return {}

    def heads(self, model: Model) -> dict[str, nn.Module]:
        return {}

    def batch(self, raw: Any, generator: np.random.Generator) -> Batch:
        raise NotImplementedError

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        """FLOPs of the forward and backward pass over a batch, after a memory of `memory_length` tokens."""
        raise NotImplementedError

    def step_flops(self, model: Model, heads: Mapping[str, nn.Module], loader: Loader) -> float:
        def flops_of(part: Loader, number: int) -> tuple[float, Mapping[str, int]]:
            batch = self.batch(part.batch(number), np.random.default_rng([0, number]))
            memory_length = 0 if not model.stateful or part.restarts(1) else model.memory
            return self.batch_flops(model, batch, memory_length=memory_length), batch.units

        return mean_flops(loader, flops_of)
