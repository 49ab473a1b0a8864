"""Recurrent layers: each has its equations as a readable `cell` and torch's fused kernel over the same parameters.

Shapes: B batch, T time, D width of a layer's input, H width of its state. States are batch-first: h [B, H], and for the
LSTM the pair (h, c). Torch keeps two biases, b (with the input) and b' (with the state); they only ever appear as a sum
except in the GRU's reset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.dropout_mask import check_probability, dropout_mask
from lmlab.layers.kernels.projected_lstm import projected_lstm
from lmlab.layers.watching import is_watched

Connections = Literal["none", "residual", "highway", "dense"]
Kernel = Literal["fused", "readable"]
LayerState = Any
"""h [B, H], or (h, c) in an LSTM."""


class Layer(nn.Module):
    """One recurrent layer: `run` uses torch's fused kernel, `cell` says what it computes.

    Watching `inside.NAME` gives one of its PARTS, a gate or a state, at each time [B, T, H]; it is unrolled then.
    """

    kernel: ClassVar[type[Any]]
    PARTS: ClassVar[tuple[str, ...]] = ("hidden",)
    fused: nn.RNNBase

    def __init__(self, width: int, hidden: int, *, projection: int = 0) -> None:
        super().__init__()
        self.fused = self.kernel(width, hidden, batch_first=True, **({"proj_size": projection} if projection else {}))
        self.inside = nn.ModuleDict({name: nn.Identity() for name in self.PARTS})

    def start(self, batch_size: int) -> LayerState:
        return self.fused.all_weights[0][0].new_zeros(batch_size, self.fused.hidden_size)

    def weights(self) -> list[Tensor]:
        """W, U, b and b' for one segment."""
        return list(self.fused.all_weights[0])

    def parts(self, x: Tensor, state: LayerState, weights: list[Tensor]) -> dict[str, Tensor]:
        """All that is computed while reading x [B, D], each [B, H]: gates, what is proposed, the new state."""
        raise NotImplementedError

    def state_of(self, parts: dict[str, Tensor]) -> LayerState:
        """The new state among the parts."""
        return parts["hidden"]

    def cell(self, x: Tensor, state: LayerState) -> LayerState:
        """The state after reading x [B, D]."""
        return self.state_of(self.parts(x, state, self.weights()))

    @property
    def watched(self) -> bool:
        """Whether somebody looks at a part."""
        return is_watched() and any(is_watched(part) for part in self.inside.values())

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Read x [B, T, D] by the fused kernel -> h [B, T, H] at each time and the last state."""
        y, h = self.fused(x, state[None])
        return y, h[0]

    def unroll(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """What `run` computes, one time after another by the readable cell."""
        times, weights = [], self.weights()
        for x_t in x.unbind(1):
            times.append(self.parts(x_t, state, weights))
            state = self.state_of(times[-1])
        for name, part in self.inside.items():
            if is_watched(part):
                part(torch.stack([parts[name] for parts in times], dim=1))
        return torch.stack([parts["hidden"] for parts in times], dim=1), state


def products(x: Tensor, h: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """W x + b and U h + b' [B, k·H] of the k gates, concatenated."""
    W, U, b, b_state = weights
    return x @ W.T + b, h @ U.T + b_state


class ElmanLayer(Layer):
    """The simple recurrent layer (Elman 1990)."""

    kernel = nn.RNN

    def parts(self, x: Tensor, state: LayerState, weights: list[Tensor]) -> dict[str, Tensor]:
        """h_t = tanh(W x_t + U h_{t−1} + b)."""
        from_input, from_state = products(x, state, weights)
        return {"hidden": torch.tanh(from_input + from_state)}


class GRULayer(Layer):
    """The gated recurrent unit (Cho et al. 2014), in the form for which kernels exist: reset after the product."""

    kernel = nn.GRU
    PARTS = ("hidden", "update_gate", "reset_gate", "proposal")

    def parts(self, x: Tensor, state: LayerState, weights: list[Tensor]) -> dict[str, Tensor]:
        """h_t = (1−u)∘h_{t−1} + u∘h~, with update u, reset r and proposal h~.

            r = σ(Wr x + Ur h + br)
            u = σ(Wu x + Uu h + bu)
            h~ = tanh(Wh x + bh + r∘(Uh h + bh'))

        The parameters are stored in torch's order and sense: its second gate is z = 1 − u, so Wu = −Wz.
        """
        h = state
        from_input, from_state = products(x, h, weights)
        x_r, x_z, x_h = from_input.chunk(3, dim=-1)
        h_r, h_z, h_h = from_state.chunk(3, dim=-1)
        r = torch.sigmoid(x_r + h_r)
        u = torch.sigmoid(-(x_z + h_z))
        proposal = torch.tanh(x_h + r * h_h)
        return {"hidden": (1 - u) * h + u * proposal, "update_gate": u, "reset_gate": r, "proposal": proposal}


class LSTMLayer(Layer):
    """The memory cell with forget gate (Hochreiter & Schmidhuber 1997, Gers et al. 2000).

    The forget gate's bias starts at 1, so that memory lasts before the gate has learnt (Jozefowicz et al. 2015).
    """

    kernel = nn.LSTM
    PARTS = ("hidden", "cell", "input_gate", "forget_gate", "output_gate", "proposal")

    def __init__(self, width: int, hidden: int, *, projection: int = 0) -> None:
        super().__init__(width, hidden, projection=projection)
        _, _, b, b_state, *_ = self.fused.all_weights[0]
        with torch.no_grad():
            b[hidden : 2 * hidden] = 1
            b_state[hidden : 2 * hidden] = 0

    def start(self, batch_size: int) -> LayerState:
        return super().start(batch_size), super().start(batch_size)

    def parts(self, x: Tensor, state: LayerState, weights: list[Tensor]) -> dict[str, Tensor]:
        """c_t = f∘c_{t−1} + i∘g, h_t = o∘tanh(c_t).

        i, f, o = σ(W x + U h + b)      input, forget and output gate, each with its own W, U, b
        g       = tanh(W x + U h + b)
        """
        h, c = state
        from_input, from_state = products(x, h, weights)
        i, f, g, o = (from_input + from_state).chunk(4, dim=-1)
        i, f, o, g = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), torch.tanh(g)
        c = f * c + i * g
        gates = {"input_gate": i, "forget_gate": f, "output_gate": o}
        return {"hidden": o * torch.tanh(c), "cell": c, **gates, "proposal": g}

    def state_of(self, parts: dict[str, Tensor]) -> LayerState:
        return parts["hidden"], parts["cell"]

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, c = state
        y, (h, c) = self.fused(x, (h[None], c[None]))
        return y, (h[0], c[0])


class ProjectedLSTMLayer(LSTMLayer):
    """An LSTM whose output is a projection of its cells, so that it may have many of them (LSTMP, Sak et al. 2014).

        h_t = P (o∘tanh(c_t))                   of the width of the projection: the state that the gates see

    With `clip`, cells and outputs are held within ±clip (Peters et al. 2018: 3). torch's own kernel is for GPUs only:
    see kernels/projected_lstm.py.
    """

    def __init__(self, width: int, hidden: int, *, projection: int, clip: float | None = None) -> None:
        super().__init__(width, hidden, projection=projection)
        self.clip = clip

    def start(self, batch_size: int) -> LayerState:
        weight = self.fused.all_weights[0][0]
        return weight.new_zeros(batch_size, self.fused.proj_size), weight.new_zeros(batch_size, self.fused.hidden_size)

    def parts(self, x: Tensor, state: LayerState, weights: list[Tensor]) -> dict[str, Tensor]:
        """c_t = f∘c_{t−1} + i∘g, h_t = P (o∘tanh(c_t)), both within the clip; the gates as in an LSTM."""
        *weights, P = weights
        parts = super().parts(x, state, weights)
        c = self._within(parts["cell"])
        return {**parts, "hidden": self._within((parts["output_gate"] * torch.tanh(c)) @ P.T), "cell": c}

    def _within(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if x.device.type == "cuda" and self.clip is None:
            return super().run(x, state)
        if not x.is_meta and torch.is_autocast_enabled(x.device.type):
            return self.unroll(x, state)
        W, U, b, b_state, P = self.fused.all_weights[0]
        h, c = state
        y, h, c = projected_lstm(F.linear(x, W, b + b_state), h, c, U, P, clip=self.clip)
        return y, (h, c)


class RecurrentStack(nn.Module):
    """Layers of one kind on top of each other, with dropout between them (Zaremba et al. 2014).

    From the second layer on, f being the layer and x its input, `connections` says what is passed up:
        none       f(x)
        residual   x + f(x)                              (He et al. 2016)
        highway    t∘f(x) + (1−t)∘x, t = σ(W x + b)      (Srivastava et al. 2015)
        dense      f([x_0; x_1; …]), of the stack's input and all outputs below   (Huang et al. 2017)
    """

    def __init__(
        self,
        layer: Callable[[int, int], Layer],
        *,
        width: int,
        hidden: int,
        layers: int,
        output: int | None = None,
        dropout: float = 0.0,
        connections: Connections = "none",
        kernel: Kernel = "fused",
    ) -> None:
        """`layer(width, hidden)` makes one; what it passes up is `hidden` wide, unless `output` says otherwise."""
        super().__init__()
        passed = output or hidden
        widths = [width, *[passed] * (layers - 1)]
        if connections == "dense":
            widths = [width + number * passed for number in range(layers)]
        self.layers = nn.ModuleList(layer(below, hidden) for below in widths)
        self.dropout = Dropout(dropout)
        self.connections = connections
        self.kernel = kernel
        self.gates = nn.ModuleList()
        if connections == "highway":
            for _ in widths[1:]:
                gate = nn.Linear(passed, passed)
                nn.init.constant_(gate.bias, -1.0)
                self.gates.append(gate)

    def start(self, batch_size: int) -> tuple[LayerState, ...]:
        return tuple(cast(Layer, layer).start(batch_size) for layer in self.layers)

    def forward(self, x: Tensor, states: tuple[LayerState, ...]) -> tuple[list[Tensor], tuple[LayerState, ...]]:
        """x [B, T, D] -> x and every layer's outputs [B, T, H], the top layer's last; and each layer's last state."""
        outputs = [x]
        ends = []
        for number, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            x = outputs[-1]
            if number > 0:
                x = self.dropout(torch.cat(outputs, dim=-1) if self.connections == "dense" else x)
            layer = cast(Layer, layer)
            fused = self.kernel == "fused" and not layer.watched
            y, end = (layer.run if fused else layer.unroll)(x, state)
            if number > 0 and self.connections == "residual":
                y = x + y
            elif number > 0 and self.connections == "highway":
                t = torch.sigmoid(self.gates[number - 1](x))
                y = x + t * (y - x)
            outputs.append(y)
            ends.append(end)
        return outputs, tuple(ends)

    def stages(self) -> list[list[nn.Module]]:
        """The modules of each layer, the first layer first."""
        return [[layer, *self.gates[max(0, number - 1) : number]] for number, layer in enumerate(self.layers)]

    def flops(self) -> float:
        """Floating-point operations per token: all are matrix products."""
        return sum(2.0 * parameter.numel() for parameter in self.parameters() if parameter.dim() == 2)


class WeightDroppedLSTM(LSTMLayer):
    """An LSTM layer in whose recurrent matrix U single weights are dropped (DropConnect, Wan et al. 2013).

    The mask is drawn once for all times of a segment and all its rows, so torch's fused kernel does the rest.
    """

    def __init__(self, width: int, hidden: int, *, dropout: float) -> None:
        super().__init__(width, hidden)
        check_probability(dropout)
        self.dropout = dropout

    def weights(self) -> list[Tensor]:
        """W, U, b and b' with U∘m / (1 − p), m ~ Bernoulli(1 − p) per weight; as they are when not training."""
        W, U, b, b_state = super().weights()
        if not self.training or self.dropout == 0:
            return [W, U, b, b_state]
        return [W, U * dropout_mask(tuple(U.shape), self.dropout, like=U), b, b_state]

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, c = state
        y, h, c = torch.lstm(x, (h[None], c[None]), self.weights(), True, 1, 0.0, self.training, False, True)
        return y, (h[0], c[0])


class EmbeddingDropout(nn.Module):
    """Drop whole words: the vector of a dropped token is zero everywhere in a segment (Gal & Ghahramani 2016).

    That is dropout on the rows of the embedding matrix, E∘m with one m per token; here the mask is applied to what was
    looked up, since few of the rows are.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        check_probability(p)
        self.p = p

    def forward(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        """tokens [B, T] -> vectors [B, T, D]."""
        vectors: Tensor = embedding(tokens)
        if not self.training or self.p == 0:
            return vectors
        kept = dropout_mask((embedding.num_embeddings,), self.p, like=vectors)
        return vectors * kept[tokens][..., None]

    def extra_repr(self) -> str:
        return f"p={self.p}"
