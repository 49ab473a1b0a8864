"""The Transformer: an encoder that reads the source at once, and a decoder that attends to it while it writes.

Vaswani et al. 2017, "Attention Is All You Need".

    x = √d E(source) + PE          y = √d E(target so far) + PE
    encoder, each block:           decoder, each block:
      x = LN(x + Attention(x))       y = LN(y + CausalAttention(y))
      x = LN(x + FeedForward(x))     y = LN(y + Attention(y to x))
                                     y = LN(y + FeedForward(y))
    P(next) = softmax(E y), with one E for source, target and output where they share a vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, cast

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention.beams import BeamAttention, BeamCache, Slots
from lmlab.layers.attention.multi_head import BidirectionalAttention, CrossAttention, Encoded
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.gelu import gelu
from lmlab.layers.kernels.packing import pack_tokens
from lmlab.layers.padding import NoPadding, Padding
from lmlab.layers.positions import Order, UnboundedSinusoidalPositions
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import record_layer, watching_layers
from lmlab.models.abilities import State
from lmlab.models.flops import row_lengths
from lmlab.models.model import EncoderDecoder, Heads, ModelConfig, Output, TokenModelConfig, by_depth
from lmlab.models.states import Decoding

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": gelu, "silu": F.silu}


class StacksConfig(TokenModelConfig):
    """Settings of every encoder-decoder of attention blocks."""

    source_vocabulary: int | None = Field(
        None, ge=2, description="vocabulary size of the source, if it has its own tokenizer; None: shared"
    )
    width: int = Field(256, ge=1, description="hidden size: width of the token vectors")
    heads: Heads = 4
    layers: int = Field(3, ge=1, description="encoder blocks")
    decoder_layers: int | None = Field(None, ge=1, description="decoder blocks; None: as many as the encoder has")
    inner: int = Field(1024, ge=1, description="width of the feed-forward layers (intermediate size)")
    norm: Literal["post", "pre"] = Field(
        "post", description="post-norm: LayerNorm after each residual sum; pre-norm: before each sublayer"
    )
    activation: Literal["relu", "gelu", "silu"] = Field(
        "relu", description="activation function of the feed-forward layers"
    )
    scale: bool = Field(True, description="multiply embeddings by the square root of the width")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="dropout probability, on the embeddings and on each sublayer's output"
    )
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability on the attention weights")
    bias: bool = Field(False, description="the output layer has a bias, as in Marian")
    start: int | None = Field(None, ge=0, description="id of the token that starts a target; None: the boundary token")

    def encoder_flops(self, tokens: int, pairs: int) -> float:
        """Of S tokens, with widths d and f (inner), and P pairs of a query and a key: S(8d² + 4df) + 4Pd per block.

        2 per weight of a product for each token that goes through it, and 4d for each pair.
        """
        d, f = float(self.width), self.inner
        return self.layers * (tokens * (8 * d * d + 4 * d * f) + 4 * pairs * d)

    def decoder_flops(self, source: int, target: int, pairs: int) -> float:
        """Of T target tokens, and the keys and values of S source tokens: T(12d² + 4df) + 4Sd² + 4Pd per block."""
        d, f = float(self.width), self.inner
        return (self.decoder_layers or self.layers) * (
            target * (12 * d * d + 4 * d * f) + 4 * source * d * d + 4 * pairs * d
        )


class TransformerConfig(StacksConfig):
    """The size of a Transformer."""

    position_order: Order = Field(
        "pairs", description="order of sine and cosine in the positional encoding; halves: as in Marian"
    )


Source = Tensor | Encoded
"""Keys and values of the sources for one block, or the encoded sources."""


class EncoderBlock(nn.Module):
    """x = LN(x + Attention(x)); x = LN(x + FeedForward(x))."""

    def __init__(self, config: StacksConfig) -> None:
        super().__init__()
        self.attention = BidirectionalAttention(config.width, config.heads, dropout=config.attention_dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.inner, activation=ACTIVATIONS[config.activation])
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, padding: Padding) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, padding)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class PreNormEncoderBlock(EncoderBlock):
    """x = x + Attention(LN(x)); x = x + FeedForward(LN(x))."""

    def forward(self, x: Tensor, padding: Padding) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), padding))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x


class DecoderBlock(nn.Module):
    """y = LN(y + CausalAttention(y)); y = LN(y + Attention(y to the source)); y = LN(y + FeedForward(y))."""

    def __init__(self, config: StacksConfig) -> None:
        super().__init__()
        self.attention = BeamAttention(config.width, config.heads, dropout=config.attention_dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.cross_attention = CrossAttention(config.width, config.heads, dropout=config.attention_dropout)
        self.cross_attention_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.inner, activation=ACTIVATIONS[config.activation])
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def forward(self, y: Tensor, padding: Padding, source: Source, mask: Tensor | None, slots: Slots | None) -> Tensor:
        y = self.attention_norm(y + self.dropout(self.attention(y, slots, padding)))
        y = self.cross_attention_norm(y + self.dropout(self.cross_attention(y, source, mask, padding)))
        y = self.feed_forward_norm(y + self.dropout(self.feed_forward(y)))
        return y


class PreNormDecoderBlock(DecoderBlock):
    """y = y + CausalAttention(LN(y)); y = y + Attention(LN(y) to the source); y = y + FeedForward(LN(y))."""

    def forward(self, y: Tensor, padding: Padding, source: Source, mask: Tensor | None, slots: Slots | None) -> Tensor:
        y = y + self.dropout(self.attention(self.attention_norm(y), slots, padding))
        y = y + self.dropout(self.cross_attention(self.cross_attention_norm(y), source, mask, padding))
        y = y + self.dropout(self.feed_forward(self.feed_forward_norm(y)))
        return y


class TransformerStack(nn.Module):
    """One side of the Transformer: positions, blocks, and the last norm that pre-norm blocks need."""

    def __init__(self, blocks: list[nn.Module], *, positions: nn.Module, config: StacksConfig) -> None:
        super().__init__()
        self.positions = positions
        self.embedding_norm: nn.Module = nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm: nn.Module = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def embed(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Vectors [B, T, D] of tokens, or packed, marked with the vectors of their positions."""
        return cast(Tensor, self.dropout(self.embedding_norm(vectors + positions)))


class EncodedSource(NamedTuple):
    """What the decoder knows of the sources."""

    keys_values: tuple[Tensor, ...]  # for each decoder block [B, H, 2, S, d]
    mask: Tensor | None  # [B, 1, 1, S], False at padding; None where there is none

    def begin(self, *, beams: int) -> Decoding:
        """The state of `beams` unwritten targets for each source."""
        keys_values = tuple(each.contiguous() for each in self.keys_values)
        batch, heads, _, _, head_width = keys_values[0].shape
        cache = BeamCache.empty(
            batch, beams, layers=len(keys_values), heads=heads, head_width=head_width, like=keys_values[0]
        )
        return Decoding(EncodedSource(keys_values, self.mask), cache)


class Transformer(EncoderDecoder):
    """Two stacks of blocks around one table of embeddings."""

    Config: ClassVar[type[ModelConfig]] = TransformerConfig
    BLOCKS: ClassVar[dict[str, tuple[type[nn.Module], type[nn.Module]]]] = {
        "post": (EncoderBlock, DecoderBlock),
        "pre": (PreNormEncoderBlock, PreNormDecoderBlock),
    }

    config: StacksConfig

    def __init__(self, config: StacksConfig) -> None:
        super().__init__()
        self.config = config
        reads, writes = self.BLOCKS[config.norm]
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.source_embedding: nn.Embedding | None = None
        if config.source_vocabulary is not None:
            self.source_embedding = nn.Embedding(config.source_vocabulary, config.width)
        self.encoder = self.stack([reads(config) for _ in range(config.layers)])
        self.decoder = self.stack([writes(config) for _ in range(config.decoder_layers or config.layers)])
        self.output = Softmax(config.width, config.vocabulary, bias=config.bias, tied=self.embedding)
        self.scale = math.sqrt(config.width) if config.scale else 1.0
        self.apply(initialise)

    def stack(self, blocks: list[nn.Module]) -> TransformerStack:
        """One side of the model."""
        order = cast(TransformerConfig, self.config).position_order
        return TransformerStack(
            blocks, positions=UnboundedSinusoidalPositions(self.config.width, order=order), config=self.config
        )

    def read(self, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """source [B, S], row i of lengths[i] tokens -> the encoder's vectors [B, S, D], zero at padding."""
        padding = pack_tokens(source, lengths)
        return padding.unpack(self._read(source, padding))

    def _read(self, source: Tensor, padding: Padding) -> Tensor:
        table = self.embedding if self.source_embedding is None else self.source_embedding
        positions = padding.position_vectors(self.encoder.positions(0, source.shape[1]))
        x = self.encoder.embed(table(padding.pack(source)) * self.scale, positions)
        for block in self.encoder.blocks:
            record_layer(x, unpack=padding.unpack)
            x = block(x, padding)
        x = cast(Tensor, self.encoder.norm(x))
        record_layer(x, unpack=padding.unpack)
        return x

    def layers(self, **inputs: Any) -> list[Tensor]:
        """Those of the encoder alone: no keys and values for a decoder are made."""
        source = {name: value for name, value in inputs.items() if name not in ("tokens", "target_lengths")}
        with watching_layers() as layers:
            self.read_source(**source)
        return layers

    def read_source(self, **inputs: Any) -> Encoded:
        """The encoder's vectors of `source` [B, S], row i of `lengths[i]` tokens, packed."""
        padding = pack_tokens(inputs["source"], inputs.get("lengths"))
        return Encoded(self._read(inputs["source"], padding), padding)

    def encode(self, **source: Any) -> EncodedSource:
        """The keys and values that the decoder's blocks take from the encoder, made once for each source."""
        x, padding = self.read_source(**source)
        keys_values = (cast(DecoderBlock, block).cross_attention.remember(x, padding) for block in self.decoder.blocks)
        return EncodedSource(tuple(keys_values), None if padding.mask is None else padding.mask[:, None, None])

    def forward(
        self,
        tokens: Tensor,
        *,
        target_lengths: Tensor | None = None,
        state: State = None,
        **source: Any,
    ) -> Output:
        """As in `EncoderDecoder`; with `target_lengths` [B], the padding of targets is not computed."""
        start = 0 if state is None else state.decoder.length
        padding = pack_tokens(tokens, target_lengths) if state is None else NoPadding()
        positions = padding.position_vectors(self.decoder.positions(start, tokens.shape[1]))
        y = self.decoder.embed(self.embedding(padding.pack(tokens)) * self.scale, positions)
        if state is None:
            if not source:
                raise ValueError("an encoder–decoder needs a source: give source=, or a state from begin()")
            encoded = self.read_source(**source)
            known: Sequence[Source] = [encoded] * len(self.decoder.blocks)
            mask = None if encoded.padding.mask is None else encoded.padding.mask[:, None, None]
            slots: list[Slots] | list[None] = [None] * len(self.decoder.blocks)
        else:
            known, mask = state.encoded
            cache, slots = state.decoder.advance(tokens.shape[1], sources=len(state.encoded.keys_values[0]))
            state = Decoding(state.encoded, cache)
        for block, each, own in zip(self.decoder.blocks, known, slots, strict=True):
            y = block(y, padding, each, mask, own)
        return Output(padding.unpack(self.decoder.norm(y)), state)

    def begin(self, encoded: EncodedSource, *, beams: int = 1) -> Decoding:
        return encoded.begin(beams=beams)

    def depths(self) -> list[list[nn.Parameter]]:
        """The decoder's blocks lie above those of the encoder, whose vectors they read."""
        stages = [[block] for side in (self.encoder, self.decoder) for block in side.blocks]
        stages[len(self.encoder.blocks) - 1].append(self.encoder.norm)
        stages[-1].append(self.decoder.norm)
        return by_depth(self, self.embedding_parts(), *stages)

    def embedding_parts(self) -> list[nn.Module | nn.Parameter | None]:
        """What is below the first blocks: embeddings and positions."""
        sides = (self.encoder, self.decoder)
        norms = [part for side in sides for part in (side.positions, side.embedding_norm)]
        return [self.embedding, self.source_embedding, *norms]

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """Of the encoder, which is what tasks read."""
        return self.config.encoder_flops(window, window * window) / window

    def pair_flops(self, source: int, target: int) -> float:
        S, T = source, target
        return self.config.encoder_flops(S, S * S) + self.config.decoder_flops(S, T, T * (T + S))

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """Attention computes padding (pack_tokens), the rest does not."""
        if "tokens" in inputs:
            return self.writing_flops(inputs)
        rows, longest = inputs["source"].shape
        return self.config.encoder_flops(sum(row_lengths(inputs, "source")), rows * longest**2)

    def writing_flops(self, inputs: Mapping[str, Tensor]) -> float:
        (rows, S), T = inputs["source"].shape, inputs["tokens"].shape[1]
        source, target = sum(row_lengths(inputs, "source")), sum(row_lengths(inputs, lengths="target_lengths"))
        return self.config.encoder_flops(source, rows * S * S) + self.config.decoder_flops(
            source, target, rows * T * (T + S)
        )


def initialise(module: nn.Module) -> None:
    """Products by Glorot & Bengio 2010, biases zero; embeddings of standard deviation 1/√d, so that scaling gives 1."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
