"""Who may see whom where tokens are predicted in any order, after a memory (Yang et al. 2019, section 2.3).

Masks are True where a key may be seen. Shapes: B batch, T tokens of the text, K places that are asked for, N = T + K,
M remembered tokens, S = M + T keys.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from lmlab.layers.padding import has_padding


def visible(order: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Which tokens each token [B, T, T] and each place [B, K, T] may see in an order: the permutation masks."""
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
    sees: Tensor | None,
    seen: Tensor | None,
    *,
    like: Tensor,
    places: Tensor | None,
    before: int,
    remembered: Tensor | None,
) -> Tensor | None:
    """The mask [B, N, S] of who asks, tokens [B, T] and places [B, K], over all keys; None where all is seen.

    `sees` [B, T, T] and `seen` [B, K, T] are over the text. The `before` keys that are remembered are seen by all, but
    for those that `remembered` [B, S] leaves out.
    """
    if sees is None and seen is None and remembered is None:
        return None
    length, asked = like.shape[1], 0 if places is None else places.shape[1]
    whole = [
        like.new_ones(1, count, length, dtype=torch.bool) if part is None else part
        for part, count in ((sees, length), (seen, asked))
    ]
    most = max(len(each) for each in whole)
    mask = torch.cat([each.expand(most, -1, -1) for each in whole], 1)
    if before:
        mask = torch.cat((mask.new_ones(len(mask), mask.shape[1], before), mask), 2)
    return mask if remembered is None else mask & remembered[:, None]


def differing(segments: Tensor, places: Tensor | None, *, before: int) -> Tensor:
    """[B, N, S], True where who asks and a key are of different segments [B, T]; what is remembered is of segment 0."""
    asked = segments if places is None else torch.cat((segments, segments.gather(1, places)), 1)
    keys = torch.cat((segments.new_zeros(len(segments), before), segments), 1)
    return asked[..., None] != keys[:, None]
