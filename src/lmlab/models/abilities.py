"""What can be done with a model: abilities that it has or has not, several at once.

No code asks what a model is. `ability(model, PredictsNext)` gives what can do it: the model itself, a part of it, or an
encoder together with its head. A protocol sees names only, so no model has a method that exists only to refuse.

Shapes: B batch, T time, K positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn

from lmlab.models import name_of, system_of
from lmlab.models.descriptions import DESCRIPTIONS

State = Any
"""What a model remembers of what it has read: a nest (tuple, list, dict) of batch-first tensors, or None."""


class Output(NamedTuple):
    """What a forward pass gives."""

    hidden: Tensor  # [B, T, D], the vectors from which scores are computed; [B, K, D] where K positions were asked for
    state: State = None


class OutputLayer(Protocol):
    """A distribution over the vocabulary: full softmax, or an approximation to it."""

    def logits(self, hidden: Tensor) -> Tensor: ...

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor: ...

    def total(self, hidden: Tensor, targets: Tensor) -> Tensor: ...

    def flops(self) -> float: ...


@runtime_checkable
class Steps(Protocol):
    """Reads tokens and predicts the one after them: all that sampling, beam search and scoring need."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def window(self) -> int | None:
        """The most tokens that one state can hold; None where a state holds any length."""

    @property
    def device(self) -> torch.device: ...

    def step(self, tokens: Tensor, state: State, **inputs: Any) -> tuple[Tensor, State]:
        """Read tokens [B, T]; give the scores [B, V] of the token after them. The given state is used up.

        Where a model reads more than tokens at each step, such as the returns and states of an episode, `inputs` has
        these by name.
        """

    def score(self, tokens: Tensor, targets: Tensor, state: State) -> tuple[Tensor, State]:
        """Read tokens [B, T]; give the surprisal in nats [B, T] of each target, the token that follows."""


@runtime_checkable
class PredictsNext(Steps, Protocol):
    """Predicts the next token of a text; an n-gram does it as well as a network."""

    def start(self, batch_size: int, **inputs: Any) -> State:
        """The state of `batch_size` unread texts; `inputs` are what they are about, by name."""


@runtime_checkable
class LearnsNext(PredictsNext, Protocol):
    """A network that learns to predict the next token: it has vectors, and the loss at these."""

    def __call__(self, *, state: State = None, **inputs: Any) -> Output:
        """The vectors [B, T, D] of all tokens, and the state after them."""

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The surprisal in nats [N] of targets [N] at vectors [N, D]."""

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`, computed the fast way for training."""

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """Floating-point operations of the vectors of a batch."""

    def head_flops(self) -> float:
        """Floating-point operations of the scores at one token."""

    def training_passes(self, window: int) -> float:
        """How many forward passes one forward and backward pass costs."""


@runtime_checkable
class PredictsBothWays(Protocol):
    """Predicts each token from those before it and, by a second model, from those after it."""

    def directions(self) -> tuple[PredictsNext, PredictsNext]:
        """The model from left to right and the one from right to left, which is given texts from their ends."""

    def read(self, tokens: Tensor, backwards: Tensor, state: State = None) -> tuple[Tensor, Tensor, State]:
        """tokens [B, T] for the first direction, others for the second -> vectors [B, T, D] of each, and both states.

        What is read backwards is given from its end, so that in each the next token is the one that is predicted.
        """

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The surprisal in nats [N] of targets [N] at vectors [N, D]."""

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`, computed the fast way for training."""


@runtime_checkable
class WritesTarget(Steps, Protocol):
    """Writes a target from a source. It has no `start`: there is nothing to write from without a source."""

    def encode(self, **source: Any) -> Any:
        """What the decoder needs to know of sources, a nest of tensors [B, …]; what they are is given by name.

        Tokens: `source` [B, S], where row i has `lengths[i]`.
        """

    @property
    def source_window(self) -> int | None:
        """The longest source; None: any length."""

    def begin(self, encoded: Any, *, beams: int = 1) -> State:
        """The state of `beams` unwritten targets for each source."""


@runtime_checkable
class Transcribes(WritesTarget, Protocol):
    """Writes the text of a recording; its source is the spectrogram `sound` [B, M, F]."""

    def timing_heads(self) -> list[tuple[int, int]]:
        """The heads whose cross-attention shows where in the sound each token is, as (block, head) pairs."""


@runtime_checkable
class WritesCaptions(WritesTarget, Protocol):
    """Writes the caption of a picture; its source is `pixels` [B, C, H, W]."""

    @property
    def grid(self) -> tuple[int, int]:
        """The number of regions from top to bottom, and from left to right."""

    def attend(self, tokens: Tensor, *, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Captions [B, T] of pictures -> the vectors of their tokens [B, T, D], and the attention of each [B, T, R]."""


@runtime_checkable
class FollowsCommands(WritesTarget, Protocol):
    """Writes the action that a command calls for; its source is `pixels` [B, C, H, W] and the command `source`."""

    @property
    def grid(self) -> tuple[int, int]:
        """The number of regions from top to bottom, and from left to right."""

    def read_command(self, *, pixels: Tensor, source: Tensor, lengths: Tensor | None = None) -> Any:
        """The encoder's vectors of the regions of pictures and of the words of commands."""


@runtime_checkable
class LearnsTarget(WritesTarget, Protocol):
    """A network that learns to write targets: it has vectors, and the loss at these."""

    @property
    def output(self) -> OutputLayer: ...

    def __call__(self, *, state: State = None, **inputs: Any) -> Output:
        """The vectors [B, T, D] of all target tokens, given their sources."""

    def logits(self, hidden: Tensor) -> Tensor:
        """The scores [..., V] at vectors [..., D]."""

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of the surprisals in nats of targets [N] at vectors [N, D]."""

    def writing_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """Floating-point operations of the vectors of a batch."""

    def head_flops(self) -> float:
        """Floating-point operations of the scores at one token."""


@runtime_checkable
class FillsMasks(Protocol):
    """Predicts masked tokens from both sides; the scores at a position are those of the token there."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def window(self) -> int | None: ...

    @property
    def device(self) -> torch.device: ...

    def read(self, *, at: Tensor | None = None, **inputs: Any) -> Tensor:
        """The vectors [B, K, D] at the positions `at` [B, K] of each row, whose tokens are missing; or at all of them.

        A missing token is replaced by a mask. Some models see it, some take any token at these positions as missing.
        """

    def fill(self, *, at: Tensor, **inputs: Any) -> Tensor:
        """The scores [B, K, V] of the tokens at the positions `at` [B, K]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """The scores [..., V] at vectors [..., D] that `read` gave."""

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The surprisal in nats [N] of targets [N] at vectors [N, D]."""

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`, computed the fast way for training."""

    def head_flops(self) -> float:
        """Floating-point operations of the scores at one position."""

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """Floating-point operations of `read` for a batch, with `positions` positions in each row."""


@runtime_checkable
class FillsInOrder(FillsMasks, Protocol):
    """Predicts tokens in any order: each from what is given and from those before it in that order."""

    def read_in_order(self, *, order: Tensor, at: Tensor, state: State = None, **inputs: Any) -> tuple[Tensor, State]:
        """The vectors [B, K, D] at the positions `at` [B, K], and the state after the text.

        `order` [B, T] is 0 at tokens that are given, and n at the n-th that is predicted; equal numbers do not see
        each other.
        """


@runtime_checkable
class Detects(Protocol):
    """Predicts for every position whether the token was replaced."""

    def detect(self, **inputs: Any) -> Tensor:
        """Logits [B, T] of "this token is not the original one"."""

    def detection_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """Floating-point operations of `detect` for a batch."""


@runtime_checkable
class ScoresSentencePairs(Protocol):
    """Predicts whether the second segment of a row follows the first: next sentence, or sentence order."""

    def score_pairs(self, hidden: Tensor) -> Tensor:
        """Vectors [B, K, D], the first at [CLS] -> logits [B, 2]: right (0), or not (1)."""

    def pair_head_flops(self) -> float:
        """Floating-point operations of `score_pairs` for one row."""


@runtime_checkable
class PredictsNeighbours(Protocol):
    """Has two vectors for each token: its own, and one as a neighbour of others. Their gradients are sparse."""

    @property
    def width(self) -> int:
        """D, the width of both."""

    def as_centres(self, tokens: Tensor) -> Tensor:
        """Vectors [..., D] of tokens themselves."""

    def as_neighbours(self, tokens: Tensor) -> Tensor:
        """Vectors [..., D] of tokens: their products with others predict which are neighbours."""


@runtime_checkable
class MatchesPictures(Protocol):
    """Gives pictures and texts unit vectors in one space, in which a picture is near the texts that describe it."""

    @property
    def device(self) -> torch.device: ...

    def embed_pictures(self, pixels: Tensor) -> Tensor:
        """pixels [B, C, H, W] -> unit vectors [B, E]."""

    def embed_texts(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """tokens [B, T], where row i has lengths[i] -> unit vectors [B, E]."""

    def scale(self) -> Tensor:
        """The learnt number by which cosines are multiplied before a softmax."""

    def matching_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """Floating-point operations of the vectors of a batch of pictures and texts."""


class Both(NamedTuple):
    """The vectors of texts with the regions of pictures."""

    words: Tensor  # [B, K, D] at the positions that were asked for, or [B, T, D]
    regions: Tensor | None  # [B, R, E]; None where they were not computed
    joint: Tensor  # [B, J] one vector for each text with its picture


@runtime_checkable
class ReadsRegions(Protocol):
    """Reads a text together with the regions of a picture, and tells whether the text describes the picture.

    Inputs: `tokens` [B, T] with `lengths`, `regions` [B, R, F] with `region_lengths`, and `boxes` [B, R, 4], the left,
    top, right and bottom edge of each region as fractions of the picture.
    """

    def read_both(self, *, at: Tensor | None = None, **inputs: Any) -> Both:
        """The vectors of words at the positions `at` [B, K], or of all, those of regions, and one of both together."""

    def match(self, joint: Tensor) -> Tensor:
        """Joint vectors [B, J] -> scores [B, 2]: the text describes the picture (0), or not (1)."""

    def match_flops(self) -> float:
        """Floating-point operations of `match` for one row, with that of the joint vector."""


@runtime_checkable
class PredictsRegions(ReadsRegions, Protocol):
    """Predicts the vectors of masked regions."""

    def predict_regions(self, hidden: Tensor) -> Tensor:
        """Vectors [N, E] that `read_both` gave for regions -> predicted vectors [N, F]."""

    def region_flops(self) -> float:
        """Floating-point operations of `predict_regions` for one region."""


@runtime_checkable
class ChoosesActions(Protocol):
    """Chooses actions in episodes, from states and the return that is asked for."""

    @property
    def device(self) -> torch.device: ...

    @property
    def discrete(self) -> bool:
        """Whether it chooses one of several actions; else an action is a vector."""

    def scores(self, hidden: Tensor) -> Tensor:
        """Logits of discrete actions, or continuous actions from -1 to 1 [..., A], at vectors of states [..., D]."""

    def start(self, batch_size: int) -> Any:
        """The history of episodes that have not begun."""

    def step(
        self, states: Tensor, history: Any, *, returns: Tensor, actions: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """The scores [B, A] of the next action in states [B, S] with returns to go [B], and the new history.

        `actions` [B, A] are those that were taken in the step before; None in the first.
        """


@runtime_checkable
class GivesVectors(Protocol):
    """Has layers of vectors, from the embeddings up."""

    def layers(self, **inputs: Any) -> list[Tensor]: ...


class Ability(NamedTuple):
    """An ability and the protocol that a model has it by."""

    name: str
    kind: type
    does: str
    uses: str
    systems: str


KINDS: dict[str, type] = {
    "next token": PredictsNext,
    "both directions": PredictsBothWays,
    "masks": FillsMasks,
    "any order": FillsInOrder,
    "transcripts": Transcribes,
    "captions": WritesCaptions,
    "commands": FollowsCommands,
    "target text": WritesTarget,
    "replaced tokens": Detects,
    "pairs": ScoresSentencePairs,
    "neighbours": PredictsNeighbours,
    "pictures and texts": MatchesPictures,
    "words and regions": ReadsRegions,
    "actions": ChoosesActions,
    "vectors": GivesVectors,
}
ABILITIES = {
    name: Ability(name, KINDS[name], each.does, each.uses, each.systems) for name, each in DESCRIPTIONS.items()
}

WRITERS = ("transcripts", "captions", "commands")
"""Abilities to write a target from something that is not text: such a model translates no text."""
A = TypeVar("A")


class Offers(Protocol):
    """Anything that says what can be done with it."""

    def offers(self) -> Iterable[object]: ...


def learns_by_gradient(model: object) -> TypeGuard[nn.Module]:
    """Whether a model is a network, trained by gradient; an n-gram is trained by counting (`System.trained_by`)."""
    return isinstance(model, nn.Module)


def ability(model: object, kind: type[A]) -> A | None:
    """What of a model has an ability: the first of its offers that does, or None."""
    for offer in cast(Offers, model).offers():
        if isinstance(offer, kind):
            return offer
    return None


def listed_ability(kind: type) -> type | None:
    """The ability of the table that `kind` is, or that it refines, as LearnsNext does PredictsNext; None: neither."""
    return next((each for each in kind.__mro__ if each in KINDS.values()), None)


def require(model: object, kind: type[A]) -> A:
    """What of a model has an ability; a ValueError says what the model can do instead, and what to train."""
    found = ability(model, kind)
    if found is not None:
        return found
    wanted = next(each for each in ABILITIES.values() if each.kind is listed_ability(kind))
    able = [each for each in ABILITIES.values() if each.name != "pairs" and ability(model, each.kind) is not None]
    if any(each.name in WRITERS for each in able):
        able = [each for each in able if each.name in WRITERS]
    description, system = DESCRIPTIONS[wanted.name], system_of(model)
    is_a = f"is {DESCRIPTIONS[able[0].name].model}; it " if able else ""
    verbs = dict.fromkeys(verb for each in able for verb in each.uses.replace(" and ", ", ").split(", "))
    if system is not None and system.does == ("vectors",):  # it learns a task from the start: vit, vqa
        is_a, verbs = "", dict.fromkeys(["lmlab predict", "lmlab evaluate"])
    uses = f"use it with {', '.join(verbs)}, or " if able else ""
    raise ValueError(f"{name_of(model)} {is_a}cannot {description.verb}: {uses}train {wanted.systems}")
