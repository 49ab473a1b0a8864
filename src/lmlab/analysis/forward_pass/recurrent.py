"""The steps of recurrent networks: the gates and the cell of each layer, over time.

All gates and states are those of the readable cell of the layer itself (layers/recurrent.py), which is unrolled while
it is watched; the terms of their sums come from its matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from lmlab.analysis.forward_pass.numbers import Factor, Index, Sum, Trace, added, apply_to, array, linear
from lmlab.analysis.forward_pass.steps import Grid, Look, Step, Watched, rows_of, strip
from lmlab.analysis.forward_pass.transformers import add_embeddings
from lmlab.layers.recurrent import GRULayer, Layer, LSTMLayer

GATES = {
    "LSTM": {"input_gate": (0, "i"), "forget_gate": (1, "f"), "proposal": (2, "g"), "output_gate": (3, "o")},
    "GRU": {"reset_gate": (0, "r"), "update_gate": (1, "u"), "proposal": (2, "h~")},
    "RNN": {"hidden": (0, "h")},
}
"""Which quarter (or third) of the matrices makes each gate."""


def trace_recurrent(trace: Trace, watched: Watched, network: Any) -> tuple[list[Step], str]:
    """The steps from the embeddings to the vectors that predict the next token, and the name of their array."""
    stack = getattr(network.recurrent, "layers", network.recurrent)
    connections = getattr(network.recurrent, "connections", "none")
    if connections not in ("none", "residual"):
        raise ValueError(f"connections = {connections!r} are not explained yet: only none and residual are")
    x = add_embeddings(trace, watched)
    says = "Each token number picks a row of a learnt table, its embedding."

    def own(look: Look) -> list[Grid]:
        return [strip(trace, "embedding", "embedding", look.position)]

    steps = [Step("embeddings", "Embeddings", "Embeddings", says, "x = E_w", own)]
    for number, layer in enumerate(stack):
        path = f"recurrent.layers.{number}" if hasattr(network.recurrent, "layers") else f"recurrent.{number}"
        steps += _trace_layer(trace, watched, layer, path, number, x)
        before, x = x, f"{number}.hidden"
        if connections == "residual" and number:
            values = torch.from_numpy(trace[before] + trace[x])
            origin = added(trace, before, f"{number}.hidden", equation="y = x + h")
            x = trace.add(
                f"{number}.out", values, "output of the layer", "y", "token unit", origin, where=f"Layer {number}"
            )
    if not isinstance(getattr(network, "projection", nn.Identity()), nn.Identity):
        origin = linear(trace, x, network.projection, "p = W h")
        name = trace.add("hidden", watched.out("projection"), "projected vector", "p", "token unit", origin)
        grids = lambda look, x=x: [strip(trace, x, "before", look.position), strip(trace, name, "after", look.position)]  # noqa: E731
        says = "A matrix brings the vector to the width of the embeddings, which are also the rows of the output layer."
        steps.append(Step("projection", "Output", "Projection", says, "p = W h", grids))
        x = name
    return steps, x


def _trace_layer(trace: Trace, watched: Watched, layer: Layer, path: str, number: int, x: str) -> list[Step]:
    name, where = str(number), f"Layer {number}"
    kind = "LSTM" if isinstance(layer, LSTMLayer) else "GRU" if isinstance(layer, GRULayer) else "RNN"
    if layer.weights()[0].shape[0] != len(layer.weights()[1]) or len(layer.weights()) != 4:
        raise ValueError("recurrent layers with a projection are not explained yet")
    for gate, (chunk, symbol) in GATES[kind].items():
        values = watched.out(f"{path}.inside.{gate}")
        origin = _gate(trace, layer, name, x, kind, gate, chunk)
        trace.add(f"{name}.{gate}", values, gate.replace("_", " "), symbol, "token unit", origin, where=where)
    if kind == "LSTM":
        _add_lstm_states(trace, watched, path, name, where)
    if kind == "GRU":
        values = watched.out(f"{path}.inside.hidden")
        trace.add(f"{name}.hidden", values, "state", "h", "token unit", _renewed(trace, name), where=where)
    return _steps(trace, kind, name, where, x)


def _gate(trace: Trace, layer: Layer, name: str, x: str, kind: str, gate: str, chunk: int) -> Callable[[Index], Sum]:
    """σ or tanh of W x + U h + b; in the GRU's proposal the reset gate scales U h + b'; its update is negated."""
    W, U, b, b_state = (array(each) for each in layer.weights())
    H = U.shape[1]
    squash = torch.tanh if gate in ("proposal", "hidden") else torch.sigmoid
    function = "tanh" if squash is torch.tanh else "σ"
    sign = -1.0 if gate == "update_gate" else 1.0
    letter = GATES[kind][gate][1]

    def origin(index: Index) -> Sum:
        t, unit = index
        row = chunk * H + unit
        inputs = trace[x][t].astype(np.float64)
        state = trace[f"{name}.hidden"][t - 1].astype(np.float64) if t else np.zeros(H)
        reset = float(trace[f"{name}.reset_gate"][t, unit]) if kind == "GRU" and gate == "proposal" else 1.0
        products = np.concatenate(
            [sign * W[row] * inputs, sign * reset * U[row] * state, [sign * b[row], sign * reset * b_state[row]]]
        )

        def factors(i: int) -> tuple[Factor, ...]:
            minus = "−" if sign < 0 else ""
            if i < len(inputs):
                return trace.factor(x, t, i), Factor(f"{minus}W[{unit},{i}]", sign * float(W[row, i]))
            gate_factor = (trace.factor(f"{name}.reset_gate", t, unit),) if reset != 1.0 else ()
            if i < len(inputs) + H:
                j = i - len(inputs)
                before = trace.factor(f"{name}.hidden", t - 1, j) if t else Factor("h before the text", 0.0)
                return (before, Factor(f"{minus}U[{unit},{j}]", sign * float(U[row, j])), *gate_factor)
            if i == len(inputs) + H:
                return (Factor(f"{minus}b[{unit}]", sign * float(b[row])),)
            return (Factor(f"{minus}b'[{unit}]", sign * float(b_state[row])), *gate_factor)

        past = "r ∘ ( U h_{t−1} + b' )" if reset != 1 else "U h_{t−1}"
        equation = f"{letter}_t = {function}( W x_t + {past} + b )"
        return Sum(equation, products, factors, function, apply_to(squash))

    return origin


def _add_lstm_states(trace: Trace, watched: Watched, path: str, name: str, where: str) -> None:
    def cell(index: Index) -> Sum:
        t, unit = index
        before = trace.factor(f"{name}.cell", t - 1, unit) if t else Factor("c before the text", 0.0)
        pairs = [
            (trace.factor(f"{name}.forget_gate", t, unit), before),
            (trace.factor(f"{name}.input_gate", t, unit), trace.factor(f"{name}.proposal", t, unit)),
        ]
        return Sum("c_t = f ∘ c_{t−1} + i ∘ g", np.array([a.value * b.value for a, b in pairs]), lambda i: pairs[i])

    def hidden(index: Index) -> Sum:
        inside = trace.factor(f"{name}.cell", *index)
        pair = (
            trace.factor(f"{name}.output_gate", *index),
            Factor(f"tanh({inside.label})", math.tanh(inside.value), inside.at),
        )
        return Sum("h_t = o ∘ tanh(c_t)", np.array([pair[0].value * pair[1].value]), lambda i: pair)

    trace.add(f"{name}.cell", watched.out(f"{path}.inside.cell"), "cell", "c", "token unit", cell, where=where)
    trace.add(f"{name}.hidden", watched.out(f"{path}.inside.hidden"), "state", "h", "token unit", hidden, where=where)


def _renewed(trace: Trace, name: str) -> Callable[[Index], Sum]:
    def origin(index: Index) -> Sum:
        t, unit = index
        gate = trace.factor(f"{name}.update_gate", t, unit)
        before = trace.factor(f"{name}.hidden", t - 1, unit) if t else Factor("h before the text", 0.0)
        pairs = [
            (Factor(f"1 − {gate.label}", 1 - gate.value, gate.at), before),
            (gate, trace.factor(f"{name}.proposal", t, unit)),
        ]
        return Sum(
            "h_t = (1 − u) ∘ h_{t−1} + u ∘ h~", np.array([a.value * b.value for a, b in pairs]), lambda i: pairs[i]
        )

    return origin


def _steps(trace: Trace, kind: str, name: str, where: str, x: str) -> list[Step]:
    def strips(*names: str) -> Callable[[Look], list[Grid]]:
        def grids(look: Look) -> list[Grid]:
            return [strip(trace, each, trace.arrays[each].label, look.position) for each in names]

        return grids

    def over_time(part: str) -> Callable[[Look], list[Grid]]:
        return lambda look: [rows_of(trace, f"{name}.{part}", f"{part} after each token", look)]

    def then(*made: Callable[[Look], list[Grid]]) -> Callable[[Look], list[Grid]]:
        return lambda look: [grid for each in made for grid in each(look)]

    own = {part: f"{name}.{part}" for part in GATES[kind]}
    if kind == "RNN":
        says = (
            "The state is renewed from the token and from the state before it: all that the network knows of the text."
        )
        grids = then(strips(x, own["hidden"]), over_time("hidden"))
        return [Step(f"{name}.hidden", where, "State", says, "h_t = tanh( W x_t + U h_{t−1} + b )", grids)]
    if kind == "GRU":
        return [
            Step(f"{name}.gates", where, "Gates",
                 "Two gates between 0 and 1 look at the token and at the state before: reset (what of the past the "
                 "proposal sees) and update (how much is renewed).",
                 "r , u = σ( W x_t + U h_{t−1} + b )", strips(x, own["reset_gate"], own["update_gate"])),
            Step(f"{name}.proposal", where, "Proposal", "What could be written into the state.",
                 "h~ = tanh( W x_t + b + r ∘ ( U h_{t−1} + b' ) )", strips(own["proposal"])),
            Step(f"{name}.hidden", where, "State", "Each number is a mixture of what it was and of the proposal.",
                 "h_t = (1 − u) ∘ h_{t−1} + u ∘ h~", then(strips(f"{name}.hidden"), over_time("hidden"))),
        ]  # fmt: skip
    return [
        Step(f"{name}.gates", where, "Gates",
             "Three gates between 0 and 1 look at the token and at the state before: input (what is written), forget "
             "(what stays) and output (what is shown).",
             "i , f , o = σ( W x_t + U h_{t−1} + b )",
             strips(x, own["input_gate"], own["forget_gate"], own["output_gate"])),
        Step(f"{name}.proposal", where, "Proposal", "What may be written into the cell.",
             "g = tanh( W x_t + U h_{t−1} + b )", strips(own["proposal"])),
        Step(f"{name}.cell", where, "Cell",
             "The memory cell keeps the part that the forget gate lets through, and gets the part of the proposal that "
             "the input gate lets in.",
             "c_t = f ∘ c_{t−1} + i ∘ g", then(strips(f"{name}.cell"), over_time("cell"))),
        Step(f"{name}.hidden", where, "State", "The output gate decides what of the cell is shown to the next layer.",
             "h_t = o ∘ tanh(c_t)", then(strips(f"{name}.hidden"), over_time("hidden"))),
    ]  # fmt: skip
