"""Grouped-query attention: several query heads share the keys and values of one head (Ainslie et al. 2023).

Shapes: B batch, H query heads, G key/value heads, R = H / G queries of a group, T new tokens, S keys, d width
of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lmlab.layers.attention import attend, head_width
from lmlab.layers.cache import Slot
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.rotary import Rotary, rotate
from lmlab.layers.watching import is_watched


class GroupedAttention(nn.Module):
    """Causal attention of H query heads over G heads of keys and values, queries and keys turned by their place.

    With G = H it is multi-head attention, with G = 1 multi-query attention; the cache is H / G times smaller. Without
    `rotary` nothing is turned. Who watches `probabilities` sees the weights [B, H, T, S].
    """

    def __init__(
        self, width: int, heads: int, *, key_value_heads: int, rotary: Rotary | None, bias: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.key_value_heads, self.head_width = heads, key_value_heads, head_width(width, heads)
        check_groups(heads, key_value_heads)
        self.rotary = rotary
        self.query = Linear(width, width, bias=bias)
        self.key_value = Linear(width, 2 * key_value_heads * self.head_width, bias=bias)
        self.projection = Linear(width, width, bias=False)
        self.probabilities = nn.Identity()

    def forward(self, x: Tensor, slot: Slot | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; with a slot of the cache, which holds the tokens before x."""
        batch, length, width = x.shape
        q = self.query(x).view(batch, length, self.heads, self.head_width)
        k, v = self.key_value(x).view(batch, length, 2, self.key_value_heads, self.head_width).unbind(2)
        if self.rotary is not None:
            angles = self.rotary.at(length, slot)
            q, k = rotate(q, angles), rotate(k, angles)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))  # [B, H, T, d], [B, G, T, d]
        mask = None
        if slot is not None:
            k, v = slot.extend(torch.stack((k, v), 2)).unbind(2)
            mask = None if slot.rows is None else slot.rows.mask
        watch = self.probabilities if is_watched(self.probabilities) else None
        if (
            length == 1 and watch is None
        ):  # the queries of a group see the same keys: they stand as R places of one head
            grouped = q.reshape(batch, self.key_value_heads, -1, self.head_width)
            z = attend(grouped, k, v, mask=mask).reshape(batch, 1, width)
        else:
            k, v = (part.repeat_interleave(self.heads // self.key_value_heads, dim=1) for part in (k, v))
            z = attend(q, k, v, causal=mask is None, mask=mask, watch=watch).transpose(1, 2)
        mixed: Tensor = self.projection(z.reshape(batch, length, width))
        return mixed


def check_groups(heads: int, key_value_heads: int) -> None:
    """A ValueError where heads of keys and values cannot be shared evenly."""
    if heads % key_value_heads:
        raise ValueError(
            f"{heads} heads cannot share {key_value_heads} key/value heads evenly; choose a number that divides {heads}"
        )
