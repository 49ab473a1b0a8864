"""VQA: a question is read by an LSTM, which then looks at the regions of a picture, once or several times.

Yang et al. 2016, "Stacked Attention Networks for Image Question Answering", section 3, with the regions of
models/captioner.py:

    v_1 … v_R = tanh(W_I [Encoder(picture); x_i; y_i])                      (2)
    q = the last state of the LSTM over the question                        (5–10)
    u_0 = q + V_0 Σ_i v_i / R                                               the whole picture
    p_k = softmax_i(wᵀ tanh(W₁ v_i + W₂ u_{k−1}))                           (18, 19)
    u_k = u_{k−1} + V_k Σ_i p_ki v_i                                        (20, 21)

P(answer | picture, question) = softmax(W ReLU(V u_K + c) + b) is the head of the task (tasks/visual_questions.py); the
paper's has no hidden layer, and a sum of vectors cannot be compared by a linear map ("is the star left of the cross?").
The paper has no V_k and no first look at the whole picture. Without V_k, what was found by different looks is added up
and cannot be told apart; and the weights of attention add up to 1, so they do not say how many regions match ("how many
circles are there?"). Nor has it the places x_i and y_i of a region, from −2 to 2: nothing in learnt vectors of places
says which of two is further left. In place of (18), `multiplicative` attention has softmax_i(uᵀ W v_i). Token vectors
start with a standard deviation of 1: additive attention compares a question with a region only where tanh is not
linear, so small vectors learn to attend late. Without attention the answer is read from u_0.

Shapes: B rows, R regions, T tokens, H width of a question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.alignment import ALIGNMENTS, Alignment
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.recurrent import LSTMLayer
from lmlab.layers.recurrent_encoder import RecurrentEncoder
from lmlab.layers.watching import record_layer, watching_layers
from lmlab.models.abilities import State
from lmlab.models.captioner import PictureRegions, RegionsConfig
from lmlab.models.flops import row_lengths
from lmlab.models.model import Model, ModelConfig, Output, by_depth

PLACE = 2
"""Numbers that say where a region is."""


class VqaConfig(RegionsConfig):
    """The size of a model of questions about pictures."""

    width: int = Field(64, ge=1, description="embedding size: width of the token vectors")
    hidden: int = Field(256, ge=1, description="hidden size: width of the question and of the regions")
    hops: int = Field(2, ge=1, le=16, description="how many times the question looks at the picture")


class Vqa(Model):
    """Encoders of a picture and of a question, and attention from the question to the regions."""

    Config: ClassVar[type[ModelConfig]] = VqaConfig
    main_input: ClassVar[str] = "pixels"

    config: VqaConfig
    places: Tensor

    def __init__(self, config: VqaConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = PictureRegions(config)
        self.projection = Linear(self.encoder.width + PLACE, config.hidden)
        self.register_buffer("places", place_regions(*self.grid), persistent=False)
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.question = RecurrentEncoder(
            LSTMLayer, width=config.width, hidden=config.hidden, layers=1, bidirectional=False
        )
        kind, hops = config.attention, 0 if config.attention == "none" else config.hops
        self.alignments = nn.ModuleList(ALIGNMENTS[kind](config.hidden, config.hidden) for _ in range(hops))
        self.values = nn.ModuleList(Linear(config.hidden, config.hidden, bias=False) for _ in range(1 + hops))
        self.dropout = Dropout(config.dropout)

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    @property
    def grid(self) -> tuple[int, int]:
        """The number of regions from top to bottom, and from left to right."""
        return self.encoder.grid

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        pixels = torch.zeros(rows, *self.encoder.shape, device=self.device)
        return {"pixels": pixels, "tokens": torch.zeros(rows, window, dtype=torch.long, device=self.device)}

    def forward(
        self,
        pixels: Tensor,
        *,
        tokens: Tensor,
        lengths: Tensor | None = None,
        pictures: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """Pictures [P, C, height, width] and questions [B, T], of lengths[i] tokens -> u_K [B, 1, H].

        Question i is about picture pictures[i]; without `pictures` there is one question about each.
        """
        a = self.encoder(pixels)
        v = torch.tanh(self.projection(torch.cat([a, self.places.expand(len(a), -1, -1)], dim=-1)))
        about = slice(None) if pictures is None else pictures
        _, ((u, _),) = self.question(self.dropout(self.embedding(tokens)), lengths)
        record_layer(u[:, None])
        u = u + self.values[0](v.mean(1))[about]
        record_layer(u[:, None])
        alignments = cast(Iterable[Alignment], self.alignments)
        for alignment, value in zip(alignments, self.values[1:], strict=True):
            u = u + value(look(alignment, u, v, pictures))
            record_layer(u[:, None])
        return Output(self.dropout(u)[:, None])

    def layers(self, **inputs: Any) -> list[Tensor]:
        """The question alone, with the whole picture, then after each look: [B, 1, H] each."""
        with watching_layers() as layers:
            self(**inputs)
        return [layer for layer in layers if layer.shape[1] == 1]

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(
            self, (self.embedding,), (self.encoder, self.question), (self.projection, self.alignments, self.values)
        )

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """Of one picture with a question of `window` tokens."""
        return self._picture_flops() + self._question_flops() + window * self.question.flops()

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        """A picture is read once for all questions about it, and padding of questions is not computed."""
        lengths = row_lengths(inputs)
        questions = len(lengths) * self._question_flops() + sum(lengths) * self.question.flops()
        return len(inputs["pixels"]) * self._picture_flops() + questions

    def _picture_flops(self) -> float:
        """The regions, their keys for each hop, and the map of their mean."""
        R, D, H = math.prod(self.grid), self.encoder.width + PLACE, self.config.hidden
        return self.encoder.flops() + 2.0 * R * H * (D + len(self.alignments) * H) + 2.0 * H * H

    def _question_flops(self) -> float:
        """The looks at a picture whose keys are known."""
        R, H = math.prod(self.grid), self.config.hidden
        looks = sum(each.flops(R, 1) for each in cast(Iterable[Alignment], self.alignments))
        return looks - 2.0 * (R - 1) * len(self.alignments) * H * H


def look(alignment: Alignment, u: Tensor, v: Tensor, pictures: Tensor | None) -> Tensor:
    """What questions u [B, H] find in the regions v [P, R, H] of their pictures, [B, H].

    All questions about a picture are computed at once, so that its regions are not copied for each of them.
    """
    keys = alignment.keys(v)
    if pictures is None:
        found: Tensor = alignment(u[:, None], keys, v)[:, 0]
        return found
    order = F.one_hot(pictures, len(v)).cumsum(0).gather(1, pictures[:, None])[:, 0] - 1  # of those about its picture
    asked = u.new_zeros(len(v), int(order.max()) + 1, u.shape[-1]).index_put((pictures, order), u)
    together: Tensor = alignment(asked, keys, v)[pictures, order]
    return together


def place_regions(rows: int, columns: int) -> Tensor:
    """The places of a grid of regions [rows * columns, PLACE]: to the right and down, from −2 at the edge to 2."""
    y, x = torch.meshgrid(torch.linspace(-2, 2, rows), torch.linspace(-2, 2, columns), indexing="ij")
    return torch.stack([x, y], dim=-1).flatten(0, 1)
