"""The parts of a family's conversion table: which settings and tensors of `transformers` are which of lmlab.

Every row works in both directions. A name with `{}` means one row per layer. `theirs` is the name in `transformers`,
`ours` the name in lmlab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lmlab.interop.huggingface.transforms import SAME, Fused, Transform, Transposed

if TYPE_CHECKING:
    from torch import Tensor

    from lmlab.data.corpora.corpus import Processor
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame

NEEDED = object()
"""The default of a setting that a configuration must contain."""


@dataclass(frozen=True)
class Setting:
    """A number or word that both configurations have; `also` lists further names of theirs for the same setting.

    If these differ, the value of `theirs` is used, with a warning; this is for settings of training only.
    """

    ours: str
    theirs: str
    also: tuple[str, ...] = ()
    default: Any = NEEDED
    plus: int | str = 0
    """Their value minus ours: a number, or the name of our setting that contains it, which must come before."""
    words: Mapping[Any, Any] | None = None
    """From their words to ours; of several with the same meaning, the first is written."""
    none: Any = None
    """Our value if theirs is null."""
    read: Callable[[Any], Any] | None = None
    """Computes our value from theirs, if both have another form."""
    written: Callable[[Mapping[str, Any]], Any] | None = None
    """Computes their value from our settings, if it depends on several."""
    factor: int = 1
    """Our value divided by theirs, for whole numbers."""


@dataclass(frozen=True)
class Only:
    """An option with a limited set of supported values; others raise an error. The first one is written.

    A function gets the whole configuration. The value of a missing option is the first, or `default` if
    `transformers` has another one.
    """

    theirs: str
    allowed: tuple[Any, ...] | Callable[[Mapping[str, Any]], tuple[Any, ...]]
    default: Any = NEEDED
    training: bool = False  # it matters only for training, so other values only warn

    def choices(self, config: Mapping[str, Any]) -> tuple[Any, ...]:
        return self.allowed(config) if callable(self.allowed) else self.allowed


@dataclass(frozen=True)
class Weight:
    """Tensors that are the same in both, up to a transform."""

    ours: str | tuple[str, ...]
    theirs: str | tuple[str, ...]
    transform: Transform = SAME

    @property
    def our_names(self) -> tuple[str, ...]:
        return (self.ours,) if isinstance(self.ours, str) else self.ours

    @property
    def their_names(self) -> tuple[str, ...]:
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs


@dataclass(frozen=True)
class OptionalPart:
    """An optional part of a checkpoint, detected by one of its tensors and stored in a setting of ours."""

    ours: str
    theirs: str | tuple[str, ...]  # any of these
    present: Any = True
    absent: Any = False
    nonzero: bool = False  # a tensor of zeros counts as absent


@dataclass(frozen=True)
class Architecture:
    """A `transformers` class: the settings for which it is written, and whether its tensor names have the prefix."""

    name: str
    when: Mapping[str, Any] = field(default_factory=dict)
    prefixed: bool = True
    lacks: Mapping[str, Any] = field(default_factory=dict)
    """Our settings for the parts that checkpoints of this class never have."""


@dataclass(frozen=True)
class TaskHead:
    """A `transformers` class for a task, and its head: `label.out`, optionally after `label.dense`."""

    name: str
    tasks: tuple[str, ...]
    weights: tuple[Weight, ...]
    pool: str | None = None
    """The token whose vector it reads; None if it reads every position."""
    activation: str | None = None
    dropout: str | None = "classifier_dropout"
    """Their name for the dropout in the head."""
    absorbs: str | None = None
    """For a head without a bias: our tensor that is added last to its input, into which a bias can be folded."""
    options: tuple[Only, ...] = ()
    shifted: bool = False
    """Whether it reads a decoder that gets the text again, shifted by one position."""

    @property
    def bias(self) -> bool:
        """Whether its last layer has a bias."""
        return any(weight.ours == "label.out.bias" for weight in self.weights)

    @property
    def dense(self) -> bool:
        """Whether it has a layer before the last."""
        return any(weight.ours == "label.dense.weight" for weight in self.weights)


class Adaptation(Protocol):
    """A change of the model that its tokenizer requires before the rows apply."""

    def write(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], *, pad: int | None) -> Adapted: ...

    def read(self, adapted: Adapted) -> tuple[dict[str, Any], dict[str, Tensor]]: ...


class Adapted(NamedTuple):
    """The changed model, and the information to undo the change (as JSON)."""

    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    undo: Mapping[str, Any] | None


class Files(Protocol):
    """Further files of a family's folders: how its models are decoded, and how they read sounds or pictures."""

    def read_settings(self, folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]: ...

    def read_frame(self, folder: Path, tokenizer: Tokenizer, config: Any) -> Frame | None: ...

    def read_processor(self, folder: Path, config: Any) -> Processor: ...

    def write(self, folder: Path, config: Any, tokenizer: Any, frame: Any, processor: Any) -> None:
        """`tokenizer` and `frame` are those of the run, or None where it reads no text."""


@dataclass(frozen=True)
class Family:
    """The conversion table of one `transformers` model type and one kind of lmlab."""

    kind: str
    model_type: str
    prefix: str
    """Prefix of the encoder's tensor names in a checkpoint with a head; without a head it may be missing."""
    architectures: tuple[Architecture, ...]
    """The first whose conditions hold is written."""
    settings: tuple[Setting, ...]
    options: tuple[Only, ...]
    weights: tuple[Weight, ...]
    parts: tuple[OptionalPart, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    """Tied tensors that a checkpoint may contain twice, each with the name of the first."""
    ignored: tuple[str, ...] = ()
    """Patterns of tensors to ignore: masks and position numbers that old versions wrote."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Endings of names that old versions wrote, with today's."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Our settings that must have one value in this family; models with others cannot be exported."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """Further advice for such a setting with another value, besides training with the right one."""
    assumed: Mapping[str, Any] = field(default_factory=dict)
    """Our settings that are missing from their configuration."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Their settings without a counterpart here; they are written, and ignored when reading."""
    also: tuple[str, ...] = ()
    """Other kinds of lmlab that are the same network."""
    specials: tuple[str, ...] = ()
    """The special tokens of its vocabulary files."""
    boundary: str | None = None
    """The token between documents, if it is not the eos_token of their files."""
    template: tuple[str, ...] = ()
    """The special tokens that their tokenizer adds around one text, and around two."""
    sentencepiece: Mapping[str, bool] | None = None
    """Text changes before the SentencePiece model, for folders that have only that file."""
    pads: str = "right"
    """The padding side; left if the last vector represents the text."""
    fills_up: bool = False
    """Whether their model pads rows itself and needs a padding token; any token works, since it is masked."""
    adaptation: Adaptation | None = None
    """A change that the tokenizer requires before the rows apply."""
    unify: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda config: config
    """Normalises a configuration whose entries differ between versions."""
    nested: tuple[str, ...] = ()
    """Tables within their configuration, whose settings are named `text_config.hidden_size` here."""
    folders: Callable[[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]] = lambda values: {"": {}}
    """For a model that is several of theirs: the folders, and our settings that differ in each."""
    tokenized: bool = True
    """Whether it reads text, by a tokenizer."""
    files: Files | None = None
    """Its further files, if it has any."""
    unnamed: int = 256
    """Rows of the embedding without a token that are usual: tables are padded to round numbers."""
    heads: tuple[TaskHead, ...] = ()
    """Its classes for tasks."""
    bare: Mapping[str, Any] = field(default_factory=dict)
    """Our settings for an encoder without pre-training heads, as task classes have it."""


def linear(ours: str, theirs: str, transform: Transform = SAME) -> tuple[Weight, Weight]:
    """The two rows of a matrix with its bias, or of a norm; biases are never transposed."""
    bias = SAME if isinstance(transform, Transposed) else transform
    return (
        Weight(f"{ours}.weight", f"{theirs}.weight", transform),
        Weight(f"{ours}.bias", f"{theirs}.bias", bias),
    )


def fused(ours: str, *theirs: str) -> tuple[Weight, Weight]:
    """The two rows of query, key and value: one product in lmlab, three in `transformers`."""
    each = Fused(*(1 for _ in theirs))
    return (
        Weight(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), each),
        Weight(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), each),
    )


SENTENCES = ("classification", "regression")
"""The tasks that share one `transformers` class."""


def pooled_head(
    name: str,
    tasks: tuple[str, ...],
    *,
    dense: str,
    out: str,
    activation: str = "tanh",
    dropout: str,
    options: tuple[Only, ...] = (),
) -> TaskHead:
    """A dense layer over the first vector, and one more."""
    rows = (*linear("label.dense", dense), *linear("label.out", out))
    return TaskHead(name, tasks, rows, pool="cls", activation=activation, dropout=dropout, options=options)


def placed_heads(prefix: str, *, dropout: str = "classifier_dropout") -> tuple[TaskHead, TaskHead]:
    """One layer over the vector of every position: tags, and the begin and end of answers."""
    return (
        TaskHead(f"{prefix}ForTokenClassification", ("tagging",), linear("label.out", "classifier"), dropout=dropout),
        TaskHead(f"{prefix}ForQuestionAnswering", ("spans",), linear("label.out", "qa_outputs"), dropout=None),
    )
