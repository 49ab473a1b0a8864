"""The contracts of every neural model: what training, decoding and looking inside may rely on.

What a model can do beyond giving vectors is in abilities.py. Shapes: B batch, T time, D width, H heads, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lmlab.layers.padding import gather_positions
from lmlab.layers.watching import watching_layers
from lmlab.models.abilities import Output as Output
from lmlab.models.abilities import OutputLayer as OutputLayer
from lmlab.models.abilities import State
from lmlab.models.flops import CountsFlops
from lmlab.models.settings import Heads as Heads
from lmlab.models.settings import ModelConfig as ModelConfig
from lmlab.models.settings import TokenModelConfig as TokenModelConfig
from lmlab.models.states import Decoding


@runtime_checkable
class ReadsLetters(Protocol):
    """A model that reads the letters of its tokens, and needs no number for every word."""

    config: Any  # `letters`: the most of a word that it reads

    def spell_by(self, spell: Callable[[Tensor], Tensor]) -> None:
        """Read tokens by these letters from now on: tokens [N] -> [N, letters]."""


class Model(nn.Module, CountsFlops):
    """A neural model: inputs by name to hidden vectors."""

    Config: ClassVar[type[Any]]
    main_input: ClassVar[str] = "tokens"
    """The name of the input whose vectors `layers` gives."""
    stateful: ClassVar[bool] = False
    """True where the state of one training segment is the start of the next (truncated back-propagation)."""
    measured_in_bf16: ClassVar[bool] = False
    """Whether runs in bf16 were measured to end as well as in fp32, so that `train.precision = auto` may use it."""

    memory: int = 0
    """The maximum number of earlier tokens in its memory; 0 if it has no such limit."""
    config: Any

    @property
    def window(self) -> int | None:
        """The most tokens that it reads at once; None where any length can be read."""
        return None

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        """Inputs with the shapes of a batch of `rows` rows, to measure a forward pass."""
        return {"tokens": torch.zeros(rows, window, dtype=torch.long, device=self.device)}

    def offers(self) -> Iterable[object]:
        """What can be done with this very model: itself, an encoder with its head, a part (see abilities.py)."""
        return (self,)

    def layers(self, **inputs: Any) -> list[Tensor]:
        """The vectors [B, T, D] of every layer, with gradients.

        First what enters the first block, then what leaves each; the last is what the model predicts from.
        """
        with watching_layers() as layers:
            self(**inputs)
        return layers

    def vectors(self, *, at: Tensor | None = None, **inputs: Any) -> Tensor:
        """The vectors of the last layer [B, T, D], or [B, K, D] at the positions `at` [B, K]: what tasks read."""
        hidden: Tensor = self(**inputs).hidden
        return hidden if at is None else gather_positions(hidden, at)

    def depths(self) -> list[list[nn.Parameter]]:
        """The parameters from the embeddings up: embeddings, each block, and last what only predicts tokens.

        A tied parameter is listed at its lowest depth.
        """
        raise NotImplementedError

    def task_depths(self) -> list[list[nn.Parameter]]:
        """The same for a task, which reads `vectors`: what these do not depend on is in the last."""
        return self.depths()

    @classmethod
    def changeable(cls, begun: Mapping[str, Any]) -> tuple[str, ...]:
        """Settings that a run may change although they shape the weights of the run, with settings `begun`, it is from.

        `adapt` defines what happens to these weights.
        """
        return ()

    def adapt(self, tensors: dict[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of a run with which this model begins, by its own names; `fresh` are those that it has drawn."""
        return tensors


class ScoresTokens:
    """Adds `step` and `score` to a model whose hidden vector at a token scores the token after it."""

    config: Any
    output: OutputLayer
    __call__: Callable[..., Any]

    @property
    def vocabulary(self) -> int:
        return int(self.config.vocabulary)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., V] for hidden vectors [..., D]."""
        return self.output.logits(hidden)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Surprisal in nats [N] of targets [N] at hidden vectors [N, D]."""
        return self.output.nll(hidden, targets)

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`, computed the fast way for training."""
        return self.output.total(hidden, targets)

    def head_flops(self) -> float:
        return self.output.flops()

    def step(self, tokens: Tensor, state: State, **inputs: Any) -> tuple[Tensor, State]:
        hidden, state = self(tokens, state=state, **inputs)
        return self.logits(hidden[:, -1]), state

    def score(self, tokens: Tensor, targets: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, state = self(tokens, state=state)
        return self.nll(hidden.flatten(0, 1), targets.flatten()).view_as(targets), state


class NextTokenModel(ScoresTokens, Model):
    """A model that reads a text from left to right and predicts each next token (`PredictsNext`)."""

    @property
    def approximation(self) -> str:
        """What its probabilities are exact for, in a few words, where attention is approximated; else nothing."""
        return ""

    @property
    def sees_ahead(self) -> bool:
        """Whether reading a text at once shows a token something of what follows; it is scored token by token then."""
        return False

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        """tokens [B, T] -> hidden [B, T, D] and the state after them; state None is a fresh text.

        What follows the `lengths[i]` tokens of a row changes nothing before it, so lengths are not needed here;
        but the state is that after all T. Every layer's vectors pass through `record_layer`.
        """
        raise NotImplementedError

    def start(self, batch_size: int, **inputs: Any) -> State:
        """The state of `batch_size` unread texts; `inputs` are what they are about."""
        return None


class EncoderModel(Model):
    """A model that reads a text in both directions at once: it has no state and no next token."""

    def vectors(self, *, at: Tensor | None = None, **inputs: Any) -> Tensor:
        hidden: Tensor = self(**inputs, at=at).hidden
        return hidden

    @property
    def vocabulary(self) -> int:
        return int(self.config.vocabulary)

    def forward(
        self,
        tokens: Tensor,
        *,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        at: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """tokens [B, T] -> hidden [B, T, D]; `segments` [B, T] marks sentences A and B, row i has `lengths[i]` tokens.

        What follows a row's length is padding: it is not attended to, and its hidden vectors are zero. With `at`
        [B, K], positions of each row, only the vectors there, [B, K, D], for which the last layer need do little.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Filler:
    """An encoder with its masked-token head (`FillsMasks`)."""

    encoder: EncoderModel
    head: OutputLayer

    @property
    def vocabulary(self) -> int:
        return self.encoder.vocabulary

    @property
    def window(self) -> int | None:
        return self.encoder.window

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    def read(self, *, at: Tensor | None = None, **inputs: Any) -> Tensor:
        hidden: Tensor = self.encoder(**inputs, at=at).hidden
        return hidden

    def fill(self, *, at: Tensor, **inputs: Any) -> Tensor:
        return self.head.logits(self.read(at=at, **inputs))

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head.logits(hidden)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return self.head.nll(hidden, targets)

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return self.head.total(hidden, targets)

    def head_flops(self) -> float:
        return self.head.flops()

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        return self.encoder.reading_flops(inputs, positions=positions, memory_length=memory_length)


class EncoderDecoder(ScoresTokens, Model):
    """A model that reads a source, and predicts the next token of a target text given both (`WritesTarget`).

    A source is what `encode` takes by name: tokens `source` [B, S] with their `lengths` [B], or an image, or sound.
    `forward(tokens, *, state, target_lengths, **source)` takes target tokens [B, T], each to be followed by the next
    one, and gives their vectors: either of fresh targets with their sources (in training no cache is built, and the
    state is None), or after a state.
    """

    main_input: ClassVar[str] = "source"
    encode: Callable[..., Any]
    """The sources by name -> what the decoder needs of them, kept in a `Decoding`, a nest of tensors [B, …]."""

    @property
    def source_window(self) -> int | None:
        """The longest source, in its own units; None: any length. It may differ from `window`, that of targets."""
        return self.window

    def vectors(self, *, at: Tensor | None = None, **inputs: Any) -> Tensor:
        """Those of the encoder; where `tokens` are given as well, of the decoder that reads them.

        BART learns tasks from its decoder, which is given the text a second time (Lewis et al. 2020, section 3.1).
        """
        hidden = self(**inputs).hidden if "tokens" in inputs else self.layers(**inputs)[-1]
        return hidden if at is None else gather_positions(hidden, at)

    def task_depths(self) -> list[list[nn.Parameter]]:
        read = set(self.get_submodule("encoder").parameters())
        tables, *stages, top = self.depths()
        written = [parameter for stage in stages if read.isdisjoint(stage) for parameter in stage]
        return [tables, *(stage for stage in stages if not read.isdisjoint(stage)), [*written, *top]]

    def layers(self, **inputs: Any) -> list[Tensor]:
        """Those of the encoder, which needs only the source (what `encode` is given); a target is not read."""
        source = {name: value for name, value in inputs.items() if name not in ("tokens", "target_lengths")}
        with watching_layers() as layers:
            self.encode(**source)
        return layers

    def pair_flops(self, source: int, target: int) -> float:
        """Floating-point operations of encoder and decoder for a pair of these lengths, without the scores."""
        raise NotImplementedError

    def writing_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """The same for a batch of sources and targets."""
        raise NotImplementedError

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """Per target token, where source and target have `window` tokens each."""
        return self.pair_flops(window, window) / window + self.head_flops()

    def begin(self, encoded: Any, *, beams: int = 1) -> Decoding:
        """The `Decoding` of `beams` unwritten targets for each source in `encoded`."""
        raise NotImplementedError


def by_depth(model: nn.Module, *stages: Iterable[nn.Module | nn.Parameter | None]) -> list[list[nn.Parameter]]:
    """The parameters of each stage, each at the first that has it; a last stage has all that no other has."""
    known: set[nn.Parameter] = set()
    depths: list[list[nn.Parameter]] = []
    for stage in (*stages, (model,)):
        depths.append([])
        for part in stage:
            parameters = part.parameters() if isinstance(part, nn.Module) else () if part is None else (part,)
            depths[-1] += [parameter for parameter in parameters if parameter not in known]
            known.update(depths[-1])
    return depths
