"""Dropout for recurrent layers that keeps their memory: on weights and on whole rows, drawn once for a segment.

Merity et al. 2018, sections 2 and 4.2 and 4.3. What is dropped stays dropped at all times of a segment: a mask that
changed from time to time would wipe out the state. Shapes: B batch, T time, D width, H width of the state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lmlab.layers.kernels.dropout_mask import check_probability, dropout_mask
from lmlab.layers.recurrent import LayerState, LSTMLayer


class WeightDroppedLSTM(LSTMLayer):
    """An LSTM layer in whose recurrent matrix U single weights are dropped (DropConnect, Wan et al. 2013).

    The mask is drawn once for all times of a segment and all its rows, so torch's fused kernel does the rest.
    """

    def __init__(self, width: int, hidden: int, *, dropout: float) -> None:
        super().__init__(width, hidden)
        check_probability(dropout)
        self.dropout = dropout

    def weights(self) -> list[Tensor]:
        """W, U, b and b' with U∘m / (1 − p), m ~ Bernoulli(1 − p) per weight; as they are when not training."""
        W, U, b, b_state = super().weights()
        if not self.training or self.dropout == 0:
            return [W, U, b, b_state]
        return [W, U * dropout_mask(tuple(U.shape), self.dropout, like=U), b, b_state]

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, c = state
        y, h, c = torch.lstm(x, (h[None], c[None]), self.weights(), True, 1, 0.0, self.training, False, True)
        return y, (h[0], c[0])


class EmbeddingDropout(nn.Module):
    """Whole words are dropped: wherever a token stands in a segment, its vector is zero (Gal & Ghahramani 2016).

    That is dropout on the rows of the embedding matrix, E∘m with one m per token; here the mask is applied to what was
    looked up, since few of the rows are.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        check_probability(p)
        self.p = p

    def forward(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        """tokens [B, T] -> vectors [B, T, D]."""
        vectors: Tensor = embedding(tokens)
        if not self.training or self.p == 0:
            return vectors
        kept = dropout_mask((embedding.num_embeddings,), self.p, like=vectors)
        return vectors * kept[tokens][..., None]

    def extra_repr(self) -> str:
        return f"p={self.p}"
