"""Attention by signed distance and by segment, of two streams over one set of keys (Yang et al. 2019, section 2).

Shapes: B batch, H heads, T tokens that ask for themselves, K places that ask without knowing their token, N = T + K,
M remembered tokens, S = M + T keys, D width, d = D / H.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmlab.layers.attention import head_width
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.positions import sinusoids
from lmlab.layers.watching import is_watched


class SignedDistances:
    """The sine waves R of the distances `longest`, …, 0, …, −`ahead` from a key to who asks; W_R R of each layer.

    While nothing is learnt W_R R is kept, so that reading a text token by token makes it once.
    """

    def __init__(self, longest: int, ahead: int, *, like: Tensor) -> None:
        self.longest, self.ahead = longest, ahead
        falling = torch.arange(longest, -ahead - 1, -1, device=like.device)
        self.waves = sinusoids(falling, like.shape[-1]).to(like.dtype)
        self._products: dict[nn.Module, Tensor] = {}

    def product(self, matrix: nn.Module, reach: int, ahead: int) -> Tensor:
        """W_R R [R, D] of the distances `reach`, …, 0, …, −`ahead`."""
        part = slice(self.longest - reach, self.longest + ahead + 1)
        if torch.is_grad_enabled():
            product: Tensor = matrix(self.waves[part])
            return product
        if matrix not in self._products:
            self._products[matrix] = matrix(self.waves)
        return self._products[matrix][part]


class Asking(NamedTuple):
    """Who asks whom: the same for all layers. First come T tokens, the last T of the S keys, then K places."""

    distances: SignedDistances
    reach: int  # the longest distance from who asks back to a key …
    ahead: int  # … and forward
    tokens: int  # T, 0 where only the places ask
    places: Tensor | None  # [B, K] or [1, K], counted as the keys are, from the first remembered one
    sees: Tensor | None  # [B, N, S] or [1, N, S], True where who asks may see the key; None where all is seen
    differs: Tensor | None  # [B, N, S], True where they are of different segments; None where all are of one
    backwards: Tensor | None = None  # [B], True where a text is read from its end: what is remembered comes after it

    def last(self) -> Asking:
        """The same, of the places alone."""
        cut = self.tokens
        sees = None if self.sees is None else self.sees[:, cut:]
        differs = None if self.differs is None else self.differs[:, cut:]
        return self._replace(tokens=0, sees=sees, differs=differs)


class TwoStreamAttention(nn.Module):
    """A_ij = (q_i + u)ᵀk_j + (q_i + v)ᵀ W_R R_{i−j} + (q_i + s)ᵀ e_ij; softmax(A/√d)V, mixed by Wᴼ.

    Transformer-XL's terms, with biases u and v of each layer's own, distances in both directions, and one more term:
    e_ij is one of two learnt vectors, for keys of the same segment and of others (section 2.5). Tokens and places use
    the same weights; what they may see is all that tells them apart. Who watches `probabilities` sees [B, H, N, S].
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width(width, heads)
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * width, bias=False)
        self.distance = Linear(width, width, bias=False)
        self.projection = Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # u
        self.position_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # v
        self.segment_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # s
        self.segments = nn.Parameter(torch.zeros(2, heads, self.head_width))  # e: the same, another
        self.probabilities = nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, keys_values: Tensor, asking: Asking) -> Tensor:
        """x [B, N, D] and the keys and values [B, S, 2D] -> [B, N, D].

        Heads go first, because W_R R is the same for the whole batch: one product per head serves all of it.
        """
        batch, count, width = x.shape
        span = keys_values.shape[1]
        q = self.query(x).view(batch, count, self.heads, self.head_width)
        k, v = keys_values.view(batch, span, 2, self.heads, self.head_width).permute(2, 3, 0, 1, 4).flatten(1, 2)
        by_content = (q + self.content_bias).permute(2, 0, 1, 3).reshape(-1, count, self.head_width)
        scale = 1 / math.sqrt(self.head_width)
        bias = self._by_position(q, asking, span)  # [HB, N, S]
        if asking.differs is not None:
            bias = bias + self._by_segment(q, asking.differs)
        scores = torch.baddbmm(bias, by_content, k.mT, beta=scale, alpha=scale)
        if asking.sees is not None:
            hidden = ~asking.sees
            scores.view(self.heads, -1, count, span).masked_fill_(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if is_watched(self.probabilities):
            seen = self.probabilities(weights.view(self.heads, batch, count, span).transpose(0, 1))
            weights = seen.transpose(0, 1).reshape(-1, count, span)
        z = torch.bmm(self.dropout(weights), v).view(self.heads, batch, count, self.head_width)
        z = z.permute(1, 2, 0, 3).reshape(batch, count, width)
        if asking.sees is not None and asking.places is not None:  # the first of all tokens has nothing to see
            z = z.masked_fill(~asking.sees.any(-1, keepdim=True), 0)
        mixed: Tensor = self.projection(z)
        return mixed

    def _by_position(self, q: Tensor, asking: Asking, span: int) -> Tensor:
        """(q_i + v)ᵀ W_R R_{i−j} [HB, N, S]: of each distance, then put where key j is."""
        batch, tokens = len(q), asking.tokens
        r = asking.distances.product(self.distance, asking.reach, asking.ahead)
        r = r.view(-1, self.heads, self.head_width).permute(1, 2, 0)  # [H, d, R]
        asked, parts = q + self.position_bias, []
        if asking.backwards is not None:
            return self._by_distance(asked, r).gather(2, self._either_way(asking, asking.backwards, span))
        if tokens:
            scores = self._by_distance(asked[:, :tokens], r)
            parts.append(align_from(scores, asking.reach - (span - tokens), span))
        if asking.places is not None:
            scores = self._by_distance(asked[:, tokens:], r)
            begin = asking.reach - asking.places  # where the distance to the first key stands
            index = begin[..., None] + torch.arange(span, device=q.device)  # [B, K, S]
            index = index.expand(self.heads, batch, -1, -1).flatten(0, 1).clamp(max=r.shape[2] - 1)
            parts.append(scores.gather(2, index))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _either_way(self, asking: Asking, backwards: Tensor, span: int) -> Tensor:
        """Where the distance of each key stands [HB, N, S], which is negative where a text is read backwards."""
        keys = torch.arange(span, device=backwards.device)
        asked = keys[None, span - asking.tokens :] if asking.tokens else keys[None, :0]
        places = asking.places if asking.places is not None else asked[:, :0]
        asked = torch.cat([part.expand(len(backwards), -1) for part in (asked, places)], 1)  # [B, N]
        distance = asked[..., None] - keys
        distance = torch.where(backwards[:, None, None], -distance, distance)
        return (asking.reach - distance).expand(self.heads, -1, -1, -1).flatten(0, 1)

    def _by_distance(self, asked: Tensor, r: Tensor) -> Tensor:
        """[B, N, H, d] and [H, d, R] -> [HB, N, R]."""
        flat = asked.permute(2, 0, 1, 3).reshape(self.heads, -1, self.head_width)
        return torch.bmm(flat, r).view(-1, asked.shape[1], r.shape[2])

    def _by_segment(self, q: Tensor, differs: Tensor) -> Tensor:
        """(q_i + s)ᵀ e_ij [HB, N, S]."""
        same, other = torch.einsum("bnhd,ehd->ehbn", q + self.segment_bias, self.segments)[..., None]
        return torch.where(differs, other, same).flatten(0, 1)


def align_from(scores: Tensor, first: int, span: int) -> Tensor:
    """Scores [N, T, R] by distance -> [N, T, S] by key, where row i begins at column `first` − i.

    In the row-major order of all scores row i begins at first + i·(R − 1), so the rows only have to be cut anew; where
    a row ends too early, because those keys come later than anyone may look, it goes on with anything.
    """
    rows, length, columns = scores.shape
    if length == 1:
        return scores[..., first : first + span]
    cut = scores.reshape(rows, -1)[:, first : first + length * (columns - 1)]
    return cut.view(rows, length, columns - 1)[..., :span]
