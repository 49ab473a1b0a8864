"""Transformer-XL: each segment attends to a memory of the segments before it, with relative positions.

Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context".

    h̃ = [SG(memory); h]                                              SG: without gradient
    z = LN(h + Attention(Q = h, KV = h̃));  h′ = LN(z + FeedForward(z))      in each block (section 3.3)
    P(w_{t+1} | w_1 … w_t) = softmax(E h_t)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention.relative import Distances, RelativeAttention
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.softmax import AdaptiveSoftmax, Softmax
from lmlab.layers.watching import record_layer
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
    """The hidden vectors of earlier tokens in each layer, the latest last.

    In training these are the inputs h [B, M, D] of the layer, so that the key and value matrices learn from them, too
    (the gradient stops at h, as in the paper). In evaluation they are the keys and values [B, M, 2D] computed from h:
    the same numbers, without computing them again for each token.
    """

    layers: tuple[Tensor, ...]
    projected: bool  # keys and values in place of h
    distances: Any = None  # the sinusoids of the distances so far, with their `longest` distance
    lengths: Tensor | None = None  # [B], tokens in the memory of each text, its latest; None: M of each
    longest: int = 0  # the limit of M
    batch_invariant: bool = False  # a text is computed to the same bits, whatever other texts are in the batch

    def layer(self, number: int) -> LayerMemory:
        """The memory of one layer."""
        return LayerMemory(self.layers[number], self.projected)

    def make_batch_invariant(self) -> Memory:
        """The same texts, each padded to the limit of M: sums over the keys then have the same number of terms."""
        layers = tuple(F.pad(layer, (0, 0, self.longest - layer.shape[1], 0)) for layer in self.layers)
        return self._replace(layers=layers, distances=None, lengths=self._all_lengths, batch_invariant=True)

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
        lengths = torch.cat([memory._all_lengths for memory in memories])
        computed = [memory.distances for memory in memories if memory.distances is not None]
        distances = max(computed, key=lambda each: each.longest, default=None)
        full = not self.batch_invariant and bool((lengths == most).all())
        return self._replace(layers=layers, distances=distances, lengths=None if full else lengths)

    def mask(self, tokens: int) -> Tensor | None:
        """[B, M + T] for a text of T `tokens`, False where a text has no key; None if all have all."""
        if self.lengths is None:
            return None
        positions = torch.arange(self.layers[0].shape[1] + tokens, device=self.lengths.device)
        return positions >= self.layers[0].shape[1] - self.lengths[:, None]

    @property
    def _all_lengths(self) -> Tensor:
        """[B], tokens in the memory of each text."""
        rows, most = self.layers[0].shape[:2]
        return torch.full((rows,), most, device=self.layers[0].device) if self.lengths is None else self.lengths


class LayerMemory(NamedTuple):
    """The memory of one layer: its inputs [B, M, D], or the keys and values [B, M, 2D] computed from them."""

    vectors: Tensor
    projected: bool


def prepend_memory(x: Tensor, memory: LayerMemory | None, *, project: nn.Module) -> tuple[Tensor, Tensor]:
    """The inputs [memory; x] of a layer, and their keys and values.

    If the memory has keys and values already, the inputs are x alone.
    """
    if memory is None:
        return x, project(x)
    if memory.projected:
        return x, torch.cat((memory.vectors, project(x)), 1)
    inputs = torch.cat((memory.vectors, x), 1)
    return inputs, project(inputs)


def update_memory(
    before: Memory | None, inputs: Sequence[Tensor], *, tokens: int, limit: int, distances: Any | None
) -> Memory:
    """The memory after `tokens` more tokens: the latest `limit` vectors of each layer, without gradient.

    `distances` are None in training: the `inputs` of each layer are then hidden vectors, else keys and values.
    """
    latest = tuple(each.detach()[:, max(0, each.shape[1] - limit) :] for each in inputs)
    memory = Memory(latest, projected=distances is not None, distances=distances, longest=limit)
    if before is None:
        return memory
    lengths = None if before.lengths is None else (before.lengths + tokens).clamp(max=limit)
    return memory._replace(lengths=lengths, batch_invariant=before.batch_invariant)


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
        """x [B, T, D] -> the output of the block, and the vectors from which its next memory is taken."""
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
        """Tokens in the memory; may be increased after training, because there is no longest distance."""
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
        """An empty memory."""
        width = self.config.width if self.training else 2 * self.config.width
        empty = self.embedding.weight.new_empty(batch_size, 0, width)
        return Memory((empty,) * self.config.layers, projected=not self.training, longest=self.memory)

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        """Each token attends to the whole memory and to the tokens up to itself."""
        x = self.dropout(self.embedding(tokens) * math.sqrt(self.config.width))
        distances = self._distances(tokens.shape[1], state)
        mask = None if state is None else state.mask(tokens.shape[1])
        inputs = []
        for i, block in enumerate(self.blocks):
            record_layer(x)
            x, layer_inputs = block(x, None if state is None else state.layer(i), distances, mask)
            inputs.append(layer_inputs)
        x = self.dropout(x)
        record_layer(x)
        known = None if self.training else distances
        return Output(x, update_memory(state, inputs, tokens=tokens.shape[1], limit=self.memory, distances=known))

    def _distances(self, length: int, state: State) -> Distances:
        """The distances from `length` tokens to all their keys; in evaluation those of the state, if long enough."""
        longest = length if state is None else length + state.layers[0].shape[1]
        if not self.training:
            known: Distances | None = None if state is None else state.distances
            if known is not None and known.longest >= longest:
                return known
            longest = 1 << longest.bit_length()  # enough for more tokens to come
        return Distances(longest, content_bias=self.content_bias, position_bias=self.position_bias)

    def depths(self) -> list[list[nn.Parameter]]:
        first, *above = self.blocks
        biases = (self.content_bias, self.position_bias)  # which all blocks share
        return by_depth(self, (self.embedding,), (first, *biases), *((block,) for block in above))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """2 per weight of a product, and per layer 4·S·D for content and values and 2·S·D for distances.

        S = memory_length + window is the number of keys. In training keys and values of the memory are computed again
        in each segment, which is counted, too. W_R R is computed once for the batch and is not counted.
        """
        width, layers = self.config.width, self.config.layers
        again = 2 * width**2 * memory_length / window
        matrices = layers * (4 * width**2 + 2 * width * self.config.inner + again)
        return 2.0 * matrices + 6.0 * (memory_length + window) * width * layers
