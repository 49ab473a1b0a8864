"""XLNet: a Transformer-XL that predicts tokens in any order.

Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding".

For a random order z of the tokens, each token is predicted from those before it in that order, which are on both sides
of it in the text (section 2.2). The vector that predicts a token must know the position of the token, but not the token
itself; yet tokens later in the order must attend to it. Hence two streams with the same weights (section 2.3):

    h_i⁽⁰⁾ = E[x_i]      h_i⁽ᵐ⁾ = Attention(Q = h_i⁽ᵐ⁻¹⁾, KV = h⁽ᵐ⁻¹⁾ of the tokens up to i in z)      content stream
    g_i⁽⁰⁾ = w           g_i⁽ᵐ⁾ = Attention(Q = g_i⁽ᵐ⁻¹⁾, KV = h⁽ᵐ⁻¹⁾ of the tokens before i in z)     query stream
    P(x_i | the tokens before i in z) = softmax(E g_i + c)_{x_i}

Positions enter only as distances, inside attention (layers/attention/two_stream.py): the score of query i and key j is
(q_i + u)·k_j + (q_i + v)·W_R R_{i−j} + (q_i + s)·e_ij, with R the sinusoids of a distance and e a vector for "same
segment" or "other segment". The order is expressed by masks: nothing is permuted. g is computed only at the positions
that are predicted. Keys and values include the memory of Transformer-XL (section 2.4). Tasks use the content stream, in
which each token attends to all others. In the order of the text, XLNet is an ordinary left-to-right language model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import causal_mask
from lmlab.layers.attention.two_stream import (
    AttentionContext,
    SignedDistances,
    TwoStreamAttention,
    add_memory,
    other_segments,
    permutation_masks,
)
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.padding import gather_positions, token_mask
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import is_watched, layers_watched, record_layer, watching_layers
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
from lmlab.models.transformer_xl import LayerMemory, Memory, prepend_memory, update_memory

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
    """z = LN(x + Attention(Q = x, KV = [memory; h])); y = LN(z + FeedForward(z)), for the queries x of both streams."""

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        dropout = config.dropout if config.attention_dropout is None else config.attention_dropout
        self.attention = TwoStreamAttention(config.width, config.heads, dropout=dropout)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.feed_forward = FeedForward(config.width, config.inner, activation=ACTIVATIONS[config.activation])
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, h: Tensor, memory: LayerMemory | None, context: AttentionContext
    ) -> tuple[Tensor, Tensor]:
        """Queries x [B, N, D], content h [B, T, D] -> outputs [B, N, D], and vectors for the next memory."""
        inputs, keys_values = prepend_memory(h, memory, project=self.attention.key_value)
        x = self.attention_norm(x + self.dropout(self.attention(x, keys_values, context)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        # The memory keeps the inputs of a layer in training, because W_K and W_V change; else their keys and values.
        return x, inputs if self.training else keys_values


@dataclass(frozen=True)
class Text:
    """The tokens of one call, with their segments, direction and memory."""

    tokens: Tensor  # [B, T]
    segments: Tensor | None = None  # [B, T]
    backwards: Tensor | None = None  # [B], True for a row whose tokens are in reverse order
    memory: Memory | None = None

    @property
    def length(self) -> int:
        """T, the number of tokens in each row."""
        return self.tokens.shape[1]

    @property
    def memory_length(self) -> int:
        """M, the number of tokens in the memory."""
        return 0 if self.memory is None else self.memory.layers[0].shape[1]

    def layer_memory(self, layer: int) -> LayerMemory | None:
        """The memory of one layer."""
        return None if self.memory is None else self.memory.layer(layer)


@dataclass(frozen=True)
class QueryStream:
    """The positions whose tokens are predicted, and what both streams may attend to; None: everything."""

    positions: Tensor  # [B, K] or [1, K]
    content_mask: Tensor | None  # [B, T, T], True if the content stream of i attends to j: j up to i in the order
    query_mask: Tensor | None  # [B, K, T], True if the query stream of i attends to j: j before i in the order
    next_tokens: bool = False  # left to right: the positions are 1 … T, and nothing attends to a later token


class XLNet(EncoderModel):
    """h = token embeddings, g = one learnt vector w; then the blocks, with keys and values from [memory; h]."""

    Config: ClassVar[type[ModelConfig]] = XLNetConfig
    stateful: ClassVar[bool] = True

    config: XLNetConfig

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.memory = config.memory
        """Tokens in the memory; may be increased after training, because distances have no upper limit."""
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.query = nn.Parameter(torch.empty(config.width))  # w, the first g of every position
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
        """Itself, for vectors; with an output layer also as a model that fills masks and one that predicts next."""
        yield self
        if self.output is not None:
            yield OrderedFiller(self, self.output)
            yield LeftToRight(self)

    def start(self, batch_size: int, **inputs: Any) -> Memory:
        """An empty memory."""
        width = self.config.width if self.training else 2 * self.config.width
        empty = self.embedding.weight.new_empty(batch_size, 0, width)
        return Memory((empty,) * self.config.layers, projected=not self.training, longest=self.memory)

    def forward(
        self,
        tokens: Tensor,
        *,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        at: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """The content stream, in which each token attends to all others; `state` is the memory of the text before.

        If there is padding, no memory is returned, because it would contain the padding.
        """
        real = token_mask(tokens, lengths)  # False at padding
        # Analyses that watch the layers or the attention get the vectors of all tokens, with zeros at padding.
        # Otherwise the last layer computes only the vectors at `at`.
        watched = is_watched() or layers_watched()
        with watching_layers(when=layers_watched()) as layers:
            hidden, memory = self.read_content(
                Text(tokens, segments, memory=state),
                mask=None if real is None else real[:, None].expand(-1, tokens.shape[1], -1),
                at=None if watched else at,
            )
        if real is None:
            record_layer(*layers)
        else:
            record_layer(*(each.masked_fill(~real[..., None], 0) for each in layers))
        if at is None or watched:  # hidden are the vectors of all tokens
            hidden = hidden if real is None else hidden.masked_fill(~real[..., None], 0)
            hidden = hidden if at is None else gather_positions(hidden, at)
        return Output(hidden, memory if real is None else None)

    def read_content(self, text: Text, *, mask: Tensor | None, at: Tensor | None) -> tuple[Tensor, Memory]:
        """The content stream alone: vectors [B, T, D] of all tokens, or [B, K, D] at some positions; the new memory."""
        h = self.dropout(self.embedding(text.tokens))
        context = self._context(text, mask)
        inputs = []
        for i, block in enumerate(self.blocks):
            record_layer(h)
            queries = h
            if at is not None and i == len(self.blocks) - 1:  # nothing needs the other tokens' vectors
                queries, context = gather_positions(h, at), context.at(at, memory=text.memory_length)
            h, layer_inputs = block(queries, h, text.layer_memory(i), context)
            inputs.append(layer_inputs)
        h = self.dropout(h)
        record_layer(h)
        return h, self._update_memory(text, inputs, context)

    def read_streams(self, text: Text, queries: QueryStream) -> tuple[Tensor, Memory]:
        """Both streams: the vectors g [B, K, D] that predict the tokens at the positions; the new memory."""
        length = text.length
        h = self.dropout(self.embedding(text.tokens))
        g = self.query.expand(len(h), queries.positions.shape[1], -1)
        x = torch.cat((h, g), 1)  # [h; g]
        mask = None
        if queries.content_mask is not None and queries.query_mask is not None:
            mask = torch.cat((queries.content_mask, queries.query_mask), 1)
        context = self._context(text, mask, queries)
        inputs = []
        for i, block in enumerate(self.blocks):
            h = x[:, :length]
            record_layer(h)
            if i == len(self.blocks) - 1:  # nothing needs the h of the last layer
                x, context = x[:, length:], context.query_stream()
            x, layer_inputs = block(x, h, text.layer_memory(i), context)
            inputs.append(layer_inputs)
        g = self.dropout(x)
        record_layer(g)
        return g, self._update_memory(text, inputs, context)

    def _context(self, text: Text, mask: Tensor | None, queries: QueryStream | None = None) -> AttentionContext:
        """Which keys the tokens, and then the query stream, attend to; `mask` [B, N, T] is the one over the text."""
        length, memory = text.length, text.memory_length
        positions = None if queries is None else queries.positions
        next_tokens = queries is not None and queries.next_tokens
        farthest_back = memory + length if next_tokens else memory + length - 1
        farthest_ahead = 0 if next_tokens else length - 1
        if text.backwards is not None:  # distances of a row in reverse order are negated
            farthest_ahead = farthest_back
        filled = None if text.memory is None else text.memory.mask(length)
        count = length + (0 if positions is None else positions.shape[1])
        segments = text.segments
        return AttentionContext(
            distances=self._distances(text.memory, farthest_back, farthest_ahead),
            back=farthest_back,
            forward=farthest_ahead,
            tokens=length,
            positions=None if positions is None else positions + memory,
            mask=add_memory(mask, queries=count, memory=memory, filled=filled),
            other_segment=None if segments is None else other_segments(segments, positions, memory=memory),
            backwards=text.backwards,
        )

    def _distances(self, memory: Memory | None, back: int, forward: int) -> SignedDistances:
        """The sinusoids of distances up to `back` and `forward`; taken from the memory if it has that many."""
        known: SignedDistances | None = None if memory is None else memory.distances
        if known is not None and known.longest >= back and known.forward >= forward:
            return known
        longest = back if self.training else 1 << back.bit_length()  # a power of two, so that later calls reuse them
        return SignedDistances(longest, forward, like=self.embedding.weight)

    def _update_memory(self, text: Text, inputs: Sequence[Tensor], context: AttentionContext) -> Memory:
        distances = None if self.training else context.distances
        return update_memory(text.memory, inputs, tokens=text.length, limit=self.memory, distances=distances)

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding, self.query), *((block,) for block in self.blocks))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """FLOPs per token of the content stream: 2 per weight, 4·S·D for content and values, 2·(S + T)·D for distances.

        S = memory_length + window is the number of keys. The last layer computes keys and values of all tokens, and the
        rest for a `fraction` of them. W_R R (the distances) is computed once for a batch and is not counted.
        """
        span, layers = window + memory_length, self.config.layers
        queries = self._query_flops(span, distances=span + window)
        return layers * self._key_flops() * span / window + (layers - 1 + fraction) * queries

    def head_flops(self) -> float:
        return 0.0 if self.output is None else self.output.flops()

    def filling_flops(self, window: int, *, fraction: float, memory_length: int = 0) -> float:
        """FLOPs per token of both streams; the query stream predicts a `fraction` of the tokens."""
        distances = 2 * window + memory_length
        return self.streams_flops(window, fraction=fraction, memory_length=memory_length, distances=distances)

    def streams_flops(self, window: int, *, fraction: float, memory_length: int, distances: int) -> float:
        """FLOPs per token of both streams with this number of distances.

        The keys and values of the memory are computed again.
        """
        span, layers = window + memory_length, self.config.layers
        queries = self._query_flops(span, distances=distances)
        return layers * self._key_flops() * span / window + (layers - 1) * queries + fraction * layers * queries

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        body = self.filling_flops(window, fraction=predicted, memory_length=self.memory)
        return body + predicted * self.head_flops()

    def _key_flops(self) -> float:
        """FLOPs of the key and value of one token in one layer."""
        return 4.0 * self.config.width**2

    def _query_flops(self, span: int, *, distances: int) -> float:
        """FLOPs of one query in one layer: its matrix products, and attention over `span` keys."""
        width = self.config.width
        matrices = 2 * width**2 + 2 * width * self.config.inner
        return 2.0 * matrices + (4.0 * span + 2.0 * distances) * width


@dataclass(frozen=True)
class OrderedFiller(Filler):
    """XLNet as a model that fills masks, in any order (`FillsMasks`, `FillsInOrder`)."""

    encoder: XLNet

    def read(self, *, at: Tensor | None = None, **inputs: Any) -> Tensor:
        """Vectors [B, K, D] that predict the tokens at the positions `at` [B, K] from the tokens at all others.

        Without `at`, each token is predicted from all others, [B, T, D]: one copy of a row for each of its tokens.
        """
        tokens: Tensor = inputs["tokens"]
        if at is None:
            batch, length = tokens.shape
            at = torch.arange(length, device=tokens.device).repeat(batch)[:, None]
            rows = {name: None if each is None else each.repeat_interleave(length, 0) for name, each in inputs.items()}
            return self.read(at=at, **rows).view(batch, length, -1)
        order = torch.zeros_like(tokens).scatter_(1, at, 1)
        return self.read_in_order(order=order, at=at, **inputs).hidden

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        rows, window = inputs["tokens"].shape
        if positions is None:  # each row is read once for each of its tokens
            return rows * window * window * self.encoder.filling_flops(window, fraction=1 / window)
        fraction = positions / window
        return rows * window * self.encoder.filling_flops(window, fraction=fraction, memory_length=memory_length)

    def read_in_order(self, *, order: Tensor, at: Tensor, state: State = None, **inputs: Any) -> Output:
        """Vectors [B, K, D] that predict the tokens at the positions `at` [B, K], and the new memory.

        `order` [B, T] is 0 for tokens that are given, and n for the n-th token that is predicted: it attends to the
        given tokens and to those before it in the order. Given tokens attend to all given tokens; predicted
        tokens with the same number do not attend to each other. If there is padding, no memory is returned, because it
        would contain the padding.
        """
        shape = inputs["tokens"].shape
        on_cpu = order.device.type == "cpu" and not torch.compiler.is_compiling()  # elsewhere the check would wait
        if order.shape != shape or (on_cpu and bool((order < 0).any())):
            raise ValueError(
                f"an order of shape {list(order.shape)} for tokens of shape {list(shape)}: give one number for each "
                f"token, 0 where it is given and n where it is the n-th to be predicted"
            )
        tokens: Tensor = inputs["tokens"]
        content_mask, query_mask = permutation_masks(order, at)
        real = token_mask(tokens, inputs.get("lengths"))
        if real is not None:
            content_mask, query_mask = content_mask & real[:, None], query_mask & real[:, None]
        text = Text(tokens, inputs.get("segments"), inputs.get("backwards"), memory=state)
        hidden, memory = self.encoder.read_streams(text, QueryStream(at, content_mask, query_mask))
        return Output(hidden, memory if real is None else None)


class LeftToRight(NextTokenModel):
    """XLNet in the order of the text: the query stream predicts the token after each position (`PredictsNext`)."""

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
        positions = torch.arange(1, length + 1, device=tokens.device)[None]  # the one after each token
        mask = None if length == 1 else causal_mask(length, length, device=tokens.device)[None]
        # The query at position i + 1 and the content at i both attend to tokens 0 … i: one mask serves both streams.
        queries = QueryStream(positions, content_mask=mask, query_mask=mask, next_tokens=True)
        return Output(*self.model.read_streams(Text(tokens, memory=state), queries))

    def layers(self, **inputs: Any) -> list[Tensor]:
        return self.model.layers(**inputs)

    def depths(self) -> list[list[nn.Parameter]]:
        return self.model.depths()

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """FLOPs per token of both streams; no query attends forward."""
        return self.model.streams_flops(
            window, fraction=1.0, memory_length=memory_length, distances=window + memory_length
        )

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        return self.body_flops(window, memory_length=self.model.memory) + self.head_flops()
