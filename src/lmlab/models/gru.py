"""The GRU language model (Cho et al. 2014): the recurrent one with a cell that decides how much of it to renew.

r = σ(Wr x + Ur h_{t−1} + br)                       reset: what of the past the proposal sees
u = σ(Wu x + Uu h_{t−1} + bu)                       update: how much is renewed
h~ = tanh(Wh x + bh + r∘(Uh h_{t−1} + bh'))         proposal
h_t = (1−u)∘h_{t−1} + u∘h~
"""

from __future__ import annotations

from typing import ClassVar

from lmlab.layers.recurrent import GRULayer, Layer
from lmlab.models.rnn import RNN


class GRU(RNN):
    """An RNN of gated recurrent units."""

    layer: ClassVar[type[Layer]] = GRULayer
