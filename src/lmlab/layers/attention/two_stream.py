"""Two-stream attention with relative positions (Yang et al. 2019, sections 2.3 to 2.5).

There are two kinds of queries: T tokens of the content stream, and K positions of the query stream, whose tokens are
predicted. Both attend to the same keys and values, those of the content stream, and use the same weights. They differ
in their masks only.

Masks are True where a query may attend to a key. Shapes: B batch, H heads, T tokens, K predicted positions, N queries
(T + K, or K alone), M tokens in the memory, S = M + T keys, R distances, D width, d = D / H.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import head_width
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.padding import gather_positions
from lmlab.layers.positions import sinusoids
from lmlab.layers.watching import is_watched


class SignedDistances:
    """The sinusoids R of the distances `longest`, …, 1, 0, −1, …, −`forward` from a query back to a key.

    Without gradients it also caches the product W_R R of each layer, so that reading a text token by token computes it
    once.
    """

    def __init__(self, longest: int, forward: int, *, like: Tensor) -> None:
        self.longest, self.forward = longest, forward
        distances = torch.arange(longest, -forward - 1, -1, device=like.device)
        self.sinusoids = sinusoids(distances, like.shape[-1]).to(like.dtype)
        self._products: dict[nn.Module, Tensor] = {}

    def project(self, matrix: nn.Module, *, back: int, forward: int) -> Tensor:
        """W_R R [R, D] of the distances `back`, …, 0, …, −`forward`, with W_R = `matrix`."""
        part = slice(self.longest - back, self.longest + forward + 1)
        if torch.is_grad_enabled():
            product: Tensor = matrix(self.sinusoids[part])
            return product
        if matrix not in self._products:
            self._products[matrix] = matrix(self.sinusoids)
        return self._products[matrix][part]


class AttentionContext(NamedTuple):
    """Where the queries are and which keys each may attend to; the same for all layers.

    The first queries are the `tokens` of the text, which are the last of the S keys. Then come the queries at
    `positions`. Positions are numbered as the keys are, from the first token in the memory.
    """

    distances: SignedDistances
    back: int  # the longest distance from a query back to an earlier key
    forward: int  # the longest distance from a query forward to a later key
    tokens: int  # T, or 0 if the queries are those at `positions` only
    positions: Tensor | None = None  # [B, K] or [1, K]
    mask: Tensor | None = None  # [B, N, S] or [1, N, S]; None: every query attends to every key
    other_segment: Tensor | None = None  # [B, N, S], True if query and key are in different segments; None: never
    backwards: Tensor | None = None  # [B], True for a row in reverse order: its memory is the text that follows it

    def query_stream(self) -> AttentionContext:
        """The context of the query stream alone, without the tokens of the content stream."""
        mask = None if self.mask is None else self.mask[:, self.tokens :]
        other_segment = None if self.other_segment is None else self.other_segment[:, self.tokens :]
        return self._replace(tokens=0, mask=mask, other_segment=other_segment)

    def at(self, positions: Tensor, *, memory: int) -> AttentionContext:
        """The context of the content stream at some `positions` [B, K] of the text, after a memory of M tokens."""
        rows = len(positions)
        mask = None if self.mask is None else _choose_queries(self.mask.expand(rows, -1, -1), positions)
        other_segment = None if self.other_segment is None else _choose_queries(self.other_segment, positions)
        return self._replace(tokens=0, positions=positions + memory, mask=mask, other_segment=other_segment)


def _choose_queries(mask: Tensor, positions: Tensor) -> Tensor:
    """A mask [B, T, S] at some positions [B, K] -> [B, K, S]."""
    return gather_positions(mask.to(torch.uint8), positions).bool()


class TwoStreamAttention(nn.Module):
    """softmax(A / √d) V, then the projection Wᴼ, for the queries of both streams.

        A_ij = (q_i + u)ᵀ k_j               content
             + (q_i + v)ᵀ W_R R_{i−j}       position: the distance from i to j, in either direction
             + (q_i + s)ᵀ e_ij              segment: e is one of two vectors, for the same segment or another one

    The first two terms are those of Transformer-XL, but each layer has its own biases u and v. The third is
    that of section 2.5. Watching `probabilities` gives the attention weights [B, H, N, S].
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width(width, heads)
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * width, bias=False)
        self.distance = Linear(width, width, bias=False)  # W_R
        self.projection = Linear(width, width, bias=False)  # Wᴼ
        self.content_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # u
        self.position_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # v
        self.segment_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # s
        self.segments = nn.Parameter(torch.zeros(2, heads, self.head_width))  # e: of the same segment, of another
        self.probabilities = nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, keys_values: Tensor, context: AttentionContext) -> Tensor:
        """Queries x [B, N, D], keys and values [B, S, 2D] -> [B, N, D].

        The heads are the first dimension, because W_R R is the same for the whole batch: one product per head is
        enough for all rows.
        """
        batch, count, width = x.shape
        span = keys_values.shape[1]
        q = self.query(x).view(batch, count, self.heads, self.head_width)
        k, v = keys_values.view(batch, span, 2, self.heads, self.head_width).permute(2, 3, 0, 1, 4).flatten(1, 2)

        scores = self._position_scores(q, context, span)  # [HB, N, S]
        if context.other_segment is not None:
            scores = scores + self._segment_scores(q, context.other_segment)
        q_u = (q + self.content_bias).permute(2, 0, 1, 3).reshape(-1, count, self.head_width)
        scale = 1 / math.sqrt(self.head_width)
        scores = torch.baddbmm(scores, q_u, k.mT, beta=scale, alpha=scale)  # A / √d
        if context.mask is not None:
            scores.view(self.heads, -1, count, span).masked_fill_(~context.mask, torch.finfo(scores.dtype).min)

        weights = scores.softmax(-1)
        if is_watched(self.probabilities):
            watched = self.probabilities(weights.view(self.heads, batch, count, span).transpose(0, 1))
            weights = watched.transpose(0, 1).reshape(-1, count, span)
        z = torch.bmm(self.dropout(weights), v).view(self.heads, batch, count, self.head_width)
        z = z.permute(1, 2, 0, 3).reshape(batch, count, width)
        if context.mask is not None and context.positions is not None:  # the first token in the order has no key
            z = z.masked_fill(~context.mask.any(-1, keepdim=True), 0)
        mixed: Tensor = self.projection(z)
        return mixed

    def _position_scores(self, q: Tensor, context: AttentionContext, span: int) -> Tensor:
        """(q_i + v)ᵀ W_R R_{i−j} [HB, N, S]: computed for each distance, then moved to the key at that distance."""
        tokens, q_v = context.tokens, q + self.position_bias
        r = context.distances.project(self.distance, back=context.back, forward=context.forward)
        r = r.view(-1, self.heads, self.head_width).permute(1, 2, 0)  # [H, d, R]
        if context.backwards is not None:
            columns = _distance_columns(context, context.backwards, span)
            return self._distance_scores(q_v, r).gather(2, self._for_heads(columns))
        parts = []
        if tokens:
            scores = self._distance_scores(q_v[:, :tokens], r)
            parts.append(align_from(scores, context.back - (span - tokens), span))
        if context.positions is not None:
            scores = self._distance_scores(q_v[:, tokens:], r)
            first = context.back - context.positions  # the column of the distance to the first key
            columns = first[..., None] + torch.arange(span, device=q.device)  # [B, K, S]
            columns = self._for_heads(columns.expand(len(q), -1, -1)).clamp(max=r.shape[2] - 1)
            parts.append(scores.gather(2, columns))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _distance_scores(self, queries: Tensor, r: Tensor) -> Tensor:
        """The products of queries [B, N, H, d] with the vectors of all distances [H, d, R] -> [HB, N, R]."""
        flat = queries.permute(2, 0, 1, 3).reshape(self.heads, -1, self.head_width)
        return torch.bmm(flat, r).view(-1, queries.shape[1], r.shape[2])

    def _segment_scores(self, q: Tensor, other_segment: Tensor) -> Tensor:
        """(q_i + s)ᵀ e_ij [HB, N, S]."""
        same, other = torch.einsum("bnhd,ehd->ehbn", q + self.segment_bias, self.segments)[..., None]
        return torch.where(other_segment, other, same).flatten(0, 1)

    def _for_heads(self, index: Tensor) -> Tensor:
        """An index [B, N, S], the same for every head -> [HB, N, S]."""
        return index.expand(self.heads, -1, -1, -1).flatten(0, 1)


def _distance_columns(context: AttentionContext, backwards: Tensor, span: int) -> Tensor:
    """The column of each key's distance [B, N, S], if some rows are in reverse order: their distances are negated."""
    keys = torch.arange(span, device=backwards.device)
    queries = keys[None, span - context.tokens :] if context.tokens else keys[None, :0]
    positions = queries[:, :0] if context.positions is None else context.positions
    queries = torch.cat([part.expand(len(backwards), -1) for part in (queries, positions)], 1)  # [B, N]
    distance = queries[..., None] - keys
    return context.back - torch.where(backwards[:, None, None], -distance, distance)


def align_from(scores: Tensor, first: int, span: int) -> Tensor:
    """Scores [·, T, R] by distance -> [·, T, S] by key; in row i the first key is at column `first` − i.

    In the memory of the tensor, row i of the result begins at element first + i·(R − 1). A view with rows of R − 1
    elements is therefore enough (the relative shift of Transformer-XL, appendix B). A row that ends too early continues
    with other numbers; those keys are masked.
    """
    rows, length, columns = scores.shape
    if length == 1:
        return scores[..., first : first + span]
    cut = scores.reshape(rows, -1)[:, first : first + length * (columns - 1)]
    return cut.view(rows, length, columns - 1)[..., :span]


def permutation_masks(order: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The content mask [B, T, T] and the query mask [B, K, T] of a factorization order [B, T].

    `order` is 0 for tokens that are given, and n for the n-th token that is predicted. The content stream of token i
    attends to tokens up to i in the order, i included; the query stream at the positions `at` [B, K] to those before.
    """
    given, rank = (order == 0)[:, None], order[:, None]
    itself = torch.eye(order.shape[1], dtype=torch.bool, device=order.device)
    content_mask = given | (rank < order[..., None]) | itself
    not_itself = torch.arange(order.shape[1], device=at.device) != at[..., None]
    query_mask = not_itself & (given | (rank < order.gather(1, at)[..., None]))
    return content_mask, query_mask


def add_memory(mask: Tensor | None, *, queries: int, memory: int, filled: Tensor | None) -> Tensor | None:
    """A mask over the text [B, N, T] -> over memory and text [B, N, S]; every query attends to the whole memory.

    `filled` [B, S] is False where a row's memory is shorter than M and has no key; None: all are full.
    """
    if mask is not None and memory:
        mask = torch.cat((mask.new_ones(len(mask), mask.shape[1], memory), mask), 2)
    if filled is None:
        return mask
    return filled[:, None].expand(-1, queries, -1) if mask is None else mask & filled[:, None]


def other_segments(segments: Tensor, positions: Tensor | None, *, memory: int) -> Tensor:
    """[B, N, S], True if query and key are in different segments; the tokens in the memory are in segment 0.

    `segments` [B, T] are those of the tokens, which are the first queries; `positions` [B, K] are further queries.
    """
    queries = segments if positions is None else torch.cat((segments, segments.gather(1, positions)), 1)
    keys = torch.cat((segments.new_zeros(len(segments), memory), segments), 1)
    return queries[..., None] != keys[:, None]
