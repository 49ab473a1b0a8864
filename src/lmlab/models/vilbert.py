"""ViLBERT: BERT beside a stream for the regions of a picture; the two ask each other by co-attention.

Lu et al. 2019, "ViLBERT: Pretraining Task-Agnostic Visiolinguistic Representations for Vision-and-Language Tasks",
section 3.1 and figure 1:

    words:    x_t = LN(E[w_t] + P[t] + S[0]);  L − K blocks of BERT
    regions:  y_r = LN(W_f f_r + W_l l_r);     y_[IMG] the same of the mean vector and the whole picture
    K times:  z = LN(x + CoAttention(x, y)); x = LN(z + FeedForward(z)); x = Block(x);  the same for y from x
    P(text describes picture) = softmax(W_m (relu(W_w x_[CLS]) ⊙ relu(W_r y_[IMG])))

Both relu are those of the authors' code. The paper predicts the class of a masked region that a detector gives it; here
regions have no classes, and its vector is predicted instead. Without regions it is BERT. What it learns is in
objectives/masked_captions.py. Shapes: B rows, T words, R regions, K positions that are read, F width of a region's
vector, D and E widths of the streams, J width in which they meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal, Self, cast

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmlab.layers.attention.co_attention import CoAttention
from lmlab.layers.attention.multi_head import head_width
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.kernels.packing import pack_tokens
from lmlab.layers.padding import Padding, gather_positions
from lmlab.layers.regions import LOCATION, blank_regions, check_regions, locate
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import Both, State
from lmlab.models.bert import GELU, Block, Encoder, EncoderConfig, initialise_scaled
from lmlab.models.flops import row_lengths
from lmlab.models.gpt import initialise
from lmlab.models.model import ModelConfig, Output, by_depth
from lmlab.models.settings import RegionModelConfig


class VilbertConfig(RegionModelConfig, EncoderConfig):
    """The sizes of both streams."""

    PLACEHOLDERS: ClassVar[Mapping[str, object]] = {**EncoderConfig.PLACEHOLDERS, **RegionModelConfig.PLACEHOLDERS}

    direction: Literal["both"] = Field("both", description="attention direction: bidirectional")
    connections: int = Field(2, ge=1, description="co-attention blocks, each before the last blocks of both streams")
    picture_width: int = Field(128, ge=1, description="hidden size of the stream of regions")
    picture_heads: int = Field(4, ge=1, description="attention heads of the stream of regions")
    joint_width: int = Field(128, ge=1, description="width of co-attention and of the joint vector")
    joint_heads: int = Field(4, ge=1, description="heads of co-attention; must divide joint_width")

    @model_validator(mode="after")
    def _check_streams(self) -> Self:
        head_width(self.picture_width, self.picture_heads)
        head_width(self.joint_width, self.joint_heads)
        if self.connections > self.layers:
            raise ValueError(
                f"connections = {self.connections} is more than the {self.layers} layers of the words: "
                "each layer has at most one connection before it; lower it"
            )
        return self

    @property
    def stream(self) -> EncoderConfig:
        """The size of the blocks of the stream of regions; its feed-forward layers are as wide as its vectors."""
        width = self.picture_width
        own = {"width": width, "heads": self.picture_heads, "inner": width}
        names = ("vocabulary", "dropout", "attention_dropout", "epsilon", "gelu")
        return EncoderConfig.model_validate({**{name: getattr(self, name) for name in names}, **own})


class StreamLayer(nn.Module):
    """What one stream does with the answer a of the other: z = LN(x + a); h = LN(z + FeedForward(z))."""

    def __init__(self, width: int, inner: int, config: EncoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=config.epsilon)
        self.feed_forward = FeedForward(width, inner, activation=GELU[config.gelu])
        self.feed_forward_norm = nn.LayerNorm(width, eps=config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, answer: Tensor) -> Tensor:
        z = self.attention_norm(x + self.dropout(answer))
        return cast(Tensor, self.feed_forward_norm(z + self.dropout(self.feed_forward(z))))


class Connection(nn.Module):
    """A co-attention block over words x and regions y."""

    def __init__(self, config: VilbertConfig) -> None:
        super().__init__()
        dropout = config.dropout if config.attention_dropout is None else config.attention_dropout
        shared, heads = config.joint_width, config.joint_heads
        self.attention = CoAttention(config.width, config.picture_width, shared=shared, heads=heads, dropout=dropout)
        self.words = StreamLayer(config.width, config.inner_width, config)
        self.regions = StreamLayer(config.picture_width, config.stream.inner_width, config)

    def forward(self, x: Tensor, y: Tensor, padding: Padding, other: Padding) -> tuple[Tensor, Tensor]:
        to_words, to_regions = self.attention(x, y, padding, other)
        return self.words(x, to_words), self.regions(y, to_regions)


class RegionHead(nn.Module):
    """The predicted vector of a masked region: W LN(gelu(V h + b)) + c."""

    def __init__(self, width: int, region_width: int, epsilon: float) -> None:
        super().__init__()
        self.transform = Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.output = Linear(width, region_width)

    def forward(self, hidden: Tensor) -> Tensor:
        return cast(Tensor, self.output(self.norm(F.gelu(self.transform(hidden)))))


class Vilbert(Encoder):
    """BERT's encoder for words, blocks of the same kind for regions, and connections between them."""

    Config: ClassVar[type[ModelConfig]] = VilbertConfig

    config: VilbertConfig

    def __init__(self, config: VilbertConfig) -> None:
        super().__init__(config)
        width = config.picture_width
        self.region_projection = Linear(config.region_width, width)
        self.location_projection = Linear(LOCATION, width)
        self.region_norm = nn.LayerNorm(width, eps=config.epsilon)
        self.region_blocks = nn.ModuleList(Block(config.stream) for _ in range(config.connections))
        self.connections = nn.ModuleList(Connection(config) for _ in range(config.connections))
        self.word_pooler = Linear(config.width, config.joint_width)
        self.region_pooler = Linear(width, config.joint_width)
        self.pair = Linear(config.joint_width, 2)
        self.region_output = RegionHead(width, config.region_width, config.epsilon)
        for part in self._own():
            part.apply(initialise)
            if config.initial == "scaled":
                part.apply(initialise_scaled)
        if config.initial == "scaled":  # with biases of zero, the relu of both poolers are soon zero for all inputs
            nn.init.ones_(self.word_pooler.bias)
            nn.init.ones_(self.region_pooler.bias)

    def _own(self) -> Iterable[nn.Module]:
        """What it has besides BERT's encoder."""
        yield from (self.region_projection, self.location_projection, self.region_norm)
        yield from (self.region_blocks, self.connections)
        yield from (self.word_pooler, self.region_pooler, self.pair, self.region_output)

    def forward(
        self,
        tokens: Tensor,
        *,
        regions: Tensor | None = None,
        boxes: Tensor | None = None,
        region_lengths: Tensor | None = None,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        positions: Tensor | None = None,
        at: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """The vectors of the words: hidden [B, T, D], or [B, K, D] at the positions `at`.

        regions [B, R, F] are the vectors of regions, boxes [B, R, 4] their edges; row i has `region_lengths[i]`.
        """
        if regions is None:
            return super().forward(tokens, segments=segments, lengths=lengths, positions=positions, at=at)
        padding = pack_tokens(tokens, lengths)
        x = self._enter(tokens, segments, positions, padding)
        words, _ = self._run_streams(x, padding, regions, boxes, region_lengths)
        return Output(words if at is None else gather_positions(words, at))

    def _run_streams(
        self, x: Tensor, padding: Padding, regions: Tensor, boxes: Tensor | None, region_lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The vectors of words [B, T, D], and of regions [B, 1 + R, E]; the first of these is that of [IMG]."""
        y, other = self._enter_regions(regions, boxes, region_lengths)
        alone = self.config.layers - self.config.connections
        for block in self.blocks[:alone]:
            record_layer(x, unpack=padding.unpack)
            x = block(x, padding)
        for connection, block, region_block in zip(
            self.connections, self.blocks[alone:], self.region_blocks, strict=True
        ):
            record_layer(x, unpack=padding.unpack)
            x, y = connection(x, y, padding, other)
            x, y = block(x, padding), region_block(y, other)
        words = padding.unpack(x)
        record_layer(words)
        return words, other.unpack(y)

    def _enter_regions(self, regions: Tensor, boxes: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Padding]:
        """Regions after [IMG], which is the mean of their vectors at the place of the whole picture."""
        check_regions(regions, boxes, width=self.config.region_width, located=True)
        assert boxes is not None
        padding = pack_tokens(regions[..., 0], lengths)
        count = regions.shape[1] if padding.mask is None else padding.mask.sum(1)[:, None, None]
        real = regions if padding.mask is None else regions * padding.mask[..., None]
        whole = boxes.new_tensor([0.0, 0.0, 1.0, 1.0]).expand(len(boxes), 1, 4)
        vectors = torch.cat([real.sum(1, keepdim=True) / count, regions], dim=1)
        padding = pack_tokens(vectors[..., 0], None if lengths is None else lengths + 1)
        locations = locate(torch.cat([whole, boxes], dim=1))
        y = self.region_projection(padding.pack(vectors)) + self.location_projection(padding.pack(locations))
        return self.dropout(self.region_norm(y)), padding

    def read_both(self, *, at: Tensor | None = None, **inputs: Tensor) -> Both:
        """The vectors of words [B, K, D] at the positions `at`, or of all, of regions, and one of both together."""
        tokens = inputs["tokens"]
        padding = pack_tokens(tokens, inputs.get("lengths"))
        x = self._enter(tokens, inputs.get("segments"), inputs.get("positions"), padding)
        words, regions = self._run_streams(
            x, padding, inputs["regions"], inputs.get("boxes"), inputs.get("region_lengths")
        )
        joint = F.relu(self.word_pooler(words[:, 0])) * F.relu(self.region_pooler(regions[:, 0]))
        return Both(words if at is None else gather_positions(words, at), regions[:, 1:], self.dropout(joint))

    def match(self, joint: Tensor) -> Tensor:
        """Joint vectors [B, J] -> scores [B, 2]: the text describes the picture (0), or not (1)."""
        return cast(Tensor, self.pair(joint))

    def predict_regions(self, hidden: Tensor) -> Tensor:
        """Vectors [N, E] of regions -> predicted vectors [N, F]."""
        return cast(Tensor, self.region_output(hidden))

    def match_flops(self) -> float:
        return sum(2.0 * part.weight.numel() for part in (self.word_pooler, self.region_pooler, self.pair))

    def region_flops(self) -> float:
        return _products(self.region_output)

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        regions = blank_regions(rows, self.config.region_width, device=self.device)
        return {**super().blank_inputs(rows, window), **regions}

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """Per token of a text with the usual number of regions."""
        row = self.reading_flops(self.blank_inputs(1, window), positions=1 + round(predicted * window))
        return (row + self.match_flops()) / window + predicted * self.head_flops()

    def depths(self) -> list[list[nn.Parameter]]:
        """A connection belongs to the block of the words that follows it, and so does the block of the regions."""
        tables = (self.embedding, self.positions, self.segments, self.embedding_norm)
        entry = (self.region_projection, self.location_projection, self.region_norm)
        alone = self.config.layers - self.config.connections
        connected = zip(self.connections, self.blocks[alone:], self.region_blocks, strict=True)
        return by_depth(self, (*tables, *entry), *((block,) for block in self.blocks[:alone]), *connected)

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """Attention is computed over padding, what works on each place alone is not (pack_tokens)."""
        if "regions" not in inputs:
            return super().reading_flops(inputs, positions=positions)
        rows, words = inputs["tokens"].shape
        regions = 1 + inputs["regions"].shape[1]
        config = self.config
        per_word = _products(self.blocks) + sum(_words_of(each) for each in self._connections())
        per_region = _products(self.region_blocks) + sum(_regions_of(each) for each in self._connections())
        per_region += _products(self.region_projection) + _products(self.location_projection)
        real_words = sum(row_lengths(inputs))
        real_regions = rows + sum(row_lengths(inputs, "regions", lengths="region_lengths"))
        own = 4.0 * (config.layers * words**2 * config.width + config.connections * regions**2 * config.picture_width)
        crossed = 8.0 * config.connections * words * regions * config.joint_width
        return per_word * real_words + per_region * real_regions + rows * (own + crossed)

    def _connections(self) -> Iterable[Connection]:
        return (cast(Connection, each) for each in self.connections)


def _products(part: nn.Module) -> float:
    """Floating-point operations of the matrices of a part for one vector."""
    return sum(2.0 * each.weight.numel() for each in part.modules() if isinstance(each, nn.Linear))


def _words_of(connection: Connection) -> float:
    return _products(connection.attention.first) + _products(connection.words)


def _regions_of(connection: Connection) -> float:
    return _products(connection.attention.second) + _products(connection.regions)
