"""Transformer-XL: each segment attends to a memory of the segments before it, by distance instead of position.

Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.relative_attention import Distances, RelativeAttention
from lmlab.layers.softmax import AdaptiveSoftmax, Softmax
from lmlab.layers.watching import note_layer
from lmlab.models.abilities import State
from lmlab.models.model import Heads, ModelConfig, NextTokenModel, Output, TokenModelConfig, by_depth


class TransformerXLConfig(TokenModelConfig):
    """The size of a Transformer-XL."""

    width: int = Field(128, ge=1, description="hidden size: width of the vectors between blocks")
    heads: Heads = 4
    layers: int = Field(4, ge=1, description="Transformer blocks")
    inner: int = Field(512, ge=1, description="width of the feed-forward layers (intermediate size)")
    memory: int = Field(128, ge=0, description="memory length: earlier tokens whose hidden states each layer keeps")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="dropout probability, on embeddings, each sublayer and the final output"
    )
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability on attention weights")
    softmax: Literal["full", "adaptive"] = Field(
        "full", description="output layer; adaptive: rare tokens in clusters, for large vocabularies"
    )


class Memory(NamedTuple):
    """What each layer remembers of earlier tokens, the latest last.

    While learning these are the layer's inputs h [B, M, D], so that the key and value matrices learn from them too (the
    gradient stops at h, as in the paper). Afterwards they are the keys and values [B, M, 2D] made of them: the same
    numbers, without computing them again for each token.
    """

    layers: tuple[Tensor, ...]
    projected: bool
    distances: Any = None  # sine waves of the distances so far, which know the `longest`
    lengths: Tensor | None = None  # [B], how many of the M each text remembers, its latest; None: all of them
    longest: int = 0  # the most that is ever remembered
    batch_invariant: bool = False  # each text is computed to the same bits, whatever others there are

    def layer(self, number: int) -> LayerMemory:
        """What the layer of this number remembers."""
        return LayerMemory(self.layers[number], self.projected)

    def apart(self) -> Memory:
        """The same texts, kept apart: each with all the places that it can ever have, so that sums end alike."""
        layers = tuple(F.pad(layer, (0, 0, self.longest - layer.shape[1], 0)) for layer in self.layers)
        return Memory(layers, self.projected, None, self._each, self.longest, True)

    def select(self, index: Tensor) -> Memory:
        """The memory whose text i is text index[i] of this one."""
        layers = tuple(layer.index_select(0, index) for layer in self.layers)
        return self._replace(layers=layers, lengths=None if self.lengths is None else self.lengths[index])

    def join(self, others: Sequence[Memory]) -> Memory:
        """All texts of this memory and of others of the same model, each at the right end of its row."""
        memories = [self, *others]
        if any(memory.projected != self.projected for memory in memories):
            raise ValueError("a memory from training and one from evaluation cannot be joined")
        most = max(memory.layers[0].shape[1] for memory in memories)
        layers = tuple(
            torch.cat([F.pad(layer, (0, 0, most - layer.shape[1], 0)) for layer in parts])
            for parts in zip(*(memory.layers for memory in memories), strict=True)
        )
        lengths = torch.cat([memory._each for memory in memories])
        known = [memory.distances for memory in memories if memory.distances is not None]
        distances = max(known, key=lambda each: each.longest, default=None)
        even = not self.batch_invariant and bool((lengths == most).all())
        return Memory(layers, self.projected, distances, None if even else lengths, self.longest, self.batch_invariant)

    def mask(self, more: int) -> Tensor | None:
        """[B, M + T], True where a text has a key: what is before its memory is none. None where all have all."""
        if self.lengths is None:
            return None
        places = torch.arange(self.layers[0].shape[1] + more, device=self.lengths.device)
        return places >= self.layers[0].shape[1] - self.lengths[:, None]

    @property
    def _each(self) -> Tensor:
        rows, most = self.layers[0].shape[:2]
        return torch.full((rows,), most, device=self.layers[0].device) if self.lengths is None else self.lengths


class LayerMemory(NamedTuple):
    """What one layer remembers: its inputs [B, M, D], or the keys and values [B, M, 2D] made of them."""

    vectors: Tensor
    projected: bool


def prepend_memory(x: Tensor, memory: LayerMemory | None, *, project: nn.Module) -> tuple[Tensor, Tensor]:
    """A layer's inputs [memory; x], and their keys and values; a memory may keep either."""
    if memory is None:
        return x, project(x)
    if memory.projected:
        return x, torch.cat((memory.vectors, project(x)), 1)
    inputs = torch.cat((memory.vectors, x), 1)
    return inputs, project(inputs)


class Block(nn.Module):
    """z = LN(x + Attention(x, [memory; x])); h = LN(z + FeedForward(z))."""

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.attention = RelativeAttention(config.width, config.heads, dropout=config.attention_dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.inner, activation=torch.relu)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, memory: LayerMemory | None, distances: Distances, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """x [B, T, D] -> the block's output, and what its next memory is cut from."""
        inputs, keys_values = prepend_memory(x, memory, project=self.attention.key_value)
        x = self.attention_norm(x + self.dropout(self.attention(x, keys_values, distances, mask)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, inputs if self.training else keys_values


class TransformerXL(NextTokenModel):
    """h = blocks over [memory; segment]; the memory of the next segment is each layer's input in this one."""

    Config: ClassVar[type[ModelConfig]] = TransformerXLConfig
    stateful: ClassVar[bool] = True

    config: TransformerXLConfig

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.config = config
        self.memory = config.memory
        """Tokens remembered; may be set higher after learning, since distances have no upper end."""
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.content_bias = nn.Parameter(torch.empty(config.heads, config.width // config.heads))
        self.position_bias = nn.Parameter(torch.empty(config.heads, config.width // config.heads))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
        self.output: Softmax | AdaptiveSoftmax
        if config.softmax == "adaptive":
            self.output = AdaptiveSoftmax(config.width, config.vocabulary)
        else:
            self.output = Softmax(config.width, config.vocabulary, tied=self.embedding)

    def start(self, batch_size: int, **inputs: Any) -> Memory:
        """A memory of nothing."""
        width = self.config.width if self.training else 2 * self.config.width
        nothing = self.embedding.weight.new_empty(batch_size, 0, width)
        return Memory((nothing,) * self.config.layers, projected=not self.training, longest=self.memory)

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        """Each token sees the whole memory and the tokens up to itself; the memory has no gradient."""
        x = self.dropout(self.embedding(tokens) * math.sqrt(self.config.width))
        distances = self._distances(tokens.shape[1], state)
        mask = None if state is None else state.mask(tokens.shape[1])
        remembered = []
        for i, block in enumerate(self.blocks):
            note_layer(x)
            x, read = block(x, None if state is None else state.layer(i), distances, mask)
            remembered.append(self._latest(read))
        x = self.dropout(x)
        note_layer(x)
        known = None if self.training else distances
        count = None if mask is None else mask.sum(1).clamp(max=self.memory)
        batch_invariant = state is not None and state.batch_invariant
        return Output(x, Memory(tuple(remembered), not self.training, known, count, self.memory, batch_invariant))

    def _distances(self, length: int, state: State) -> Distances:
        """The distances of `length` tokens to all that they see; outside learning those of the state, if enough."""
        longest = length if state is None else length + state.layers[0].shape[1]
        if not self.training:
            known: Distances | None = None if state is None else state.distances
            if known is not None and known.longest >= longest:
                return known
            longest = 1 << longest.bit_length()
        return Distances(longest, content_bias=self.content_bias, position_bias=self.position_bias)

    def _latest(self, values: Tensor) -> Tensor:
        return values.detach()[:, max(0, values.shape[1] - self.memory) :]

    def depths(self) -> list[list[nn.Parameter]]:
        first, *above = self.blocks
        biases = (self.content_bias, self.position_bias)  # which all blocks share
        return by_depth(self, (self.embedding,), (first, *biases), *((block,) for block in above))

    def body_flops(self, window: int, *, share: float = 1.0, remembered: int = 0) -> float:
        """2 per weight of a product, and per layer 4·S·D for content and values and 2·S·D for distances.

        S = remembered + window, all keys. While learning, the memory's keys and values are made anew in each segment,
        which is counted too. W_R R is computed once for the batch and left out.
        """
        width, layers = self.config.width, self.config.layers
        again = 2 * width**2 * remembered / window
        matrices = layers * (4 * width**2 + 2 * width * self.config.inner + again)
        return 2.0 * matrices + 6.0 * (remembered + window) * width * layers
