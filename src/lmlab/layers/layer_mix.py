"""One vector from several layers of a model: fixed choices and sums, and ELMo's learnt mix. L layers, D width.

BERT's authors compare such choices (Devlin et al. 2019, table 7); ELMo learns a mix (Peters et al. 2018, equation 1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.dropout import Dropout

LAYERS = (
    "last, first, second-to-last, mix, mix:norm, mix:0.2,0.3,0.5, a number such as 3 or -2, or sum:, mean: or concat: "
    "with all, -4:, 1:3 or 0,2"
)


class Selection(NamedTuple):
    """Which layers are taken, and how they become one vector."""

    how: Literal["sum", "mean", "concat"]
    which: slice | tuple[int, ...]
    weights: tuple[float, ...] = ()
    """The weight of each layer in a sum, if they differ."""
    norm: bool = False
    """Whether each vector is normalised first (LayerNorm without weights)."""

    def of(self, layers: Sequence[Tensor]) -> Tensor:
        """The chosen mix of layers [..., D] -> [..., D], or [..., n·D] if they are concatenated."""
        if self.weights and len(self.weights) != len(layers):
            raise ValueError(
                f"the mix has {len(self.weights)} weights, and this model {len(layers)} layers, embeddings included"
            )
        if self.norm:
            layers = [F.layer_norm(layer, layer.shape[-1:]) for layer in layers]
        if self.weights:
            layers = [weight * layer for weight, layer in zip(self.weights, layers, strict=True)]
        chosen = self._choose(layers)
        if self.how == "concat" or len(chosen) == 1:
            return torch.cat(chosen, dim=-1)
        widths = [layer.shape[-1] for layer in chosen]
        if len(set(widths)) > 1:
            raise ValueError(
                f"layers of widths {', '.join(map(str, widths))} cannot be added; take layers of one width (sum:all "
                f"leaves out the embeddings), or put them side by side with concat"
            )
        total = torch.stack(chosen).sum(0)
        return total / len(chosen) if self.how == "mean" else total

    def _choose(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """The layers that are taken; a ValueError where one of them, or an end of the range, is not there."""
        count = len(layers)
        there = f"this model has the layers 0 (embeddings) to {count - 1}, from the end -{count} to -1"
        if isinstance(self.which, slice):
            start, stop = self.which.start, self.which.stop
            ends = [start] if start is not None and not -count <= start < count else []
            ends += [stop] if stop is not None and not -count <= stop <= count else []
            if ends:
                raise ValueError(f"there is no layer {ends[0]} for a range to begin or end at: {there}")
            if not layers[self.which]:
                raise ValueError(f"no layer is in that range: {there}")
            return list(layers[self.which])
        if wrong := [number for number in self.which if not -count <= number < count]:
            raise ValueError(f"there is no layer {wrong[0]}: {there}")
        return [layers[number] for number in self.which]


def select_layers(given: str | int) -> Selection:
    """Read a choice of layers.

    `all` is every block's output, the twelve layers of BERT base; `mix` is ELMo's mix before it has learnt anything:
    the mean of the embeddings and all layers. `mix:norm` normalises each vector first, and `mix:0.2,0.3,0.5` (or
    `mix:norm,0.2,0.3,0.5`) has these weights, as a task has learnt them. Other ranges are Python's, over the layers
    from 0 (the embeddings) on.
    """
    if not isinstance(given, str) and (isinstance(given, bool) or not hasattr(given, "__index__")):
        raise ValueError(f"layers = {given!r} is not understood; allowed: {LAYERS}")
    named = {"last": -1, "first": 0, "second-to-last": -2}
    text = str(given).strip()
    if text in named:
        return Selection("sum", (named[text],))
    if text == "mix":
        return Selection("mean", slice(None))
    if found := re.fullmatch(r"mix:(norm)?,?((?:-?\d*\.?\d+(?:,|$))*)", text):
        weights = tuple(float(weight) for weight in found[2].split(",") if weight)
        if found[1] or weights:
            return Selection("sum" if weights else "mean", slice(None), weights, bool(found[1]))
    if re.fullmatch(r"-?\d+", text):
        return Selection("sum", (int(text),))
    how, _, which = text.partition(":")
    if how in ("sum", "mean", "concat"):
        mode = cast(Literal["sum", "mean", "concat"], how)
        if which == "all":
            return Selection(mode, slice(1, None))
        if re.fullmatch(r"-?\d+(,-?\d+)*", which):
            return Selection(mode, tuple(int(number) for number in which.split(",")))
        if found := re.fullmatch(r"(-?\d+)?:(-?\d+)?", which):
            return Selection(mode, slice(*(None if end is None else int(end) for end in found.groups())))
    raise ValueError(f"layers {given!r} is not understood; allowed: {LAYERS}")


class Mix(nn.Module):
    """γ Σ_j softmax(s)_j h_j (Peters et al. 2018, equation 1).

    With `norm` each h_j is normalised first, over its own components: the authors took mean and variance over a whole
    batch, so that a sentence's vectors depend on the rest of the batch. Dropout is on the mix. `penalty` is Σ s_j²,
    which a task adds to its loss with a weight λ (section 3.3 there): the larger λ, the nearer is the mix to a mean.
    """

    def __init__(self, layers: int, *, norm: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.dropout = Dropout(dropout)
        self.norm = norm

    def forward(self, layers: Tensor) -> Tensor:
        """layers [..., L, D] -> [..., D]."""
        if self.norm:
            layers = F.layer_norm(layers, layers.shape[-1:])
        mixed: Tensor = self.dropout(self.gamma * (self.weights()[:, None] * layers).sum(-2))
        return mixed

    def weights(self) -> Tensor:
        """The weight of each layer, the embeddings first; they sum to 1."""
        return self.scores.softmax(0)

    def penalty(self) -> Tensor:
        """Σ_j s_j²."""
        return self.scores.square().sum()


def side_by_side(layers: Sequence[Tensor]) -> Tensor:
    """[B, T, D] of each layer -> [B, T, L, D], to be mixed; a ValueError if their widths differ."""
    widths = [layer.shape[-1] for layer in layers]
    if len(set(widths)) > 1:
        raise ValueError(
            f"layers of widths {', '.join(map(str, widths))} (embeddings first) cannot be mixed: read the last one, or "
            "use a model whose layers have the same width (train it with model.hidden = model.width)"
        )
    return torch.stack(list(layers), dim=-2)
