"""What all tasks share: a head over the vectors of a model, its loss, its predictions, and words about them.

A task is an objective over labelled examples. With the methods `full`, `gradual` and `scratch` the model is trained
with the head; with `frozen` and `mix` only the head is trained, over vectors that were computed once. Nothing here
knows about text: tasks that read it are `TextTask`s (text_task.py).
Shapes: B rows, T positions, K positions that are read, L layers, D width, C classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from lmlab.baselines.baseline import Baseline
from lmlab.data.corpora.checking import LabelSummary
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.loaders.examples import ExampleLoader
from lmlab.data.readers.examples import Example, Labelled
from lmlab.layers.layer_mix import Mix, select_layers, side_by_side
from lmlab.layers.padding import gather_positions
from lmlab.metrics.metric import Metric, StreamingMetric
from lmlab.models.abilities import GivesVectors, State
from lmlab.models.defaults import TaskDefaults
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, Loss
from lmlab.pages.evidence import Evidence
from lmlab.progress import ReportProgress
from lmlab.tasks.flops import model_flops, step_flops
from lmlab.tasks.heads import pool
from lmlab.tasks.records import Item, Prediction, TaskConfig, Wording
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, pad_rows


class Task:
    """An objective over labelled examples; each task adds its items, its head, its metrics and its words."""

    Config: ClassVar[type[TaskConfig]] = TaskConfig
    name: ClassVar[str]
    wording: ClassVar[Wording]
    baselines: ClassVar[Mapping[str, str]] = {}
    """Baselines by the name that tables show: where each class is."""
    averages: ClassVar[bool] = False
    """Whether the predictions of several runs can be averaged."""
    pooled: ClassVar[bool] = False
    """Whether one vector for each text is read, which the setting `pool` chooses."""
    groups_by_context: ClassVar[bool] = False
    """Whether examples with the same second text are not independent, so that intervals resample these texts."""
    reads: ClassVar[tuple[str, ...]] = ("examples",)
    default_for: ClassVar[tuple[str, ...]] = ()
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False
    additive: ClassVar[bool] = True
    sparse: ClassVar[bool] = False
    separates: bool = False
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {}

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer | None = None, frame: Frame | None = None) -> None:
        self.config = config

    # What the data say

    @classmethod
    def settings_from(cls, labelled: Labelled, defaults: TaskDefaults, *, frozen: bool) -> dict[str, Any]:
        """The settings of a task that follow from its data and from the system that learns it."""
        labels = cls.labels_of(labelled)
        return {"metric": labelled.metric, **({"labels": list(labels)} if labels else {})}

    @classmethod
    def labels_of(cls, labelled: Labelled) -> tuple[str, ...]:
        """The names of all classes or tags; none where the task has no classes."""
        return ()

    @classmethod
    def summarise_labels(cls, labelled: Labelled) -> LabelSummary:
        """How often each label occurs in the training examples, and a line about it."""
        return LabelSummary()

    @classmethod
    def metrics_of(cls, config: TaskConfig) -> dict[str, Metric]:
        """The metrics by name, the main one first."""
        raise NotImplementedError

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name, the main one first."""
        return self.metrics_of(self.config)

    @classmethod
    def make_baseline(cls, name: str) -> Baseline:
        """A baseline of this task, not yet fitted."""
        if name not in cls.baselines:
            raise ValueError(f"{cls.name} has no baseline {name!r}; it has {', '.join(cls.baselines)}")
        module, _, kind = cls.baselines[name].partition(":")
        baseline: Baseline = getattr(import_module(module), kind)()
        return baseline

    # What users see

    @classmethod
    def example_commands(cls, *, pair: bool = False) -> tuple[str, str]:
        """Commands to try with a run of this task; {run} is its folder."""
        words = cls.wording
        return f"lmlab predict {{run}} {words.input}", f"lmlab evaluate {{run}} more.{words.ending}"

    @property
    def pair(self) -> bool | None:
        """Whether an example is two texts; None where it may be one or two."""
        return None

    def to_input(self, text: str | Sequence[str]) -> str | tuple[str, ...]:
        """A text as this task reads it: a text, or a tuple of words."""
        return text if isinstance(text, str) else tuple(text)

    def find_fault(self, example: Example) -> str | None:
        """What is wrong with the form of an example, or None."""
        return None

    def make_example(self, texts: Sequence[str]) -> Example:
        """An example from the texts that a user gave; a ValueError says what is needed instead."""
        raise ValueError(f"{self.name} reads no text: give examples in Python")

    def read_paths(self, paths: Sequence[str]) -> list[Example] | None:
        """Unlabelled examples of files that are not text, such as pictures; None for a task that reads text."""
        return None

    def read_labelled(self, path: str, *, columns: Mapping[str, str] | None = None) -> Labelled | None:
        """Labelled examples of files that are not text; None for a task that reads text."""
        return None

    def format_prediction(self, example: Example, found: Prediction, *, top: int) -> str:
        """A prediction in a line, the `top` best labels or answers."""
        ranked = sorted(found.scores.items(), key=lambda each: -each[1])[:top]
        named = "   ".join(f"{name or 'no answer'} {probability:.1%}" for name, probability in ranked)
        return f"{named}\t{example.a}"

    def check_labels(
        self, examples: Sequence[Example], *, path: str, detect: Callable[[], Labelled | None]
    ) -> list[str]:
        """Notes on the labels of a file that may be for another task; a ValueError where they cannot be for this one.

        `detect` reads the file without knowing the task; None where it cannot be read.
        """
        return []

    @classmethod
    def show_evidence(cls, lines: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Evidence:
        """What the predictions for labelled examples show, from the lines of `predictions.jsonl`."""
        raise NotImplementedError

    # The objective

    @classmethod
    def needs(cls, config: TaskConfig) -> tuple[type, ...]:
        return (GivesVectors,)

    @classmethod
    def usual_for(cls, data: str) -> dict[str, Any]:
        return {}

    @classmethod
    def settings_from_corpus(cls, config: Any, corpus: Corpus) -> dict[str, Any]:
        return {}

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"label": 1.0, **({"mix": self.config.mix_decay} if self._penalises_mix else {})}

    @property
    def _penalises_mix(self) -> bool:
        return self.config.method == "mix" and self.config.mix_decay > 0

    # Files of the run

    def open(self, run: Path) -> None:
        """Load files that the task keeps in its run directory besides the weights."""

    def external_folders(self, run: Path) -> list[str]:
        """Folders outside the run directory that the task needs."""
        return []

    def precompute(self, items: Sequence[Item], *, run: Path, progress: ReportProgress | None = None) -> Sequence[Item]:
        """Items with what is computed once, before training; files needed later are kept in the run."""
        return items

    def precompute_flops(self, items: Sequence[Item]) -> float:
        """Floating-point operations of `precompute`, without the cache."""
        return 0.0

    # Examples to batches

    @abstractmethod
    def items(self, examples: Sequence[Example]) -> list[Item]:
        """Examples as items, in order: one for each, or several windows."""

    @abstractmethod
    def inputs(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The inputs of the model, and which of its vectors are read: `at` [B, K], or `real` [B, T] to be pooled."""

    @abstractmethod
    def targets(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], int]:
        """The labels of a batch, and the number of predictions."""

    def loader(self, data: Any, *, batch: int, window: int, seed: int, streams: bool) -> ExampleLoader:
        return self.make_loader(self.items(data.examples), batch=batch, seed=seed)

    def make_loader(self, items: Sequence[Item], *, batch: int, seed: int) -> ExampleLoader:
        """Numbered batches of items."""
        return ExampleLoader(items, batch=batch, window=0, seed=seed)

    def batch(self, raw: Sequence[Item], generator: np.random.Generator | None = None) -> Batch:
        """Items as a batch: inputs of the model, or the vectors that were computed from them."""
        labels, count = self.targets(raw)
        counts = {"label": count, **({"mix": 1} if self._penalises_mix else {})}
        if raw[0].vectors is not None:
            vectors, _ = pad_rows([torch.from_numpy(np.array(item.vectors, np.float32)) for item in raw])
            return Batch({"vectors": vectors}, labels, counts, self.units_of(raw))
        inputs, positions = self.inputs(raw)
        return Batch(inputs, {**labels, **positions}, counts, self.units_of(raw))

    def flops_batch(self, raw: Sequence[Item]) -> Batch:
        """A batch for counting FLOPs: it may lack the values of inputs that other models compute."""
        return self.batch(raw)

    def units_of(self, items: Sequence[Item]) -> dict[str, int]:
        """What budgets count."""
        return {"examples": len({item.number for item in items})}

    def length_of(self, item: Item) -> int:
        """The size of an item, by which items are put into batches: of a text its tokens."""
        return 1

    def left_out(self, item: Item) -> int:
        """How many tokens of an item are beyond the window."""
        return 0

    def rows_of(self, item: Item) -> int:
        """In how many rows of a batch an item is read."""
        return 1

    def vectors_of(self, item: Item) -> int:
        """How many vectors of an item are read: one for each row, or one for each position."""
        return self.rows_of(item) if item.positions is None else len(item.positions)

    def cache_key(self) -> dict[str, Any]:
        """What the vectors of a frozen model depend on, besides its weights and the items."""
        return {"pool": self.config.pool, "layers": self.config.layer_choice, "task": self.name}

    def item_key(self, item: Item) -> bytes:
        """The content of an item, for the cache of vectors."""
        return b"".join(f"{name} ".encode() + np.asarray(part).tobytes() for name, part in item.parts.items())

    # Vectors to predictions

    def read(self, model: Model, batch: Batch) -> Tensor:
        """The vectors of a model that the head reads: [B, K, D], or [B, K, L, D] where the layers are to be mixed."""
        at, real, layers = batch.labels.get("at"), batch.labels.get("real"), self.config.layer_choice
        if layers == "last":
            vectors = self._last_layer(model, batch.inputs, at)
        else:
            found = model.layers(**batch.inputs)
            vectors = side_by_side(found) if self.config.method == "mix" else select_layers(layers).of(found)
            if at is not None:
                vectors = gather_positions(vectors.flatten(2), at).view(*at.shape, *vectors.shape[2:])
        return vectors if real is None else pool(vectors, real, self.config.pool)[:, None]

    def _last_layer(self, model: Model, inputs: Mapping[str, Tensor], at: Tensor | None) -> Tensor:
        """The vectors of the last layer [B, T, D], or [B, K, D] at positions."""
        return model.vectors(**inputs, at=at)

    def smallest_batch(self, model: Model) -> Batch:
        """The smallest batch that a model can read, to find the shape of its vectors."""
        return Batch(model.blank_inputs(1, 1), {"at": torch.zeros(1, 1, dtype=torch.long)})

    def vector_shape(self, model: Model) -> tuple[int, int]:
        """The number of layers and the width of the vectors that the head reads: (L, D), L is 1 without a mix."""
        was_training = model.training
        model.eval()  # without dropout, so that no random number is used up
        with torch.no_grad():
            found = self.read(model, self.smallest_batch(model).to(model.device))
        model.train(was_training)
        return (found.shape[2] if found.dim() == 4 else 1), found.shape[-1]

    @abstractmethod
    def make_head(self, width: int) -> dict[str, nn.Module]:
        """The head over vectors of a width, and other modules that the task learns."""

    def heads(self, model: Model) -> dict[str, nn.Module]:
        layers, width = self.vector_shape(model)
        mix: dict[str, nn.Module] = {}
        if self.config.method == "mix":
            mix["mix"] = Mix(layers, norm=self.config.mix_norm, dropout=self.config.mix_dropout)
        return {**mix, **self.make_head(width)}

    @abstractmethod
    def score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        """The scores of the head, from vectors [B, K, D]."""

    @abstractmethod
    def loss_of(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        """The loss of scores, summed over a batch."""

    @abstractmethod
    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        """The result of each item, from the scores."""

    @abstractmethod
    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        """A prediction for each example, from the results of its items."""

    def scores(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch) -> Tensor:
        """The scores of a batch, without its loss."""
        vectors = batch.inputs.get("vectors")
        return self._score(heads, self.read(model, batch) if vectors is None else vectors, batch)

    def _score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        return self.score(heads, cast(Tensor, heads["mix"](vectors)) if "mix" in heads else vectors, batch)

    def scores_and_losses(
        self, model: Model, heads: Mapping[str, nn.Module], batch: Batch
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The scores of a batch, and its loss summed by term."""
        vectors = batch.inputs.get("vectors")
        sums: dict[str, Tensor] = {}
        if vectors is None:
            vectors, sums = self._read_with_losses(model, batch)
        if self._penalises_mix:
            sums["mix"] = cast(Mix, heads["mix"]).penalty()
        scores = self._score(heads, vectors, batch)
        return scores, {"label": self.loss_of(heads, scores, batch), **sums}

    def _read_with_losses(self, model: Model, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The vectors that the head reads, and losses of the model besides that of the task."""
        return self.read(model, batch), {}

    def loss(self, model: Any, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        """The loss by term, and the scores; without gradients (validation), only the term of the labels."""
        if torch.is_grad_enabled():
            scores, sums = self.scores_and_losses(model, heads, batch)
        else:
            scores = self.scores(model, heads, batch)
            sums = {"label": self.loss_of(heads, scores, batch)}
        return Loss(sums, scores=scores.detach())

    # Costs

    def scored(self, batch: Batch) -> int:
        """How many vectors of a batch the head scores, padding included."""
        vectors = batch.inputs.get("vectors")
        return batch.labels["at"].numel() if vectors is None else vectors.shape[0] * vectors.shape[1]

    def model_flops(self, model: Model, batch: Batch) -> float:
        """Floating-point operations of the model in the forward and backward pass over a batch."""
        return model_flops(model, batch, positions=self.positions_read(batch))

    def positions_read(self, batch: Batch) -> int | None:
        """How many vectors of each row the model computes; None for all."""
        at = batch.labels.get("at")
        return None if at is None or self.config.layer_choice != "last" else at.shape[1]

    def step_flops(self, model: Model, heads: Mapping[str, nn.Module], loader: Any) -> float:
        return step_flops(self, model, heads, loader)


def order_metrics(task: str, offered: Sequence[Metric], *, main: str | None) -> dict[str, Metric]:
    """Metrics by name, the main one first: `main`, or by default the first of them."""
    named = {each.name: each for each in offered}
    if main is not None and main not in named:
        raise ValueError(f"{task} has no metric {main!r}; it has {', '.join(named)}")
    return {name: named[name] for name in dict.fromkeys([main or next(iter(named)), *named])}
