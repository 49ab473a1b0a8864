"""Reformer: a Transformer decoder for long texts, with hashed attention and layers whose activations are stored once.

    y₁ = x₁ + Attention(LN(x₂)),  y₂ = x₂ + FeedForward(LN(y₁)),  x₁ = x₂ = token + position at first
    P(next) = softmax(W LN([y₁; y₂]))

Attention is local (one's own chunk and the one before) or among the tokens that share a bucket of a hash, by turns.
Kitaev, Kaiser and Levskaya 2020, "Reformer: The Efficient Transformer".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor, nn

from lmlab.layers.attention.local import LocalAttention
from lmlab.layers.attention.lsh import (
    BucketCache,
    ChunkedLSHAttention,
    Hashes,
    LSHAttention,
    choose_factors,
    fresh_rotations,
    rotations_of,
)
from lmlab.layers.attention.multi_head import head_width
from lmlab.layers.cache import KeyValueCache, LayerCache
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.padding import gather_positions
from lmlab.layers.positions import AxialPositions, LearnedPositions, check_window, choose_shape
from lmlab.layers.reversible import in_pieces, run_reversible
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import is_watched, layers_watched, record_layer, watching_layers
from lmlab.models.abilities import State
from lmlab.models.model import ModelConfig, NextTokenModel, Output, TokenModelConfig, by_depth
from lmlab.models.reformer_states import HashedCache, TextState, with_room


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int) else list(value) if isinstance(value, tuple) else value


class ReformerConfig(TokenModelConfig):
    """The size of a Reformer, and how it hashes."""

    width: int = Field(128, ge=2, description="hidden size: width of each of the two streams")
    heads: int = Field(4, ge=1, description="attention heads")
    head_width: int | None = Field(None, ge=1, description="width of a head; by default width / heads")
    layers: int = Field(4, ge=1, description="Transformer blocks")
    inner: int = Field(512, ge=1, description="width of the feed-forward layers (intermediate size)")
    window: int = Field(1024, ge=2, description="context length: the most tokens that the model reads at once")
    attention: list[Literal["local", "lsh"]] = Field(
        ["local", "lsh"], min_length=1, description="kinds of attention, repeated over the layers"
    )
    chunk: int = Field(
        64, ge=1, description="chunk length of LSH attention: tokens of its bucket that a token sees in each round"
    )
    local_chunk: int = Field(64, ge=1, description="chunk length of local attention; any window will do")
    hashes: int = Field(4, ge=1, description="rounds of hashing (LSH-4 has 4)")
    buckets: Annotated[list[int] | None, BeforeValidator(_listed)] = Field(
        None, description="number of buckets, even, or its factors ([16, 32]); by default 2 · window / chunk"
    )
    hash_seed: Annotated[int, BeforeValidator(lambda seed: 0 if seed is None else seed)] = Field(
        0, ge=0, description="seed of the rotations that hash a text outside training"
    )
    hashing: Literal["fresh", "fixed"] = Field(
        "fresh", description="rotations while training: fresh for each batch, or fixed by the seed"
    )
    attends: Literal["bucket", "chunk"] = Field(
        "bucket",
        description="whom LSH attention sees: the latest of its bucket, as in the paper's equations, or chunks of the "
        "sorted text, as in the published weights (such a text is scored token by token)",
    )
    positions: Literal["axial", "learned"] = Field(
        "axial", description="position embeddings: by row and column, or each"
    )
    axial_shape: Annotated[list[int] | None, BeforeValidator(_listed)] = Field(
        None, description="rows and columns of axial positions; by default about √window each, rounded up"
    )
    axial_widths: Annotated[list[int] | None, BeforeValidator(_listed)] = Field(
        None,
        description="widths of a row's and a column's vector, together the width; by default a quarter and the rest",
    )
    feed_forward_chunk: int = Field(1024, ge=1, description="tokens that the feed-forward layers take at a time")
    predicts: bool = Field(True, description="whether it has an output layer; without one it only gives vectors")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability, on embeddings and each sublayer")

    @model_validator(mode="after")
    def _fits(self) -> ReformerConfig:
        if self.head_width is None:
            head_width(self.width, self.heads)
        count = math.prod(self.factors)
        if not self.factors or any(factor < 2 or factor % 2 for factor in self.factors):
            raise ValueError(f"buckets = {self.buckets}: each factor must be even, since a bucket has an opposite")
        if self.buckets is not None and count > self.window:
            raise ValueError(
                f"buckets = {self.buckets}: {count} buckets for a window of {self.window} tokens; give at most "
                f"as many as tokens, or none for {math.prod(choose_factors(self.window, self.chunk))}"
            )
        if self.positions == "learned":
            return self
        if len(self.shape) != 2 or min(self.shape) < 1 or math.prod(self.shape) < self.window:
            raise ValueError(
                f"axial_shape = {list(self.shape)}: give rows and columns for at least the {self.window} tokens of the "
                f"window, or none for {list(choose_shape(self.window))}"
            )
        if len(self.widths) != 2 or min(self.widths) < 1 or sum(self.widths) != self.width:
            raise ValueError(
                f"axial_widths = {list(self.widths)}: give two numbers whose sum is the width, {self.width}, or none"
            )
        return self

    @property
    def kinds(self) -> list[Literal["local", "lsh"]]:
        """The attention of each layer."""
        return [self.attention[layer % len(self.attention)] for layer in range(self.layers)]

    @property
    def factors(self) -> list[int]:
        """The factors of the number of buckets: a setting, not a matter of how long a text is."""
        return self.buckets if self.buckets is not None else choose_factors(self.window, self.chunk)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.axial_shape) if self.axial_shape is not None else choose_shape(self.window)

    @property
    def widths(self) -> tuple[int, ...]:
        quarter = max(1, self.width // 4)
        return tuple(self.axial_widths) if self.axial_widths is not None else (quarter, self.width - quarter)

    @property
    def width_of_head(self) -> int:
        """The width of a head, given or width / heads."""
        return self.head_width if self.head_width is not None else self.width // self.heads


class Block(nn.Module):
    """y₁ = x₁ + F(x₂), F = Attention(LN(·)); y₂ = x₂ + G(y₁), G = FeedForward(LN(·))."""

    def __init__(self, config: ReformerConfig, kind: Literal["local", "lsh"]) -> None:
        super().__init__()
        self.attention: LocalAttention | LSHAttention
        if kind == "local":
            self.attention = LocalAttention(
                config.width, config.heads, head_width=config.width_of_head, chunk=config.local_chunk
            )
        else:
            attention = LSHAttention if config.attends == "bucket" else ChunkedLSHAttention
            self.attention = attention(
                config.width,
                config.heads,
                head_width=config.width_of_head,
                factors=config.factors,
                reach=config.chunk,
                stride=config.window + config.chunk + 1,
            )
        if isinstance(self.attention, ChunkedLSHAttention):
            chunks = {{"local": config.local_chunk, "lsh": config.chunk}[each] for each in config.kinds}
            self.attention.multiple, self.attention.least = math.lcm(*chunks), min(chunks)
        self.attention_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.feed_forward = FeedForward(config.width, config.inner, activation=torch.relu)
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.dropout = Dropout(config.dropout)
        self.piece = config.feed_forward_chunk

    def f(self, x: Tensor, hashes: Hashes, layer_cache: LayerCache | BucketCache | None = None) -> Tensor:
        """F(x) = Attention(LN(x)), for x [B, T, D]; `layer_cache` holds the tokens before x."""
        x = self.attention_norm(x)
        hashed = isinstance(self.attention, LSHAttention)
        return cast(
            Tensor, self.dropout(self.attention(x, hashes, layer_cache) if hashed else self.attention(x, layer_cache))
        )

    def g(self, y: Tensor) -> Tensor:
        """G(y) = FeedForward(LN(y)), for y [B, T, D]."""
        return cast(Tensor, self.dropout(self.feed_forward(self.feed_forward_norm(y))))

    def forward(
        self, x1: Tensor, x2: Tensor, hashes: Hashes, layer_cache: LayerCache | BucketCache | None = None
    ) -> tuple[Tensor, Tensor]:
        y1 = x1 + self.f(x2, hashes, layer_cache)
        return y1, x2 + in_pieces(self, y1, self.piece)


@dataclass(frozen=True)
class VectorsOnly:
    """A Reformer without an output layer (`GivesVectors`)."""

    model: Reformer

    def layers(self, **inputs: Any) -> list[Tensor]:
        return self.model.layers(**inputs)


class Reformer(NextTokenModel):
    """x₁ = x₂ = token + position; the blocks; P(next) = softmax(W LN([y₁; y₂])), hidden vectors of twice the width."""

    Config: ClassVar[type[ModelConfig]] = ReformerConfig

    config: ReformerConfig
    output: Softmax
    rotations: Tensor

    def __init__(self, config: ReformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions: AxialPositions | LearnedPositions
        if config.positions == "axial":
            self.positions = AxialPositions(cast(Any, config.shape), cast(Any, config.widths))
        else:
            self.positions = LearnedPositions(config.window, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, kind) for kind in config.kinds)
        self.norm = nn.LayerNorm(2 * config.width, eps=1e-12)
        if config.predicts:
            self.output = Softmax(2 * config.width, config.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding, Softmax)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        self.set_hashes(config.hashes, seed=config.hash_seed)

    def set_hashes(self, hashes: int, *, seed: int) -> None:
        """Hash in `rounds` rounds, by the rotations of this seed; may differ from those while learning (section 5)."""
        if hashes < 1:
            raise ValueError(f"hashes = {hashes}: give at least one round")
        config = self.config
        size = {"heads": config.heads, "width": config.width_of_head, "factors": config.factors}
        rotations = rotations_of(seed, rounds=hashes, **cast(Any, size))
        self.register_buffer("rotations", rotations.to(self.device), persistent=False)
        self.hashes, self.hash_seed = hashes, seed

    @property
    def window(self) -> int:
        return self.config.window

    def offers(self) -> Iterable[object]:
        return (self if self.config.predicts else VectorsOnly(self),)

    @property
    def approximation(self) -> str:
        """What its scores are exact for, in a few words."""
        kind = "" if self.config.attends == "bucket" else " to chunks, token by token"
        return f"LSH attention{kind}, {self.hashes} hashes, hash seed {self.hash_seed}"

    @property
    def sees_ahead(self) -> bool:
        return self.config.attends == "chunk"

    def start(self, batch_size: int, **inputs: Any) -> HashedCache | TextState:
        if self.config.attends == "chunk":
            nothing = torch.zeros(batch_size, 0, dtype=torch.long, device=self.device)
            return TextState(nothing, nothing.new_zeros(batch_size))
        config = self.config
        cache = KeyValueCache.empty(
            batch_size,
            layers=config.layers,
            heads=config.heads,
            head_width=config.width_of_head,
            window=config.window,
            like=self.embedding.weight,
        )
        shape = (batch_size, config.heads, self.hashes)
        hashed, room = config.kinds.count("lsh"), cache.layers[0].shape[3]
        positions = torch.zeros(hashed, *shape, room, dtype=torch.long, device=self.device)
        counts = torch.zeros(hashed, *shape, math.prod(config.factors) + 1, dtype=torch.long, device=self.device)
        return HashedCache(cache, positions.unbind(), counts.unbind())

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        """A fresh text (state None) is read at once; while learning, no layer's activations are kept."""
        if isinstance(state, TextState):
            return self._reread(tokens, state)
        length = tokens.shape[1]
        if self.config.attends == "chunk" and lengths is not None and bool((lengths < length).any()):
            return self._read_by_length(tokens, lengths)
        check_window(0 if state is None else state.cache.length, length, self.config.window)
        start = 0 if state is None else state.cache.start
        x = self.dropout(self.embedding(tokens) + self.positions(start, length))
        rotations = self.rotations
        if self.training and self.config.hashing == "fresh":
            rotations = fresh_rotations(rotations)
        hashes = [Hashes(rotations) for _ in self.blocks]
        layer_caches: Sequence[LayerCache | BucketCache | None] = [None] * len(self.blocks)
        if state is not None:
            state, layer_caches = self._advance(state, length)
        if self.training and torch.is_grad_enabled() and state is None and not (is_watched() or layers_watched()):
            blocks = cast(Any, list(self.blocks))
            x1, x2 = run_reversible(blocks, (x, x), hashes, piece=self.config.feed_forward_chunk)
        else:
            x1, x2 = x, x
            del x  # a long text is not kept a third time
            for block, block_hashes, layer_cache in zip(self.blocks, hashes, layer_caches, strict=True):
                record_layer(torch.cat((x1, x2), -1))
                x1, x2 = block(x1, x2, block_hashes, layer_cache)
        hidden = self.dropout(self.norm(torch.cat((x1, x2), -1)))
        record_layer(hidden)
        return Output(hidden, state)

    def _advance(self, state: HashedCache, more: int) -> tuple[HashedCache, list[LayerCache | BucketCache | None]]:
        """The state after `more` tokens, and what each layer needs to write them."""
        cache, layer_caches = state.cache.advance(more, window=self.config.window)
        room = cache.layers[0].shape[3]
        positions = tuple(with_room(each, room) for each in state.positions)
        hashed = iter(zip(positions, state.counts, strict=True))
        with_buckets: list[LayerCache | BucketCache | None] = [
            BucketCache(layer_cache, *next(hashed)) if kind == "lsh" else layer_cache
            for kind, layer_cache in zip(self.config.kinds, layer_caches, strict=True)
        ]
        return HashedCache(cache, positions, state.counts), with_buckets

    def _read_by_length(self, tokens: Tensor, lengths: Tensor) -> Output:
        """Rows of equal length together, without padding, which would change where chunks begin."""
        rows, found = [], []
        for length in torch.unique(lengths).tolist():
            rows.append((lengths == length).nonzero()[:, 0])
            with watching_layers(when=layers_watched()) as layers:
                hidden = self(tokens[rows[-1], :length]).hidden
            found.append([F.pad(layer, (0, 0, 0, tokens.shape[1] - length)) for layer in (*layers, hidden)])
        back = torch.cat(rows).argsort()
        *seen, hidden = (torch.cat(parts)[back] for parts in zip(*found, strict=True))
        record_layer(*seen)
        return Output(hidden)

    def _reread(self, tokens: Tensor, state: TextState) -> Output:
        """The vector of each new token as the last of the text up to it."""
        hidden = []
        for column in torch.split(tokens, 1, 1):
            state = state.extend(column)
            hidden.append(self._last_vectors(state))
        return Output(torch.stack(hidden, 1), state)

    def _last_vectors(self, state: TextState) -> Tensor:
        """The vectors [B, 2D] at the ends of texts."""
        check_window(0, state.tokens.shape[1], self.config.window)
        hidden = self(state.tokens, lengths=state.lengths).hidden
        return gather_positions(hidden, state.lengths[:, None] - 1)[:, 0]

    def step(self, tokens: Tensor, state: State, **inputs: Any) -> tuple[Tensor, State]:
        state = self.start(len(tokens)) if state is None else state
        if isinstance(state, TextState):
            state = state.extend(tokens)
            return self.logits(self._last_vectors(state)), state
        return super().step(tokens, state, **inputs)

    def depths(self) -> list[list[nn.Parameter]]:
        *below, last = self.blocks
        return by_depth(self, (self.embedding, self.positions), *((block,) for block in below), (last, self.norm))

    def head_flops(self) -> float:
        return self.output.flops() if self.config.predicts else 0.0

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """2 per weight of a product; 4 · d per head and pair of a query and a key; the hashing."""
        return sum(flops for flops, _ in self._flops_by_part(window))

    def training_passes(self, window: int) -> float:
        """Reversible layers are computed a second time in the backward pass, but not hashed again."""
        parts = self._flops_by_part(window)
        return sum(flops * passes for flops, passes in parts) / sum(flops for flops, _ in parts)

    def _flops_by_part(self, window: int) -> list[tuple[float, float]]:
        """The forward FLOPs per token of each part, and how many times training takes these."""
        parts = [(2.0 * module.weight.numel(), 4.0) for module in self.modules() if isinstance(module, nn.Linear)]
        for block in self.blocks:
            parts += cast(Block, block).attention.flops_by_part(window, self.hashes)
        return parts
