"""A recurrent net that reads a whole text, in one or both directions (Schuster & Paliwal 1997).

Shapes: B texts, S tokens in the longest, D width of the input, H width of a state, M = H times the directions.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lmlab.layers.dropout import Dropout
from lmlab.layers.recurrent import Layer, LayerState


class RecurrentEncoder(nn.Module):
    """Layers on top of each other, with dropout between them; each reads what the one below says of every token.

    In both directions, a layer gives [→h_i; ←h_i], where ←h_i has read the text from its end, which in a padded text is
    its last real token.
    """

    def __init__(
        self, layer: type[Layer], *, width: int, hidden: int, layers: int, bidirectional: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = hidden * (2 if bidirectional else 1)
        widths = [width, *[self.width] * (layers - 1)]
        self.ahead = nn.ModuleList(layer(below, hidden) for below in widths)
        self.back = nn.ModuleList(layer(below, hidden) for below in widths if bidirectional)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[list[Tensor], tuple[LayerState, ...]]:
        """x [B, S, D], row i with lengths[i] vectors -> x and every layer's outputs [B, S, M], and each layer's end.

        Outputs are zero at padding. The end of a layer is its state after all tokens, of both directions side by side:
        h [B, M], or (h, c).
        """
        ends, outputs = [], [x]
        turn = None if lengths is None else _turned(lengths.to(x.device), x.shape[1])
        for number, layer in enumerate(self.ahead):
            x = self.dropout(x) if number > 0 else x
            y, end = _run(cast(Layer, layer), x, lengths)
            if self.back:
                z, other = _run(cast(Layer, self.back[number]), _turn(x, turn), lengths)
                y = torch.cat([y, _turn(z, turn)], dim=-1)
                end = _concatenate(end, other)
            x = y
            outputs.append(y)
            ends.append(end)
        return outputs, tuple(ends)

    def stages(self) -> list[list[nn.Module]]:
        """The modules of each layer, the first layer first."""
        return [[layer, *self.back[number : number + 1]] for number, layer in enumerate(self.ahead)]

    def flops(self) -> float:
        """Floating-point operations per token: all are matrix products."""
        return sum(2.0 * parameter.numel() for parameter in self.parameters() if parameter.dim() == 2)


def _run(layer: Layer, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, LayerState]:
    """A layer over x [B, S, D] from the zero state; the kernel for rows of unequal length ends each where it ends."""
    start = layer.start(len(x))
    if lengths is None:
        return layer.run(x, start)
    packed: Any = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    y, end = layer.run(packed, start)
    return pad_packed_sequence(cast(Any, y), batch_first=True, total_length=x.shape[1])[0], end


def _turned(lengths: Tensor, size: int) -> Tensor:
    """[B, S], the positions that reverse the lengths[i] tokens of each row and keep its padding."""
    position = torch.arange(size, device=lengths.device)
    return torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)


def _turn(x: Tensor, positions: Tensor | None) -> Tensor:
    """x [B, S, D] read from the end; done twice, it is x again."""
    return x.flip(1) if positions is None else x.gather(1, positions[:, :, None].expand_as(x))


def _concatenate(one: LayerState, two: LayerState) -> LayerState:
    if isinstance(one, tuple):
        return tuple(torch.cat(pair, dim=-1) for pair in zip(one, two, strict=True))
    return torch.cat([one, two], dim=-1)
