"""Attention by relative position: Transformer-XL's (Dai et al. 2019), and XLNet's two streams (Yang et al. 2019).

Masks are True where a key may be seen. Shapes: B batch, H heads, T tokens, K places whose token is predicted,
N = T + K, M remembered tokens, S = M + T keys, R distances, D width, d = D / H.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lmlab.layers.attention import causal_mask, head_width
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.padding import has_padding
from lmlab.layers.positions import sinusoids
from lmlab.layers.watching import is_watched


class Distances:
    """What all layers share: the sine waves R of the distances `longest`, …, 1, 0 and the biases u and v.

    While nothing is learnt it also keeps W_R R of each layer, so that reading a text token by token makes it once.
    """

    def __init__(self, longest: int, *, content_bias: Tensor, position_bias: Tensor) -> None:
        self.longest = longest
        self.content_bias, self.position_bias = content_bias, position_bias  # u, v, each [H, d]
        falling = torch.arange(longest, -1, -1, device=content_bias.device)
        self.waves = sinusoids(falling, content_bias.numel())  # [longest + 1, D]
        self._products: dict[nn.Module, Tensor] = {}

    def product(self, matrix: nn.Module, count: int) -> Tensor:
        """W_R R [count, D] of the `count` shortest distances, the longest of them first."""
        if torch.is_grad_enabled():
            product: Tensor = matrix(self.waves[-count:])
            return product
        if matrix not in self._products:
            self._products[matrix] = matrix(self.waves)
        return self._products[matrix][-count:]


class RelativeAttention(nn.Module):
    """A_ij = q_iᵀk_j + q_iᵀ W_R R_{i−j} + uᵀk_j + vᵀ W_R R_{i−j}; softmax(A/√d)V, mixed by Wᴼ.

    The four terms of the paper: content, content-dependent position, global content bias, global position bias. The
    query is the current token's only; keys and values are the memory's too. No product has a bias of its own. Who
    watches `probabilities` sees the weights [B, H, T, S].
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width(width, heads)
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * width, bias=False)
        self.distance = Linear(width, width, bias=False)
        self.projection = Linear(width, width, bias=False)
        self.probabilities = nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, keys_values: Tensor, distances: Distances, mask: Tensor | None = None) -> Tensor:
        """x [B, T, D] and the keys and values [B, S, 2D] of memory and x -> [B, T, D]; mask [B, S] False where none is.

        Heads go first, because W_R R is the same for the whole batch: one product per head serves all of it.
        """
        batch, length, width = x.shape
        span = keys_values.shape[1]
        q = self.query(x).view(batch, length, self.heads, self.head_width)
        k, v = keys_values.view(batch, span, 2, self.heads, self.head_width).permute(2, 3, 0, 1, 4).flatten(1, 2)
        r = distances.product(self.distance, span + 1).view(span + 1, self.heads, self.head_width)
        by_content = (q + distances.content_bias).permute(2, 0, 1, 3).reshape(-1, length, self.head_width)
        by_position = (q + distances.position_bias).permute(2, 0, 1, 3).reshape(self.heads, -1, self.head_width)
        position = align(torch.bmm(by_position, r.permute(1, 2, 0)).view(-1, length, span + 1))  # [HB, T, S]
        scale = 1 / math.sqrt(self.head_width)
        scores = torch.baddbmm(position, by_content, k.mT, beta=scale, alpha=scale)
        if length > 1:
            scores.masked_fill_(~causal_mask(length, span, device=x.device), -math.inf)
        if mask is not None:
            scores.view(self.heads, batch, length, span).masked_fill_(~mask[:, None], -math.inf)
        weights = scores.softmax(-1)
        if is_watched(self.probabilities):
            seen = self.probabilities(weights.view(self.heads, batch, length, span).transpose(0, 1))
            weights = seen.transpose(0, 1).reshape(-1, length, span)
        z = torch.bmm(self.dropout(weights), v).view(self.heads, batch, length, self.head_width)
        mixed: Tensor = self.projection(z.permute(1, 2, 0, 3).reshape(batch, length, width))
        return mixed


def align(scores: Tensor) -> Tensor:
    """Scores [N, T, S + 1] by distance, S down to 0, -> scores [N, T, S] by key; where the key comes later, anything.

    Query i is at place S − T + i and key j at distance S − T + i − j, which is column T − i + j. Row i therefore starts
    T − i columns in: in the row-major order of all scores that is T + i·S, so the rows only have to be cut anew (the
    relative shift of appendix B, here without a copy).
    """
    rows, length, columns = scores.shape
    return scores.reshape(rows, -1)[:, length:].view(rows, length, columns - 1)


class SignedDistances:
    """The sine waves R of the distances `longest`, …, 0, …, −`ahead` from a key to a query; W_R R of each layer.

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


class AttentionContext(NamedTuple):
    """Which queries attend to which keys, the same for all layers.

    The queries are T tokens, which are the last T of the S keys, and then K places whose token is predicted.
    """

    distances: SignedDistances
    reach: int  # the longest distance from a query back to a key …
    ahead: int  # … and forward
    tokens: int  # T, 0 where only the places are queries
    places: Tensor | None  # [B, K] or [1, K], counted as the keys are, from the first remembered one
    mask: Tensor | None  # [B, N, S] or [1, N, S], True where a query may attend to a key; None: everywhere
    other_segment: Tensor | None  # [B, N, S], True where query and key are of different segments; None: nowhere
    backwards: Tensor | None = None  # [B], True where a text is read from its end: what is remembered comes after it

    def of_places(self) -> AttentionContext:
        """The same with the places as the only queries."""
        mask = None if self.mask is None else self.mask[:, self.tokens :]
        other_segment = None if self.other_segment is None else self.other_segment[:, self.tokens :]
        return self._replace(tokens=0, mask=mask, other_segment=other_segment)


class TwoStreamAttention(nn.Module):
    """A_ij = (q_i + u)ᵀk_j + (q_i + v)ᵀ W_R R_{i−j} + (q_i + s)ᵀ e_ij; softmax(A/√d)V, mixed by Wᴼ.

    Transformer-XL's terms, with biases u and v of each layer's own, distances in both directions, and one more term:
    e_ij is one of two learnt vectors, for keys of the same segment and of others (section 2.5). Tokens and places use
    the same weights; what they may see is all that tells them apart. Watching `probabilities` gives [B, H, N, S].
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

    def forward(self, x: Tensor, keys_values: Tensor, context: AttentionContext) -> Tensor:
        """x [B, N, D] and the keys and values [B, S, 2D] -> [B, N, D].

        Heads go first, because W_R R is the same for the whole batch: one product per head serves all of it.
        """
        batch, count, width = x.shape
        span = keys_values.shape[1]
        q = self.query(x).view(batch, count, self.heads, self.head_width)
        k, v = keys_values.view(batch, span, 2, self.heads, self.head_width).permute(2, 3, 0, 1, 4).flatten(1, 2)
        by_content = (q + self.content_bias).permute(2, 0, 1, 3).reshape(-1, count, self.head_width)
        scale = 1 / math.sqrt(self.head_width)
        bias = self._by_position(q, context, span)  # [HB, N, S]
        if context.other_segment is not None:
            bias = bias + self._by_segment(q, context.other_segment)
        scores = torch.baddbmm(bias, by_content, k.mT, beta=scale, alpha=scale)
        if context.mask is not None:
            hidden = ~context.mask
            scores.view(self.heads, -1, count, span).masked_fill_(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if is_watched(self.probabilities):
            seen = self.probabilities(weights.view(self.heads, batch, count, span).transpose(0, 1))
            weights = seen.transpose(0, 1).reshape(-1, count, span)
        z = torch.bmm(self.dropout(weights), v).view(self.heads, batch, count, self.head_width)
        z = z.permute(1, 2, 0, 3).reshape(batch, count, width)
        if context.mask is not None and context.places is not None:  # the first of all tokens has nothing to see
            z = z.masked_fill(~context.mask.any(-1, keepdim=True), 0)
        mixed: Tensor = self.projection(z)
        return mixed

    def _by_position(self, q: Tensor, context: AttentionContext, span: int) -> Tensor:
        """(q_i + v)ᵀ W_R R_{i−j} [HB, N, S]: of each distance, then put where key j is."""
        batch, tokens = len(q), context.tokens
        r = context.distances.product(self.distance, context.reach, context.ahead)
        r = r.view(-1, self.heads, self.head_width).permute(1, 2, 0)  # [H, d, R]
        asked, parts = q + self.position_bias, []
        if context.backwards is not None:
            return self._by_distance(asked, r).gather(2, self._either_way(context, context.backwards, span))
        if tokens:
            scores = self._by_distance(asked[:, :tokens], r)
            parts.append(align_from(scores, context.reach - (span - tokens), span))
        if context.places is not None:
            scores = self._by_distance(asked[:, tokens:], r)
            begin = context.reach - context.places  # where the distance to the first key stands
            index = begin[..., None] + torch.arange(span, device=q.device)  # [B, K, S]
            index = index.expand(self.heads, batch, -1, -1).flatten(0, 1).clamp(max=r.shape[2] - 1)
            parts.append(scores.gather(2, index))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _either_way(self, context: AttentionContext, backwards: Tensor, span: int) -> Tensor:
        """Where the distance of each key stands [HB, N, S], which is negative where a text is read backwards."""
        keys = torch.arange(span, device=backwards.device)
        asked = keys[None, span - context.tokens :] if context.tokens else keys[None, :0]
        places = context.places if context.places is not None else asked[:, :0]
        asked = torch.cat([part.expand(len(backwards), -1) for part in (asked, places)], 1)  # [B, N]
        distance = asked[..., None] - keys
        distance = torch.where(backwards[:, None, None], -distance, distance)
        return (context.reach - distance).expand(self.heads, -1, -1, -1).flatten(0, 1)

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


def permutation_masks(order: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The content mask [B, T, T] and the query mask [B, K, T] of an order: what tokens and places may attend to."""
    given, before = (order == 0)[:, None], order[:, None]
    itself = torch.eye(order.shape[1], dtype=torch.bool, device=order.device)
    sees = given | (before < order[..., None]) | itself
    other = torch.arange(order.shape[1], device=at.device) != at[..., None]
    return sees, other & (given | (before < order.gather(1, at)[..., None]))


def real_tokens(tokens: Tensor, lengths: Tensor | None) -> Tensor | None:
    """[B, T], False at padding; None where there is none."""
    batch, longest = tokens.shape
    if not has_padding(lengths, batch, longest):
        return None
    return torch.arange(longest, device=tokens.device) < cast(Tensor, lengths)[:, None]


def join_masks(
    content_mask: Tensor | None, query_mask: Tensor | None, *, like: Tensor, places: int, remembered: Tensor | int
) -> Tensor | None:
    """The mask [B, N, S] of all queries, tokens [B, T] and `places` more, over all keys; None where all is seen.

    The masks [B, T, T] and [B, K, T] are over the text. Before it come the remembered keys, which all queries see: so
    many, or those that are True in `remembered` [B, S].
    """
    if content_mask is None and query_mask is None and isinstance(remembered, int):
        return None
    length = like.shape[1]
    parts = [
        like.new_ones(1, count, length, dtype=torch.bool) if part is None else part
        for part, count in ((content_mask, length), (query_mask, places))
    ]
    most = max(len(each) for each in parts)
    mask = torch.cat([each.expand(most, -1, -1) for each in parts], 1)
    before = remembered if isinstance(remembered, int) else remembered.shape[1] - length
    if before:
        mask = torch.cat((mask.new_ones(len(mask), mask.shape[1], before), mask), 2)
    return mask if isinstance(remembered, int) else mask & remembered[:, None]


def other_segments(segments: Tensor, places: Tensor | None, *, before: int) -> Tensor:
    """[B, N, S], True where a query and a key are of different segments [B, T]; what is remembered is of segment 0."""
    queries = segments if places is None else torch.cat((segments, segments.gather(1, places)), 1)
    keys = torch.cat((segments.new_zeros(len(segments), before), segments), 1)
    return queries[..., None] != keys[:, None]
