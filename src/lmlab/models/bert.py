"""BERT: Transformer encoder blocks with bidirectional attention, trained to fill masks and predict the next sentence.

Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (on arXiv 2018).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import BidirectionalAttention
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.gelu import gelu, gelu_tanh
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.kernels.packing import pack_by_length
from lmlab.layers.padding import Padding, gather_positions
from lmlab.layers.positions import LearnedPositions, check_window
from lmlab.layers.softmax import MaskedHead
from lmlab.layers.watching import is_watched, layers_watched, record_layer
from lmlab.models.abilities import State
from lmlab.models.flops import row_lengths
from lmlab.models.gpt import initialise
from lmlab.models.model import EncoderModel, Filler, Heads, ModelConfig, Output, TokenModelConfig, by_depth

GELU: dict[str, Callable[[Tensor], Tensor]] = {"exact": gelu, "tanh": gelu_tanh}


class EncoderConfig(TokenModelConfig):
    """The size of an encoder."""

    width: int = Field(128, ge=1, description="hidden size: width of the token vectors")
    heads: Heads = 4
    layers: int = Field(4, ge=1, description="Transformer blocks")
    window: int = Field(128, ge=2, description="context length: the most tokens that the model reads at once")
    inner: int | None = Field(
        None, ge=1, description="width of the feed-forward layers (intermediate size); by default 4 times the width"
    )
    segments: int = Field(
        2, ge=1, description="number of segment types (token types): sentence A and B; 1: not distinguished"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability, on embeddings and each sublayer")
    attention_dropout: float | None = Field(
        None, ge=0, lt=1, description="dropout probability on attention weights; by default the same as dropout"
    )
    epsilon: float = Field(1e-12, gt=0, description="epsilon of LayerNorm")
    gelu: Literal["exact", "tanh"] = Field("exact", description="GELU: exact, x Φ(x), or the tanh approximation")
    direction: Literal["both", "left-to-right"] = Field(
        "both", description="attention direction: bidirectional, or left-to-right (causal), the paper's ablation"
    )
    initial: Literal["published", "scaled"] = Field(
        "published", description="weight initialisation: N(0, 0.02²), or N(0, 1 / inputs) for narrow models"
    )
    head: bool = Field(True, description="pre-training head (MLM; ELECTRA: detection); imported encoders may lack it")

    @property
    def inner_width(self) -> int:
        return 4 * self.width if self.inner is None else self.inner


class BertConfig(EncoderConfig):
    """The size of a BERT and the heads on it."""

    pooler: bool = Field(True, description="pooler: a dense tanh layer on the first token, [CLS], for the whole text")
    pairs: bool = Field(True, description="sentence-pair head (NSP/SOP); needs the pooler")

    @field_validator("pairs")
    @classmethod
    def _pairs_need_the_pooler(cls, pairs: bool, info: ValidationInfo) -> bool:
        if pairs and not info.data.get("pooler", True):
            raise ValueError("the sentence-pair head needs the pooler; set pooler = true as well, or pairs = false")
        return pairs


class Block(nn.Module):
    """z = LN(x + Attention(x)); h = LN(z + FeedForward(z)): GPT's block, but attention looks both ways."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = BidirectionalAttention(
            config.width,
            config.heads,
            dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
            causal=config.direction == "left-to-right",
        )
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.feed_forward = FeedForward(config.width, config.inner_width, activation=GELU[config.gelu])
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, padding: Padding, at: Tensor | None = None) -> Tensor:
        """With `at` [B, K] only the outputs at these positions, [B, K, D]; the others are only keys and values."""
        if at is None:
            x = self.attention_norm(x + self.dropout(self.attention(x, padding)))
        else:
            chosen = padding.gather_positions(x, at)
            x = self.attention_norm(chosen + self.dropout(self.attention.attend_from(chosen, x, padding)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


def initialise_scaled(module: nn.Module) -> None:
    """Initialise the weights of a layer from N(0, 1 / inputs), so that outputs are as large as inputs.

    A standard deviation of 0.02 suits widths near 768. At width 64, attention then adds almost nothing to a position's
    own vector, so there is almost no gradient at first. ELECTRA suffers most: detection compares the two.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))


class Encoder(EncoderModel):
    """x = LN(token + position + segment); then the blocks; at a mask P(w) = softmax(E LN(gelu(W h + b)) + c)_w."""

    config: EncoderConfig
    block: ClassVar[type[nn.Module]] = Block

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, self.embedding_width)
        self.positions = LearnedPositions(self.first_position + config.window, self.embedding_width)
        self.segments = nn.Embedding(config.segments, self.embedding_width)
        self.embedding_norm = nn.LayerNorm(self.embedding_width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self.block(config) for _ in range(self.distinct_blocks))
        self.output: MaskedHead | None = None
        if config.head:
            self.output = MaskedHead(
                config.width, tied=self.embedding, activation=GELU[config.gelu], epsilon=config.epsilon
            )
        self.apply(initialise)
        if config.initial == "scaled":
            self.apply(initialise_scaled)

    def offers(self) -> Iterable[object]:
        yield self
        if self.output is not None:
            yield Filler(self, self.output)

    @property
    def window(self) -> int:
        return self.config.window

    @property
    def embedding_width(self) -> int:
        """Width of the token, position and segment vectors."""
        return self.config.width

    @property
    def first_position(self) -> int:
        """The row of the position table that belongs to the first token."""
        return 0

    @property
    def distinct_blocks(self) -> int:
        """How many blocks have weights of their own."""
        return self.config.layers

    def embed(self, tokens: Tensor, segments: Tensor | None, positions: Tensor) -> Tensor:
        """Tokens and segments [...], and the vectors of their positions -> the vectors [..., D] for the first block.

        Where there is one kind of segment, or none is given, all tokens are of the first kind.
        """
        told_apart = segments is not None and self.config.segments > 1
        kinds = self.segments(segments) if told_apart else self.segments.weight[0]
        return cast(Tensor, self.dropout(self.embedding_norm(self.embedding(tokens) + (positions + kinds))))

    def forward(
        self,
        tokens: Tensor,
        *,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        positions: Tensor | None = None,
        at: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """`positions` [B, T] where they are not simply counted from 0, as of a text and its translation in one row.

        With `at` [B, K] the last block works at these positions alone; the vectors there are what the whole would give.
        """
        padding = pack_by_length(tokens, lengths)
        return self._run_blocks(self._enter(tokens, segments, positions, padding), padding, at)

    def _run_blocks(self, x: Tensor, padding: Padding, at: Tensor | None) -> Output:
        """What leaves the last block, from what enters the first: all of it, or at the places `at` [B, K]."""
        *blocks, last = self._stack()
        for block in blocks:
            record_layer(x, unpack=padding.unpack)
            x = block(x, padding)
        if at is not None and self.config.direction == "both" and not (is_watched() or layers_watched()):
            return Output(last(x, padding, at), None)
        record_layer(x, unpack=padding.unpack)
        hidden = padding.unpack(last(x, padding))
        record_layer(hidden)
        return Output(hidden if at is None else gather_positions(hidden, at), None)

    def _enter(self, tokens: Tensor, segments: Tensor | None, positions: Tensor | None, padding: Padding) -> Tensor:
        """What enters the first block, packed or not."""
        longest = tokens.shape[1]
        check_window(0, longest, self.config.window)
        table = self.positions(self.first_position, longest)
        vectors = padding.position_vectors(table) if positions is None else F.embedding(padding.pack(positions), table)
        segments = None if segments is None else padding.pack(segments)
        return self.embed(padding.pack(tokens), segments, vectors)

    def _stack(self) -> Iterator[nn.Module]:
        for layer in range(self.config.layers):
            yield self.blocks[layer * self.distinct_blocks // self.config.layers]

    def depths(self) -> list[list[nn.Parameter]]:
        tables = (self.embedding, self.positions, self.segments, self.embedding_norm)
        return by_depth(self, tables, *((block,) for block in self.blocks))

    def head_flops(self) -> float:
        return 0.0 if self.output is None else self.output.flops()

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """Padding is not computed (pack_by_length), but whatever positions are asked for."""
        return sum(
            count * length * self.body_flops(length, fraction=1.0 if positions is None else positions / length)
            for length, count in Counter(row_lengths(inputs)).items()
        )

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """2 per weight of a product, and 4·T·D per layer for QKᵀ and its product with V.

        The last layer computes keys and values (2·D² weights) of all tokens, and the rest only for the `fraction` of
        tokens whose vectors are needed.
        """
        width = self.config.width
        weights = sum(module.weight.numel() for module in self.blocks[0].modules() if isinstance(module, nn.Linear))
        layer = 2.0 * weights + 4.0 * window * width
        spared = layer - 4.0 * width**2 if self.config.direction == "both" else 0.0
        return self.config.layers * layer - (1 - fraction) * spared


class Bert(Encoder):
    """The encoder with a pooler, tanh(W h_[CLS] + b), from which another head predicts whether B follows A."""

    Config: ClassVar[type[ModelConfig]] = BertConfig
    measured_in_bf16: ClassVar[bool] = True

    config: BertConfig

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.pooler = Linear(config.width, config.width) if config.pooler else None
        self.pair = Linear(config.width, 2) if config.pairs else None
        for head in (self.pooler, self.pair):
            if head is not None:
                head.apply(initialise)

    def pool(self, hidden: Tensor) -> Tensor:
        """hidden [B, T, D] -> one vector for each text [B, D], from its first token."""
        if self.pooler is None:
            raise ValueError("this model has no pooler; train one with model.pooler = true, or use hidden[:, 0]")
        return torch.tanh(self.pooler(hidden[:, 0]))

    def offers(self) -> Iterable[object]:
        yield from super().offers()
        if self.pair is not None:
            yield SentencePairHead(self, self.pair)


@dataclass(frozen=True)
class SentencePairHead:
    """BERT with its sentence-pair head (`ScoresSentencePairs`)."""

    model: Bert
    head: nn.Module

    def score_pairs(self, hidden: Tensor) -> Tensor:
        """hidden [B, T, D] -> scores [B, 2]: sentence B is the right one (0), or not (1)."""
        return cast(Tensor, self.head(self.model.pool(hidden)))

    def pair_head_flops(self) -> float:
        linear = (module for part in (self.model.pooler, self.head) if part is not None for module in part.modules())
        return sum(2.0 * module.weight.numel() for module in linear if isinstance(module, nn.Linear))
