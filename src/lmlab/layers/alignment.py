"""Attention in a recurrent decoder: a soft alignment of each target position with the source.

    e_ti = score(s_t, h_i);  α_t = softmax(e_t);  a_t = Σ_i α_ti h_i

Bahdanau et al. 2015 (additive), Luong et al. 2015 (dot, multiplicative). Shapes: B sources, K texts in the writing for
each, T target positions, S source positions, H width of the decoder's state s, M width of the encoder's h.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lmlab.layers.kernels.linear import Linear
from lmlab.layers.watching import is_watched


class Alignment(nn.Module):
    """What the three have in common; each says what of the source it keeps as keys, and how it scores them.

    Watching `probabilities` gives the weights [B * K, 1, T, S].
    """

    def __init__(self, state: int, encoded: int) -> None:
        super().__init__()
        self.state, self.encoded = state, encoded  # H, M
        self.probabilities = nn.Identity()

    def keys(self, values: Tensor) -> Tensor:
        """What the scores need of the source h [B, S, M], made once."""
        return values

    def scores(self, s: Tensor, keys: Tensor) -> Tensor:
        """States s [B, N, H] of N target positions, keys [B, S, ·] -> e [B, N, S]."""
        return s @ keys.mT

    def flops(self, source: int, target: int) -> float:
        """Floating-point operations for a pair of these lengths: keys, scores, and the mean of the values."""
        return 2.0 * target * source * (self.state + self.encoded)

    def forward(self, s: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """s [B * K, T, H], the source's keys and values, mask [B, 1, S] False at padding -> a [B * K, T, M]."""
        return self.read(s, keys, values, mask)[0]

    def read(self, s: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same with the weights: a [B * K, T, M] and α [B * K, T, S]."""
        rows, length, _ = s.shape
        e = self.scores(s.reshape(len(values), -1, s.shape[-1]), keys)  # [B, K * T, S]
        weights = (e if mask is None else e.masked_fill(~mask, -math.inf)).softmax(-1)
        if is_watched(self.probabilities):
            weights = self.probabilities(weights.reshape(rows, 1, length, -1)).reshape(weights.shape)
        return (weights @ values).reshape(rows, length, -1), weights.reshape(rows, length, -1)


class DotAlignment(Alignment):
    """score(s, h) = sᵀh: nothing to learn, but the two must have one width."""

    def __init__(self, state: int, encoded: int) -> None:
        super().__init__(state, encoded)
        if state != encoded:
            raise ValueError(
                f"dot attention compares decoder states of width {state} with encoder states of width {encoded}: "
                f"make them equal, or use multiplicative attention"
            )


class MultiplicativeAlignment(Alignment):
    """score(s, h) = sᵀWh, with W h made once for each source."""

    def __init__(self, state: int, encoded: int) -> None:
        super().__init__(state, encoded)
        self.product = Linear(encoded, state, bias=False)

    def keys(self, values: Tensor) -> Tensor:
        product: Tensor = self.product(values)
        return product

    def flops(self, source: int, target: int) -> float:
        return super().flops(source, target) + 2.0 * source * self.encoded * self.state


class AdditiveAlignment(Alignment):
    """score(s, h) = vᵀ tanh(W₁ h + W₂ s): a net with one hidden layer, as wide as the decoder's state."""

    def __init__(self, state: int, encoded: int) -> None:
        super().__init__(state, encoded)
        self.from_source = Linear(encoded, state, bias=False)
        self.from_state = Linear(state, state, bias=False)
        self.v = nn.Parameter(torch.empty(state).uniform_(-1, 1) / math.sqrt(state))

    def keys(self, values: Tensor) -> Tensor:
        product: Tensor = self.from_source(values)
        return product

    def flops(self, source: int, target: int) -> float:
        return super().flops(source, target) + 2.0 * (source * self.encoded + target * self.state) * self.state

    def scores(self, s: Tensor, keys: Tensor) -> Tensor:
        return torch.tanh(keys[:, None] + self.from_state(s)[:, :, None]) @ self.v  # of [B, N, S, H]


ALIGNMENTS: dict[str, type[Alignment]] = {
    "dot": DotAlignment,
    "multiplicative": MultiplicativeAlignment,
    "additive": AdditiveAlignment,
}
