"""What all tasks share: how examples become rows, how a model is read, and what its vectors are worth.

A task is an objective over labelled examples. It reads a model in one of five ways: `full`, `gradual` and `scratch`
train it together with the head; `frozen` and `mix` train the head alone, over vectors that were computed once.
Shapes: B rows, T places, K places that are read, L layers, D width, C classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.loaders.examples import ExampleLoader
from lmlab.data.readers.examples import Example
from lmlab.layers.layer_mix import Mix, select_layers, side_by_side
from lmlab.layers.padding import choose
from lmlab.metrics.metric import Metric, StreamingMetric
from lmlab.metrics.task_metrics import metrics_for
from lmlab.models import name_of
from lmlab.models.abilities import GivesVectors, PredictsNext, State
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, Loss
from lmlab.progress import ReportProgress
from lmlab.tasks.flops import step_flops
from lmlab.tasks.heads import pool
from lmlab.tasks.long_texts import read_in_segments
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, Framed, Row, collate, make_frame, pad_rows

How = Literal["full", "frozen", "mix", "gradual", "scratch"]
HOWS: tuple[How, ...] = ("full", "frozen", "mix", "gradual", "scratch")
Pool = Literal["cls", "last", "mean", "max", "concat"]


class TaskConfig(Config):
    """How a task is learnt from a model."""

    labels: list[str] = Field([], description="names of the classes or tags, as the data have them")
    how: How = Field(
        "full",
        description="which weights learn: full (all), frozen (only the head), mix (head and a mix of layers), gradual "
        "(unfrozen from the top), scratch (all, without pre-training)",
    )
    pool: Pool = Field(
        "cls", description="what stands for a whole text: its cls (first), last, mean, max vector, or concat of three"
    )
    layers: str = Field(
        "last", description="of frozen: which layers are read: last, second-to-last, sum:all, concat:-4:"
    )
    activation: Literal["tanh", "gelu", "relu"] | None = Field(
        None, description="activation of a dense layer in the head; none: the head is one linear layer"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability in the head")
    mix_norm: bool = Field(False, description="of mix: normalise the vectors of each layer before they are mixed")
    mix_dropout: float = Field(0.0, ge=0, lt=1, description="of mix: dropout probability on the mixed vectors")
    mix_decay: float = Field(
        0.0,
        ge=0,
        description="of mix: weight λ of Σ s² in the loss, which holds the layers' weights together (ELMo: 0.001)",
    )
    auxiliary: float = Field(
        0.0, ge=0, description="weight λ of the language-model loss beside that of the task (Radford et al. 2018)"
    )
    frame: dict[str, str] = Field(
        {"tokens": "cls:0 a:0 sep:0 b:1 sep:1"}, description="what stands around the texts, for each input of the model"
    )
    backwards: bool = Field(False, description="read a text from its last token to the first, as the model learnt it")
    window: int | None = Field(
        None, ge=4, description="the most tokens of a row; longer texts are cut, or read in parts"
    )
    segment: int | None = Field(
        None,
        ge=1,
        description="of what stateful a state: long texts are read in segments of so many tokens, and gradients stay "
        "within each (BPTT for text classification); none: at once",
    )
    metric: str | None = Field(None, description="the metric that counts most; by default that of the task")
    scheme: str | None = Field(None, description="of tags: IOB2 or IOBES spans; none: each tag stands for itself")

    @property
    def trains_model(self) -> bool:
        """Whether the weights of the model learn, or only those of the head."""
        return self.how not in ("frozen", "mix")

    @property
    def reads(self) -> str:
        """The layers that are read: `last`, `mix` for all of them, or a selection."""
        return "mix" if self.how == "mix" else self.layers if self.how == "frozen" else "last"


@dataclass(frozen=True)
class Item:
    """One example, or one window of it, as tokens."""

    number: int
    """Of the example."""
    parts: Mapping[str, Any]
    """Ids by the letters of the frame."""
    label: Any = None
    places: Mapping[int, int] | None = None
    """What is read: its number -> the number of its piece."""
    vectors: NDArray[Any] | None = None
    """[K, D] or [K, L, D], computed once, where the model is frozen."""
    words: Sequence[str] | None = None
    """Of tagging: the words that are tagged."""
    states: NDArray[Any] | None = None
    """[K, F], computed once: what frozen language models say of each word."""


class Prediction(NamedTuple):
    """What a task says of one example."""

    value: Any  # the name of a class, a number, the number of a choice, tags, or the text of an answer
    probability: float | None = None  # of that value
    scores: Mapping[str, float] = {}  # by class, or by answer: the n best
    span: tuple[int, int] | None = None  # of an answer: its characters in the context
    left_out: int | None = None  # tokens that were not read, where the text is longer than the window


class Task:
    """An objective over labelled examples: the shared part; each task adds its items, its head and its verdict."""

    Config: ClassVar[type[TaskConfig]] = TaskConfig
    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("examples",)
    default_for: ClassVar[tuple[str, ...]] = ()
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False
    additive: ClassVar[bool] = True
    separates: bool = False
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {}

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer, frame: Frame) -> None:
        self.config, self.tokenizer = config, tokenizer
        own = make_frame(config.frame, tokenizer, backwards=config.backwards)
        self.frame = replace(own, window=config.window, **self.frame_settings(config))

    @classmethod
    def needs(cls, config: TaskConfig) -> tuple[type, ...]:
        if config.auxiliary and not config.trains_model:
            raise ValueError(
                f"objective.auxiliary = {config.auxiliary:g} lets the model learn the language of the examples, and "
                f"--how {config.how} lets it learn nothing: take --how full, or leave it out"
            )
        return (GivesVectors, PredictsNext) if config.auxiliary else (GivesVectors,)

    @classmethod
    def usual_for(cls, data: str) -> dict[str, Any]:
        return {}

    @classmethod
    def frame_settings(cls, config: TaskConfig) -> dict[str, Any]:
        """What is special about the frame of this task: both orders of two texts."""
        return {}

    @property
    def loss_weights(self) -> dict[str, float]:
        language = {"language": self.config.auxiliary} if self.config.auxiliary else {}
        mix = {"mix": self.config.mix_decay} if self._penalises_mix else {}
        return {"label": 1.0, **language, **mix}

    @property
    def _penalises_mix(self) -> bool:
        return self.config.how == "mix" and self.config.mix_decay > 0

    @classmethod
    def metrics_of(cls, config: TaskConfig) -> dict[str, Metric]:
        """What is measured, by name, the main one first."""
        return metrics_for(cls.name, metric=config.metric, labels=config.labels, scheme=config.scheme)

    @property
    def metrics(self) -> dict[str, Metric]:
        """What is measured of this very task."""
        return self.metrics_of(self.config)

    def open(self, run: Path) -> None:
        """Take what the task keeps in the folder of its run beside the weights: nothing, mostly."""

    def outside(self, run: Path) -> list[str]:
        """The folders outside of its run that the task reads from after `open`: none, mostly."""
        return []

    def complete(self, items: Sequence[Item], *, run: Path, progress: ReportProgress | None = None) -> Sequence[Item]:
        """Items with all that is computed once for training; what is needed for it later is kept in the run."""
        return items

    def completion_flops(self, items: Sequence[Item]) -> float:
        """Floating-point operations of `complete`, where nothing of it is in the cache."""
        return 0.0

    # Examples to batches

    @abstractmethod
    def items(self, examples: Sequence[Example]) -> list[Item]:
        """Examples as tokens, in their order: one item for each, or several windows of it."""

    @abstractmethod
    def targets(self, items: Sequence[Item], rows: Sequence[Row] | None) -> tuple[dict[str, Tensor], int]:
        """The labels of a batch, and how many predictions it has; without rows where vectors are there already."""

    def loader(self, data: Any, *, batch: int, window: int, seed: int, streams: bool) -> ExampleLoader:
        return ExampleLoader(self.items(data.examples), batch=batch, window=window, seed=seed, length=self.tokens_of)

    def batch(self, raw: Sequence[Item], generator: np.random.Generator | None = None) -> Batch:
        """Items as a batch: rows of tokens, or the vectors that were computed of them."""
        tokens = sum(self.tokens_of(item) for item in raw)
        units = {"examples": len({item.number for item in raw}), "tokens": tokens}
        mix = {"mix": 1} if self._penalises_mix else {}
        if raw[0].vectors is not None:
            labels, count = self.targets(raw, None)
            vectors, _ = pad_rows([torch.from_numpy(np.array(item.vectors, np.float32)) for item in raw])
            return Batch({"vectors": vectors}, labels, {"label": count, **mix}, units)
        rows = self.frame.rows([parts for item in raw for parts in self.parts_of(item)])
        inputs = collate(rows)
        labels, count = self.targets(raw, rows)
        labels |= self.places(raw, rows)
        counts = {"label": count, **mix}
        if self.config.auxiliary:
            counts["language"] = int((inputs["lengths"] - 1).sum())
        return Batch(inputs, labels, counts, units)

    def outline(self, raw: Sequence[Item]) -> Batch:
        """A batch as far as it tells what is computed: without what only other models could say."""
        return self.batch(raw)

    def tokens_of(self, item: Item) -> int:
        """How many tokens of an item are read, in all its rows, special tokens left out."""
        window = self.frame.window
        lengths = [sum(map(len, parts.values())) for parts in self.parts_of(item)]
        return self.orders * sum(length if window is None else min(length, window) for length in lengths)

    def left_out(self, item: Item) -> int:
        """How many tokens of an item are not read, because they do not fit into the window."""
        frame = self.frame
        if frame.window is None or frame.stride is not None or item.vectors is not None:
            return 0
        rows = [(sum(map(len, parts.values())), "".join(parts)) for parts in self.parts_of(item)]
        return sum(max(0, length + frame.overhead(frame.reads, letters) - frame.window) for length, letters in rows)

    def rows_of(self, item: Item) -> int:
        """In how many rows an item is read: one for each of its parts, in each order."""
        return self.orders * len(self.parts_of(item))

    def vectors_of(self, item: Item) -> int:
        """How many vectors of an item are read: one for each of its rows, or one for each place."""
        return self.rows_of(item) if item.places is None else len(item.places)

    @property
    def orders(self) -> int:
        """In how many orders the parts of an item are read."""
        return max(1, len(self.frame.orders))

    def parts_of(self, item: Item) -> list[Mapping[str, Any]]:
        """The parts of each row of an item, as the frame reads them."""
        return [item.parts]

    def places(self, items: Sequence[Item], rows: Sequence[Row]) -> dict[str, Tensor]:
        """Where the vectors of rows are read: `at` [B, K], or `real` [B, T] where a pool goes over many of them."""
        framed = [next(iter(row.inputs.values())) for row in rows]
        if self.config.pool == "cls":
            return {"at": torch.tensor([[self._place_of_cls(each)] for each in framed])}
        if self.config.pool == "last":
            return {"at": torch.tensor([[len(each.pieces) - 1] for each in framed])}
        real, _ = pad_rows([[bool(part) for part in each.parts] or [True] for each in framed])
        empty = ~real.bool().any(1, keepdim=True)  # nothing but special tokens: they are all there is
        lengths = torch.tensor([len(each.pieces) for each in framed])
        inside = torch.arange(real.shape[1]) < lengths[:, None]
        return {"real": torch.where(empty, inside, real.bool())}

    def _place_of_cls(self, row: Framed) -> int:
        if not self.frame.has("cls"):
            around = self.frame.templates[self.frame.reads]
            raise ValueError(f"--pool cls: this model reads {around!r}, without a cls; take last, mean, max or concat")
        lengths = {part: row.parts.count(part) for part in dict.fromkeys(row.parts) if part}
        return self.frame.place_of("cls", self.frame.reads, lengths)

    # Vectors to verdicts

    def read(self, model: Model, batch: Batch) -> Tensor:
        """What is read of a model: [B, K, D], or [B, K, L, D] where the layers are to be mixed."""
        at, real, layers = batch.labels.get("at"), batch.labels.get("real"), self.config.reads
        if layers == "last":
            vectors = self._last_layer(model, batch.inputs, at)
        else:
            found = model.layers(**batch.inputs)
            vectors = side_by_side(found) if self.config.how == "mix" else select_layers(layers).of(found)
            if at is not None:
                vectors = choose(vectors.flatten(2), at).view(*at.shape, *vectors.shape[2:])
        return vectors if real is None else pool(vectors, real, self.config.pool)[:, None]

    def _last_layer(self, model: Model, inputs: Mapping[str, Tensor], at: Tensor | None) -> Tensor:
        """The vectors of the last layer [B, T, D], or [B, K, D] at places; of long texts, segment by segment."""
        segment = self.config.segment
        if segment is None or inputs["tokens"].shape[1] <= segment:
            return model.vectors(**inputs, at=at)
        vectors = read_in_segments(model, inputs["tokens"], segment=segment)
        return vectors if at is None else choose(vectors, at)

    def vector_shape(self, model: Model) -> tuple[int, int]:
        """How many layers and components the vectors have that a model gives this task: (L, D), L being 1 or more."""
        rows = self.frame.rows([{"a": [self.tokenizer.boundary]}])
        batch = Batch(collate(rows, device=model.device), self.places([], rows))
        was_training = model.training
        model.eval()  # no dropout: nothing is drawn that training would miss
        with torch.no_grad():
            found = self.read(model, batch.to(model.device))
        model.train(was_training)
        return (found.shape[2] if found.dim() == 4 else 1), found.shape[-1]

    @abstractmethod
    def make_head(self, width: int) -> dict[str, nn.Module]:
        """The head over vectors of a width, and whatever else the task learns."""

    def heads(self, model: Model) -> dict[str, nn.Module]:
        if self.config.auxiliary and not isinstance(model, PredictsNext):
            raise ValueError(
                f"objective.auxiliary = {self.config.auxiliary:g} predicts each next token from the vector before it, "
                f"but those of {name_of(model)} know what follows: leave it out, or take a left-to-right model"
            )
        if self.config.segment is not None and not (model.stateful and isinstance(model, PredictsNext)):
            raise ValueError(
                f"objective.segment = {self.config.segment} reads a text in segments, each after the state of those "
                f"before it, but {name_of(model)} reads it as a whole: leave it out, or take a recurrent model"
            )
        layers, width = self.vector_shape(model)
        mix: dict[str, nn.Module] = {}
        if self.config.how == "mix":
            mix["mix"] = Mix(layers, norm=self.config.mix_norm, dropout=self.config.mix_dropout)
        return {**mix, **self.make_head(width)}

    @abstractmethod
    def score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        """The scores that the head gives, from vectors [B, K, D]."""

    @abstractmethod
    def total(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        """The loss of scores, summed over a batch."""

    @abstractmethod
    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        """What scores say of each item."""

    @abstractmethod
    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        """A prediction for each example, from what was decoded of its items."""

    def scores(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch) -> Tensor:
        """The scores of a batch, without its loss."""
        vectors = batch.inputs.get("vectors")
        return self._score(heads, self.read(model, batch) if vectors is None else vectors, batch)

    def _score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        return self.score(heads, cast(Tensor, heads["mix"](vectors)) if "mix" in heads else vectors, batch)

    def verdict(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The scores of a batch, and its loss summed by term."""
        vectors = batch.inputs.get("vectors")
        sums: dict[str, Tensor] = {}
        if vectors is None and self.config.auxiliary:
            hidden = model(**batch.inputs).hidden
            vectors = self._pick(hidden, batch)
            sums["language"] = self._language(model, hidden, batch)
        elif vectors is None:
            vectors = self.read(model, batch)
        if self._penalises_mix:
            sums["mix"] = cast(Mix, heads["mix"]).penalty()
        scores = self._score(heads, vectors, batch)
        return scores, {"label": self.total(heads, scores, batch), **sums}

    def loss(self, model: Any, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        return Loss(self.verdict(model, heads, batch)[1])

    def _pick(self, hidden: Tensor, batch: Batch) -> Tensor:
        at, real = batch.labels.get("at"), batch.labels.get("real")
        if real is not None:
            return pool(hidden, real, self.config.pool)[:, None]
        assert at is not None
        return choose(hidden, at)

    def _language(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """The surprisal of the tokens of each row, from the ones before them."""
        tokens, lengths = batch.inputs["tokens"], batch.inputs["lengths"]
        inside = torch.arange(tokens.shape[1] - 1, device=tokens.device) < (lengths - 1)[:, None]
        total: Tensor = model.total_nll(hidden[:, :-1][inside], tokens[:, 1:][inside])
        return total

    def scored(self, batch: Batch) -> int:
        """How many vectors of a batch the head scores, padding too."""
        vectors = batch.inputs.get("vectors")
        return batch.labels["at"].numel() if vectors is None else vectors.shape[0] * vectors.shape[1]

    def step_flops(self, model: Model, heads: Mapping[str, nn.Module], loader: Any) -> float:
        return step_flops(self, model, heads, loader)
