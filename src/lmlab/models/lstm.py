"""The LSTM language model (Hochreiter & Schmidhuber 1997; Sundermeyer et al. 2012): a memory that gates protect.

    i = σ(Wi x + Ui h_{t−1} + bi)         input gate
    f = σ(Wf x + Uf h_{t−1} + bf)         forget gate; bf starts at 1
    o = σ(Wo x + Uo h_{t−1} + bo)         output gate
    g = tanh(Wg x + Ug h_{t−1} + bg)      what may be written
    c_t = f∘c_{t−1} + i∘g                 the memory cell: gradients pass through f unsquashed
    h_t = o∘tanh(c_t)

`medium` and `large` are those of Zaremba et al. 2014 (Penn Treebank test perplexity 82.7 and 78.4 there).
"""

from __future__ import annotations

from typing import ClassVar

from lmlab.layers.recurrent import Layer, LSTMLayer
from lmlab.models.rnn import RNN


class LSTM(RNN):
    """An RNN of memory cells."""

    layer: ClassVar[type[Layer]] = LSTMLayer
