"""What a table of one Hugging Face family may say: which of their numbers and tensors are which of ours.

Every row reads in both directions. A name with `{}` stands for one row per layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lmlab.interop.hf_transforms import SAME, Fused, Transform, Transposed

if TYPE_CHECKING:
    from torch import Tensor

NEEDED = object()
"""The default of a setting that a configuration must name."""


@dataclass(frozen=True)
class Setting:
    """A number or word that both configurations hold; `also` are more of theirs for which ours stands.

    Where those differ, the first is taken, with a warning: it is for settings of training only.
    """

    ours: str
    theirs: str
    also: tuple[str, ...] = ()
    default: Any = NEEDED
    plus: int | str = 0
    """What theirs has more than ours: a number, or the setting of ours that holds it, which must come before."""
    words: Mapping[Any, Any] | None = None
    """Their words with ours; of several with the same meaning, the first is written."""
    none: Any = None
    """What ours is where theirs is null."""
    written: Callable[[Mapping[str, Any]], Any] | None = None
    """How theirs follows from our settings, where it is not just the one."""


@dataclass(frozen=True)
class Only:
    """An option of theirs of which lmlab has one choice; any other is refused by name. The first is what we write.

    A function is asked with their whole configuration. A configuration that does not name the option has the first,
    unless `default` says what `transformers` takes it for.
    """

    theirs: str
    allowed: tuple[Any, ...] | Callable[[Mapping[str, Any]], tuple[Any, ...]]
    default: Any = NEEDED
    training: bool = False  # it matters only for training: a warning will do

    def choices(self, config: Mapping[str, Any]) -> tuple[Any, ...]:
        return self.allowed(config) if callable(self.allowed) else self.allowed


@dataclass(frozen=True)
class Weight:
    """The tensors that are the same in both, but for a transform."""

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
class Part:
    """Something that a checkpoint may have or not, told by one of its tensors and kept in a setting of ours."""

    ours: str
    theirs: str | tuple[str, ...]  # any of these
    present: Any = True
    absent: Any = False
    nonzero: bool = False  # a tensor of zeros counts as absent


@dataclass(frozen=True)
class Architecture:
    """A class of theirs: the settings of ours under which it is written, and whether its names have the prefix."""

    name: str
    when: Mapping[str, Any] = field(default_factory=dict)
    prefixed: bool = True
    lacks: Mapping[str, Any] = field(default_factory=dict)
    """The settings of ours that follow from what a checkpoint of this class has not got, whatever it says."""


@dataclass(frozen=True)
class Head:
    """A class of theirs for a task, and which of our heads it has: ours is `label.out`, after `label.dense` or not."""

    name: str
    tasks: tuple[str, ...]
    weights: tuple[Weight, ...]
    pool: str | None = None
    """Whose vector it reads; None where every place is read."""
    activation: str | None = None
    dropout: str | None = "classifier_dropout"
    """Their name for the dropout in the head."""
    absorbs: str | None = None
    """Of a head without a bias: the tensor of ours, the last that is added to what it reads, that can take one up."""
    options: tuple[Only, ...] = ()
    shifted: bool = False
    """Whether it reads a decoder that is given the text once more, each token one place later."""

    @property
    def bias(self) -> bool:
        """Whether its last layer has a bias."""
        return any(weight.ours == "label.out.bias" for weight in self.weights)

    @property
    def dense(self) -> bool:
        """Whether it has a layer before the last."""
        return any(weight.ours == "label.dense.weight" for weight in self.weights)


class Adaptation(Protocol):
    """What must change in a model of ours before the rows apply, because of its tokenizer."""

    def write(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], *, pad: int | None) -> Adapted: ...

    def read(self, adapted: Adapted) -> tuple[dict[str, Any], dict[str, Tensor]]: ...


class Adapted(NamedTuple):
    """A changed model, and what is needed to undo it (as JSON)."""

    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    undo: Mapping[str, Any] | None


@dataclass(frozen=True)
class Family:
    """One model type of theirs, as one kind of ours."""

    kind: str
    model_type: str
    prefix: str
    """What stands before the names of the body where the checkpoint has a head; without a head it may be missing."""
    architectures: tuple[Architecture, ...]
    """The first whose conditions hold is written."""
    settings: tuple[Setting, ...]
    options: tuple[Only, ...]
    weights: tuple[Weight, ...]
    parts: tuple[Part, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    """Tied tensors that a checkpoint may hold a second time, each with the name of the first."""
    ignored: tuple[str, ...] = ()
    """Patterns of tensors that say nothing: masks and position numbers that old versions wrote."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Endings of names that old versions wrote, with today's."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ours that have one value in this family; others are not written."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """What else can be done about one of these that has another value, beside training with the right one."""
    assumed: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ours of which their configuration says nothing."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Settings of theirs for which ours has nothing; they are written, and not looked at."""
    also: tuple[str, ...] = ()
    """Other kinds of ours that are the same network."""
    specials: tuple[str, ...] = ()
    """The special tokens of its vocabulary files."""
    boundary: str | None = None
    """The token that stands between documents, where it is not the eos_token of their files."""
    template: tuple[str, ...] = ()
    """The roles around a text, and then around a pair: what their tokenizer adds by itself."""
    sentencepiece: Mapping[str, bool] | None = None
    """What its tokenizer does to a text before a SentencePiece model, if that file alone says the rest."""
    pads: str = "right"
    """The side on which rows are filled up there; left where the last vector stands for the text."""
    fills_up: bool = False
    """Whether their model fills up rows by itself, with a token that it must be told: any, for nobody sees it."""
    adaptation: Adaptation | None = None
    """What changes with the tokenizer before the rows apply."""
    unify: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda config: config
    """Their configuration with what versions write in different places in one of them."""
    folders: Callable[[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]] = lambda values: {"": {}}
    """The folders, and in each the settings of ours that differ, for a model that is several of theirs."""
    heads: tuple[Head, ...] = ()
    """Its classes for tasks."""
    bare: Mapping[str, Any] = field(default_factory=dict)
    """The settings of ours for a body without the heads of pre-training, as classes for tasks have it."""


def linear(ours: str, theirs: str, transform: Transform = SAME) -> tuple[Weight, Weight]:
    """The two rows of a matrix with its bias, or of a norm; biases are never transposed."""
    bias = SAME if isinstance(transform, Transposed) else transform
    return (
        Weight(f"{ours}.weight", f"{theirs}.weight", transform),
        Weight(f"{ours}.bias", f"{theirs}.bias", bias),
    )


def fused(ours: str, *theirs: str) -> tuple[Weight, Weight]:
    """The two rows of query, key and value, which are one product here and three there."""
    each = Fused(*(1 for _ in theirs))
    return (
        Weight(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), each),
        Weight(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), each),
    )


SENTENCES = ("classification", "regression")
"""The tasks that are one class of theirs."""


def pooled_head(
    name: str,
    tasks: tuple[str, ...],
    *,
    dense: str,
    out: str,
    activation: str = "tanh",
    dropout: str,
    options: tuple[Only, ...] = (),
) -> Head:
    """A dense layer over the first vector, and one more."""
    rows = (*linear("label.dense", dense), *linear("label.out", out))
    return Head(name, tasks, rows, pool="cls", activation=activation, dropout=dropout, options=options)


def placed_heads(prefix: str, *, dropout: str = "classifier_dropout") -> tuple[Head, Head]:
    """One layer over the vector of every place: tags, and where answers begin and end."""
    return (
        Head(f"{prefix}ForTokenClassification", ("tagging",), linear("label.out", "classifier"), dropout=dropout),
        Head(f"{prefix}ForQuestionAnswering", ("spans",), linear("label.out", "qa_outputs"), dropout=None),
    )
