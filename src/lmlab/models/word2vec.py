"""word2vec (Mikolov et al. 2013): one vector for each word, such that words predict the words around them.

    skip-gram   P(o is around c) = σ(v_c · u_o)
    cbow        P(c is here) = σ(h · u_c),  h = the mean of v_o over the words o around it

v are the vectors that are kept, u those of words as neighbours. Each word has one vector, whatever its context:
that is what the language models that came after it changed. It learns by `objectives/negative_sampling.py`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmlab.layers.padding import gather_positions
from lmlab.layers.watching import record_layer
from lmlab.models.abilities import State
from lmlab.models.model import EncoderModel, Output, TokenModelConfig, by_depth

DRAWN = 64
"""Drawn words that a row shares, by default (objectives/negative_sampling.py)."""


class Word2VecConfig(TokenModelConfig):
    """Settings of word2vec."""

    width: int = Field(default=100, ge=1, le=65536, description="width of the word vectors")


class Word2Vec(EncoderModel):
    """Two matrices: words, and words as neighbours."""

    Config = Word2VecConfig

    config: Word2VecConfig

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        nn.init.uniform_(self.embedding.weight, -0.5 / config.width, 0.5 / config.width)
        self.neighbours = nn.Embedding(config.vocabulary, config.width)
        nn.init.zeros_(self.neighbours.weight)

    def forward(
        self,
        tokens: Tensor,
        *,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        at: Tensor | None = None,
        state: State = None,
    ) -> Output:
        v = self.embedding(tokens)  # [B, T, D]
        if lengths is not None:
            v = v * (torch.arange(tokens.shape[1], device=v.device) < lengths[:, None])[..., None]
        record_layer(v)
        return Output(v if at is None else gather_positions(v, at))

    @property
    def width(self) -> int:
        return self.config.width

    def as_centres(self, tokens: Tensor) -> Tensor:
        """The vectors v [..., D] of tokens."""
        return _look_up(tokens, self.embedding)

    def as_neighbours(self, tokens: Tensor) -> Tensor:
        """The vectors u [..., D] of tokens as neighbours of others."""
        return _look_up(tokens, self.neighbours)

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.embedding,))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """None: reading is a look-up."""
        return 0.0

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """The products with all words of the row, for the neighbours, and with the negative samples."""
        return 2.0 * self.config.width * (window + DRAWN)


def _look_up(tokens: Tensor, table: nn.Embedding) -> Tensor:
    """Rows of a table; their gradient holds these rows alone, so that a step costs what a batch has, not the table."""
    if table.weight.device.type == "cpu" and tokens.dim() == 1 and not torch.compiler.is_compiling():
        return cast(Tensor, _Rows.apply(table.weight, tokens))  # type: ignore[no-untyped-call]
    return F.embedding(tokens, table.weight, sparse=table.weight.device.type != "mps")


class _Rows(torch.autograd.Function):
    """Rows [U, D] of a table, and their gradient as it comes."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.shape = table.shape
        ctx.save_for_backward(rows)
        return table.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(rows[None], gradient, ctx.shape, check_invariants=False), None
