"""VisualBERT: BERT that reads the words of a text and the regions of a picture in one stream.

Li et al. 2019, "VisualBERT: A Simple and Performant Baseline for Vision and Language", section 3.2:

    words:    x_t = LN(E[w_t] + P[t] + S[0])                 as BERT
    regions:  y_r = LN(W [f_r; l_r] + b + P'[0] + S'[1])     f_r the vector of region r, l_r its edges and area
    [h_1 … h_T; h'_1 … h'_R] = Encoder([x_1 … x_T; y_1 … y_R])
    P(text describes picture) = softmax(W_m tanh(W_p h_[CLS] + b_p) + b_m)

Attention runs over words and regions alike, so that words find their regions. Published models have no l_r. Without
regions it is BERT. What it learns is in objectives/masked_captions.py. Shapes: B rows, T words, R regions, K positions
that are read, F width of a region's vector, D width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.kernels.linear import Linear
from lmlab.layers.kernels.packing import pack_by_mask
from lmlab.layers.padding import NoPadding, real_positions
from lmlab.layers.positions import LearnedPositions
from lmlab.layers.regions import LOCATION, check_regions, locate
from lmlab.models.abilities import Both, State
from lmlab.models.bert import Bert, BertConfig, initialise_scaled
from lmlab.models.flops import row_lengths
from lmlab.models.gpt import initialise
from lmlab.models.model import Filler, ModelConfig, Output, by_depth
from lmlab.models.settings import RegionModelConfig
from lmlab.models.vilbert import RegionReader

FULL = NoPadding()


class VisualBertConfig(RegionModelConfig, BertConfig):
    """The size of a VisualBERT."""

    PLACEHOLDERS: ClassVar[Mapping[str, object]] = {**BertConfig.PLACEHOLDERS, **RegionModelConfig.PLACEHOLDERS}

    locations: bool = Field(
        True, description="add the place and size of a region to its vector; published models do not"
    )

    @property
    def region_inputs(self) -> int:
        """Numbers of a region that are projected."""
        return self.region_width + (LOCATION if self.locations else 0)


class VisualBert(RegionReader, Bert):
    """BERT whose rows are the words of a text, then the regions of a picture."""

    Config: ClassVar[type[ModelConfig]] = VisualBertConfig
    measured_in_bf16: ClassVar[bool] = False

    config: VisualBertConfig

    def __init__(self, config: VisualBertConfig) -> None:
        super().__init__(config)
        self.region_projection = Linear(config.region_inputs, config.width)
        self.region_positions = LearnedPositions(config.window, config.width)
        self.region_segments = nn.Embedding(config.segments, config.width)
        for part in (self.region_projection, self.region_positions, self.region_segments, self.pooler):
            if part is not None:
                part.apply(initialise)
            if part is not None and config.initial == "scaled":
                part.apply(initialise_scaled)

    def offers(self) -> Iterable[object]:
        yield self
        if self.output is not None:
            yield Filler(self, self.output)

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
        """hidden [B, T + R, D]: words, then regions; with `at` [B, K] those at these positions, [B, K, D].

        regions [B, R, F] are the vectors of regions, boxes [B, R, 4] their edges; row i has `region_lengths[i]`.
        """
        if regions is None:
            return super().forward(tokens, segments=segments, lengths=lengths, positions=positions, at=at)
        words = self._enter(tokens, segments, positions, FULL)
        x = torch.cat([words, self._enter_regions(regions, boxes)], dim=1)
        real = [real_positions(tokens, lengths), real_positions(regions[..., 0], region_lengths)]
        padding = pack_by_mask(torch.cat(real, dim=1))
        return self._run_blocks(padding.pack(x), padding, at)

    def _enter_regions(self, regions: Tensor, boxes: Tensor | None) -> Tensor:
        check_regions(regions, boxes, width=self.config.region_width, located=self.config.locations)
        located = boxes is not None and self.config.locations
        vectors = torch.cat([regions, locate(cast(Tensor, boxes))], dim=-1) if located else regions
        kind = self.region_segments.weight[min(1, self.config.segments - 1)]
        projected = self.region_projection(vectors) + (self.region_positions(0, 1)[0] + kind)
        return cast(Tensor, self.dropout(self.embedding_norm(projected)))

    def read_both(self, *, at: Tensor | None = None, **inputs: Tensor) -> Both:
        """The vectors of words [B, K, D] at the positions `at`, or of all, and one of the text with its picture."""
        first = torch.zeros(len(inputs["tokens"]), 1, dtype=torch.long, device=inputs["tokens"].device)
        if at is not None:
            hidden = self(**inputs, at=torch.cat([first, at], dim=1)).hidden
            return Both(hidden[:, 1:], None, self.pool(hidden))
        hidden = self(**inputs).hidden
        words = inputs["tokens"].shape[1]
        return Both(hidden[:, :words], hidden[:, words:], self.pool(hidden))

    def match(self, joint: Tensor) -> Tensor:
        """Vectors of texts with pictures [B, D] -> scores [B, 2]: the text describes the picture (0), or not (1)."""
        if self.pair is None:
            raise ValueError("this model has no head for matching: set model.pairs=true, or objective.matching=false")
        return cast(Tensor, self.pair(joint))

    def match_flops(self) -> float:
        return sum(2.0 * part.weight.numel() for part in (self.pooler, self.pair) if part is not None)

    def depths(self) -> list[list[nn.Parameter]]:
        tables = (self.embedding, self.positions, self.segments, self.embedding_norm)
        regions = (self.region_projection, self.region_positions, self.region_segments)
        return by_depth(self, (*tables, *regions), *((block,) for block in self.blocks))

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """Of words and regions without padding; the projection of regions is computed for padding, too."""
        if "regions" not in inputs:
            return super().reading_flops(inputs, positions=positions)
        regions = row_lengths(inputs, "regions", lengths="region_lengths")
        lengths = Counter(words + others for words, others in zip(row_lengths(inputs), regions, strict=True))
        blocks = sum(
            count * length * self.body_flops(length, fraction=1.0 if positions is None else positions / length)
            for length, count in lengths.items()
        )
        return blocks + 2.0 * inputs["regions"].shape[:2].numel() * self.region_projection.weight.numel()
