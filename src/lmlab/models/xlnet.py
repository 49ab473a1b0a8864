"""XLNet: a Transformer-XL that predicts tokens in any order, each knowing those before it in that order on both sides.

Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding".

A query that predicts a token may not see it, but tokens after it in the order must. Hence two streams (section 2.3):
the content stream h knows its own token, and the query stream g, which starts from one learnt vector, knows its place
only. Both ask the content stream, with the same weights:

    h_i = Attention(Q = h_i, KV = h_j of all j up to i in the order, i included)
    g_i = Attention(Q = g_i, KV = h_j of all j before i in the order)
    P(x_i | those before it) = softmax(E g_i + c)_{x_i}

g is computed only where something is predicted. Read from left to right it is a language model like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention import causal_mask
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.padding import choose
from lmlab.layers.relative_attention import (
    AttentionContext,
    SignedDistances,
    TwoStreamAttention,
    join_masks,
    other_segments,
    permutation_masks,
    real_tokens,
)
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import is_watched, layers_watched, note_layer, watching_layers
from lmlab.models.abilities import State
from lmlab.models.bert import GELU
from lmlab.models.gpt import initialise
from lmlab.models.model import (
    EncoderModel,
    Filler,
    Heads,
    ModelConfig,
    NextTokenModel,
    Output,
    TokenModelConfig,
    by_depth,
)
from lmlab.models.transformer_xl import LayerMemory, Memory, prepend_memory

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {**GELU, "relu": torch.relu}


class XLNetConfig(TokenModelConfig):
    """The size of an XLNet."""

    width: int = Field(128, ge=1, description="hidden size: width of the vectors between blocks")
    heads: Heads = 4
    layers: int = Field(4, ge=1, description="Transformer blocks")
    inner: int = Field(512, ge=1, description="width of the feed-forward layers (intermediate size)")
    memory: int = Field(128, ge=0, description="memory length: earlier tokens whose hidden states each layer keeps")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability, on embeddings and each sublayer")
    attention_dropout: float | None = Field(
        None, ge=0, lt=1, description="dropout probability on attention weights; by default the same as dropout"
    )
    epsilon: float = Field(1e-12, gt=0, description="epsilon of LayerNorm")
    activation: Literal["exact", "tanh", "relu"] = Field(
        "exact", description="of the feed-forward layers: GELU, exact or the tanh approximation, or ReLU"
    )
    initial: Literal["published", "scaled", "half-scaled"] = Field(
        "published",
        description="weight initialisation: N(0, 0.02²), or σ = 1 / √inputs (scaled) or half of it, for narrow models",
    )
    head: bool = Field(True, description="output layer over the vocabulary; imported encoders may lack it")


class Block(nn.Module):
    """z = LN(x + Attention(x, [memory; content])); y = LN(z + FeedForward(z)), of both streams alike."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        dropout = config.dropout if config.attention_dropout is None else config.attention_dropout
        self.attention = TwoStreamAttention(config.width, config.heads, dropout=dropout)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.feed_forward = FeedForward(config.width, config.inner, activation=ACTIVATIONS[config.activation])
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, content: Tensor, memory: LayerMemory | None, context: AttentionContext
    ) -> tuple[Tensor, Tensor]:
        """Queries x [B, N, D] over the memory and the content [B, T, D] -> outputs, and what is to be remembered."""
        inputs, keys_values = prepend_memory(content, memory, project=self.attention.key_value)
        x = self.attention_norm(x + self.dropout(self.attention(x, keys_values, context)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, inputs if self.training else keys_values


@dataclass(frozen=True)
class StreamInputs:
    """What both streams read, and which tokens each of them may attend to."""

    tokens: Tensor  # [B, T]
    content_mask: Tensor | None = None  # [B, T, T], what each token may attend to; None: all
    places: Tensor | None = None  # [B, K], where vectors are wanted; None: those of all tokens
    query_mask: Tensor | None = None  # [B, K, T], what the query stream may attend to at the places; None: all
    content_only: bool = False  # without a query stream: the vectors at the places are those of the content
    ahead: int = 0  # 1 where a place may be one beyond the text
    segments: Tensor | None = None  # [B, T]
    backwards: Tensor | None = None  # [B], True where a row is given from the end of a text
    state: Memory | None = None

    @property
    def two_streams(self) -> bool:
        return self.places is not None and not self.content_only

    def of_content(self) -> StreamInputs:
        """The same without the places."""
        return replace(self, places=None, query_mask=None)

    def at_places(self) -> StreamInputs:
        """The same where only the places attend, each as the token that is there."""
        assert self.places is not None
        mask = self.content_mask
        if mask is not None:
            mask = choose(mask.expand(len(self.places), -1, -1).to(torch.uint8), self.places).bool()
        return replace(self, content_mask=None, query_mask=mask)


class XLNet(EncoderModel):
    """h = token, g = one learnt vector; then the blocks over [memory; h]; the memory is each layer's content."""

    Config: ClassVar[type[ModelConfig]] = XLNetConfig
    stateful: ClassVar[bool] = True

    config: XLNetConfig

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.memory = config.memory
        """Tokens remembered; may be set higher after learning, since distances have no upper end."""
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.query = nn.Parameter(torch.empty(config.width))  # where every g starts
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output = Softmax(config.width, config.vocabulary, tied=self.embedding) if config.head else None
        self.apply(initialise)
        scale = {"published": None, "scaled": 1.0, "half-scaled": 0.5}[config.initial]
        for name, parameter in self.named_parameters():
            if scale and name.startswith("blocks.") and name.endswith(".weight") and parameter.ndim == 2:
                nn.init.normal_(parameter, std=scale / math.sqrt(parameter.shape[1]))
            elif name in ("query", "embedding.weight") or name.endswith(("_bias", "attention.segments")):
                nn.init.normal_(parameter, std=0.1 if scale else 0.02)

    def offers(self) -> Iterable[object]:
        yield self
        if self.output is not None:
            yield OrderedFiller(self, self.output)
            yield LeftToRight(self)

    def start(self, batch_size: int, **inputs: Any) -> Memory:
        """A memory of nothing."""
        width = self.config.width if self.training else 2 * self.config.width
        nothing = self.embedding.weight.new_empty(batch_size, 0, width)
        return Memory((nothing,) * self.config.layers, projected=not self.training, longest=self.memory)

    def forward(
        self,
        tokens: Tensor,
        *,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        at: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """The content stream, every token seeing all others: what tasks read. After a `state`, the memory, too.

        The memory is given unless there is padding, which it would remember.
        """
        real = real_tokens(tokens, lengths)
        mask = None if real is None else real[:, None].expand(-1, tokens.shape[1], -1)
        shortcut = at is not None and not (is_watched() or layers_watched())
        inputs = StreamInputs(tokens, mask, at if shortcut else None, content_only=True, segments=segments, state=state)
        with watching_layers(when=layers_watched()) as layers:
            hidden, memory = self.run(inputs)
        note_layer(*layers if real is None else (each.masked_fill(~real[..., None], 0) for each in layers))
        if not shortcut:
            hidden = hidden if real is None else hidden.masked_fill(~real[..., None], 0)
            hidden = hidden if at is None else choose(hidden, at)
        return Output(hidden, memory if real is None else None)

    def run(self, inputs: StreamInputs) -> tuple[Tensor, Memory]:
        """All blocks: vectors [B, K, D] at the places, or [B, T, D] of all tokens, and the memory after the text."""
        tokens, places, state = inputs.tokens, inputs.places, inputs.state
        batch, length = tokens.shape
        x = self.dropout(self.embedding(tokens))  # h
        if places is not None and inputs.two_streams:
            x = torch.cat((x, self.query.expand(batch, places.shape[1], -1)), 1)  # [h; g]
        context = self._context(inputs if inputs.two_streams else inputs.of_content())
        memories = []
        for i, block in enumerate(self.blocks):
            content = x[:, :length]
            note_layer(content)
            if i == len(self.blocks) - 1 and places is not None:  # of the last block only this is needed
                x = x[:, length:] if inputs.two_streams else choose(content, places)
                context = context if inputs.two_streams else self._context(inputs.at_places())
                context = context.of_places()
            x, read = block(x, content, None if state is None else state.layer(i), context)
            memories.append(self._latest(read))
        x = self.dropout(x)
        note_layer(x)
        remembered = None if state is None else state.mask(length)
        count = None if remembered is None else remembered.sum(1).clamp(max=self.memory)
        distances = None if self.training else context.distances
        batch_invariant = state is not None and state.batch_invariant
        return x, Memory(tuple(memories), not self.training, distances, count, self.memory, batch_invariant)

    def _context(self, inputs: StreamInputs) -> AttentionContext:
        """Which queries attend to which keys, memory included; places are counted from the first remembered token.

        Rows that are read backwards know the text from its end: what is remembered is after them.
        """
        length, state, places = inputs.tokens.shape[1], inputs.state, inputs.places
        before = 0 if state is None else state.layers[0].shape[1]
        reach = before + length - 1 + inputs.ahead
        forward = 0 if inputs.ahead else length - 1
        forward = forward if inputs.backwards is None else reach
        distances: SignedDistances | None = None if state is None else state.distances
        if distances is None or distances.longest < reach or distances.ahead < forward:
            longest = reach if self.training else 1 << reach.bit_length()  # reading may go on: enough for twice as much
            distances = SignedDistances(longest, forward, like=self.embedding.weight)
        known = None if state is None else state.mask(length)
        mask = join_masks(
            inputs.content_mask,
            inputs.query_mask,
            like=inputs.tokens,
            places=0 if places is None else places.shape[1],
            remembered=before if known is None else known,
        )
        segments = inputs.segments
        other = None if segments is None else other_segments(segments, places, before=before)
        places = None if places is None else places + before
        return AttentionContext(distances, reach, forward, length, places, mask, other, inputs.backwards)

    def _latest(self, values: Tensor) -> Tensor:
        return values.detach()[:, max(0, values.shape[1] - self.memory) :]

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding, self.query), *((block,) for block in self.blocks))

    def body_flops(self, window: int, *, share: float = 1.0, remembered: int = 0) -> float:
        """Of the content stream: 2 per weight of a product, 4·S·D for content and values, 2·(S + T)·D for distances.

        S = remembered + window, all keys. The last layer computes keys and values of all tokens and the rest where it
        is asked for. W_R R is computed once for a batch and left out.
        """
        span, keys = window + remembered, 4.0 * self.config.width**2
        asking = self._layer_flops(span, span + window) - keys
        return self.config.layers * keys * span / window + (self.config.layers - 1 + share) * asking

    def head_flops(self) -> float:
        return 0.0 if self.output is None else self.output.flops()

    def filling_flops(self, window: int, *, share: float, remembered: int = 0) -> float:
        """Per token, of both streams: the query stream is at the share of the places."""
        distances = 2 * window + remembered
        return self.streams_flops(window, share=share, remembered=remembered, distances=distances)

    def streams_flops(self, window: int, *, share: float, remembered: int, distances: int) -> float:
        """The same for a number of distances that are looked at; keys and values of the memory are made anew."""
        span, keys = window + remembered, 4.0 * self.config.width**2
        asking, layers = self._layer_flops(span, distances) - keys, self.config.layers
        return layers * keys * span / window + (layers - 1) * asking + share * layers * asking

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        body = self.filling_flops(window, share=predicted, remembered=self.memory)
        return body + predicted * self.head_flops()

    def _layer_flops(self, span: int, distances: int) -> float:
        width = self.config.width
        return 2.0 * (4 * width**2 + 2 * width * self.config.inner) + (4.0 * span + 2.0 * distances) * width


@dataclass(frozen=True)
class OrderedFiller(Filler):
    """XLNet as one that fills blanks, in any order (`FillsBlanks`, `FillsInOrder`)."""

    encoder: XLNet

    def read(self, *, at: Tensor | None = None, **inputs: Any) -> Tensor:
        """The tokens at the places are taken as missing, whatever they are; without places, each in its turn."""
        tokens: Tensor = inputs["tokens"]
        if at is None:
            batch, length = tokens.shape
            at = torch.arange(length, device=tokens.device).repeat(batch)[:, None]
            rows = {name: None if each is None else each.repeat_interleave(length, 0) for name, each in inputs.items()}
            return self.read(at=at, **rows).view(batch, length, -1)
        order = torch.zeros_like(tokens).scatter_(1, at, 1)
        return self.read_in_order(order=order, at=at, **inputs).hidden

    def reading_flops(self, inputs: Mapping[str, Tensor], *, places: int | None = None, remembered: int = 0) -> float:
        rows, window = inputs["tokens"].shape
        if places is None:  # each row once for each of its tokens
            return rows * window * window * self.encoder.filling_flops(window, share=1 / window)
        share = places / window
        return rows * window * self.encoder.filling_flops(window, share=share, remembered=remembered)

    def read_in_order(self, *, order: Tensor, at: Tensor, state: State = None, **inputs: Any) -> Output:
        """Vectors [B, K, D] from which the tokens at the places `at` [B, K] are predicted, and the memory after them.

        `order` [B, T] is 0 at what is given, and 1, 2, … where a token is the first, second, … to be predicted: it
        sees what is given and what comes before it. Those with the same number do not see each other.
        """
        shape, looked_at = inputs["tokens"].shape, order.device.type == "cpu" and not torch.compiler.is_compiling()
        if order.shape != shape or (looked_at and bool((order < 0).any())):
            raise ValueError(
                f"an order of shape {list(order.shape)} for tokens of shape {list(shape)}: give one number for each "
                f"token, 0 where it is given and n where it is the n-th to be predicted"
            )
        tokens: Tensor = inputs["tokens"]
        content_mask, query_mask = permutation_masks(order, at)
        real = real_tokens(tokens, inputs.get("lengths"))
        if real is not None:
            content_mask, query_mask = content_mask & real[:, None], query_mask & real[:, None]
        segments, backwards = inputs.get("segments"), inputs.get("backwards")
        streams = StreamInputs(
            tokens, content_mask, at, query_mask, segments=segments, backwards=backwards, state=state
        )
        return Output(*self.encoder.run(streams))


class LeftToRight(NextTokenModel):
    """XLNet in the order of the text: the place after each token is predicted (`PredictsNext`)."""

    stateful: ClassVar[bool] = True

    def __init__(self, model: XLNet) -> None:
        super().__init__()
        assert model.output is not None
        self.model, self.config, self.output = model, model.config, model.output
        self.training = model.training

    def start(self, batch_size: int, **inputs: Any) -> Memory:
        return self.model.start(batch_size)

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        length = tokens.shape[1]
        past = causal_mask(length, length, device=tokens.device)[None]
        after = torch.arange(1, length + 1, device=tokens.device)[None]
        mask = None if length == 1 else past
        return Output(*self.model.run(StreamInputs(tokens, mask, after, mask, ahead=1, state=state)))

    def layers(self, **inputs: Any) -> list[Tensor]:
        return self.model.layers(**inputs)

    def depths(self) -> list[list[nn.Parameter]]:
        return self.model.depths()

    def body_flops(self, window: int, *, share: float = 1.0, remembered: int = 0) -> float:
        """No query attends forward."""
        return self.model.streams_flops(window, share=1.0, remembered=remembered, distances=window + remembered)

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        return self.body_flops(window, remembered=self.model.memory) + self.head_flops()
