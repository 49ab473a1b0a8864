"""The records of a task: its settings, an item that a model reads, a prediction, and the wording of reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from numpy.typing import NDArray
from pydantic import Field

from lmlab.config import Config

Method = Literal["full", "frozen", "mix", "gradual", "scratch"]
METHODS: tuple[Method, ...] = ("full", "frozen", "mix", "gradual", "scratch")
Pool = Literal["cls", "last", "mean", "max", "concat"]


class TaskConfig(Config):
    """Settings that every task has."""

    labels: list[str] = Field([], description="names of the classes or tags, as in the data")
    method: Method = Field(
        "full",
        description="which weights learn: full (all), frozen (only the head), mix (head and a mix of layers), gradual "
        "(unfrozen from the top), scratch (all, without pre-training)",
    )
    pool: Pool = Field(
        "cls", description="vector of a whole text: its cls (first), last, mean, max vector, or concat of three"
    )
    layers: str = Field("last", description="of frozen: layers to read: last, second-to-last, sum:all, concat:-4:")
    activation: Literal["tanh", "gelu", "relu"] | None = Field(
        None, description="activation of a dense layer in the head; none: the head is one linear layer"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability in the head")
    mix_norm: bool = Field(False, description="of mix: normalise the vectors of each layer before they are mixed")
    mix_dropout: float = Field(0.0, ge=0, lt=1, description="of mix: dropout probability on the mixed vectors")
    mix_decay: float = Field(
        0.0,
        ge=0,
        description="of mix: weight λ of Σ s² in the loss, which keeps the weights of the layers close (ELMo: 0.001)",
    )
    metric: str | None = Field(None, description="the main metric; by default that of the task")

    @property
    def trains_model(self) -> bool:
        """Whether the weights of the model learn, or only those of the head."""
        return self.method not in ("frozen", "mix")

    @property
    def layer_choice(self) -> str:
        """The layers that the head reads: `last`, `mix` for all of them, or a selection."""
        return "mix" if self.method == "mix" else self.layers if self.method == "frozen" else "last"


@dataclass(frozen=True)
class Item:
    """One example, or one window of it, as a model reads it."""

    number: int
    """The number of its example."""
    parts: Mapping[str, Any]
    """Inputs by name; of a text its token ids, by the letters of the frame."""
    label: Any = None
    positions: Mapping[int, int] | None = None
    """Of a task that reads several vectors: number of a word or piece -> number of its piece in this item."""
    vectors: NDArray[Any] | None = None
    """[K, D] or [K, L, D], computed once, where the model is frozen."""
    words: Sequence[str] | None = None
    """Of tagging: the words that are tagged."""
    states: NDArray[Any] | None = None
    """[K, F], computed once: vectors of frozen language models for each word."""


class Prediction(NamedTuple):
    """What a task predicts for one example."""

    value: Any  # the name of a class, a number, the number of a choice, tags, or the text of an answer
    probability: float | None = None  # of that value
    scores: Mapping[str, float] = {}  # by class, or by answer: the n best
    span: tuple[int, int] | None = None  # of an answer: its characters in the context
    left_out: int | None = None  # tokens beyond the window, which were not read


@dataclass(frozen=True, kw_only=True)
class Wording:
    """How a task is described in reports, messages and example commands."""

    goal: str
    """After "learnt": `to tag words`; {classes} is replaced."""
    action: str
    """After "this run": `tags words`."""
    files: str
    """Files that a run of this task is evaluated on."""
    too_long: str = "are cut"
    """What happens to examples that are longer than the window."""
    resampled: str = "examples"
    """The independent units of a test set."""
    input: str = '"a text"'
    """Arguments of `lmlab predict`."""
    ending: str = "tsv"
    """The usual ending of a file of examples."""
