"""The steps of a Transformer block: attention (attention.py), residuals, norms and the feed-forward net."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lmlab.analysis.forward_pass.attention import BlockCall, trace_attention
from lmlab.analysis.forward_pass.numbers import Factor, Index, Trace, added, apply_to, linear, normed, product
from lmlab.analysis.forward_pass.steps import Grid, Look, Step, Watched, strip
from lmlab.layers.feedforward import GatedFeedForward


def trace_block(
    trace: Trace, watched: Watched, network: nn.Module, call: BlockCall, x: str, *, causal: bool
) -> list[Step]:
    """Add a block that reads the array `x`, and adds the array NAME.out; returns its steps."""
    block = network.get_submodule(call.path)
    name, where, at = call.name, call.label, f"{call.path}."
    if not hasattr(block, "attention_norm"):
        return _plain_block(trace, watched, network, call, x)
    pre = torch.equal(watched.into(f"{at}attention", call.number), watched.out(f"{at}attention_norm", call.number))
    steps: list[Step] = []

    def norm(part: str, read: str, label: str) -> str:
        module = block.get_submodule(part)
        values = watched.out(f"{at}{part}", call.number)
        return trace.add(f"{name}.{part}", values, label, "n", "token unit", normed(trace, read, module), where=where)

    def join(part: str, one: str, other: str, label: str, values: Any) -> str:
        origin = added(trace, one, other, equation="sum = x + y")
        return trace.add(f"{name}.{part}", values, label, "r", "token unit", origin, where=where)

    read = norm("attention_norm", x, "after the norm") if pre else x
    if pre:
        steps.append(_norm_step(trace, call, x, read))
    steps += trace_attention(trace, watched, network, call, read, causal=causal)
    mixed = f"{name}.attention"
    middle_in = "attention_norm" if not pre else "feed_forward_norm"
    middle = join("middle", x, mixed, "x + attention", watched.into(f"{at}{middle_in}", call.number))
    steps.append(_residual_step(trace, call, "attention", x, mixed, middle))
    if not pre:
        after = norm("attention_norm", middle, "after the norm")
        steps.append(_norm_step(trace, call, middle, after))
        middle = after
    read = norm("feed_forward_norm", middle, "after the norm") if pre else middle
    if pre:
        steps.append(_norm_step(trace, call, middle, read))
    steps += trace_feed_forward(trace, watched, network, call, read)
    fed = f"{name}.feed_forward"
    if pre:
        join("out", middle, fed, "x + feed-forward", watched.out(call.path, call.number))
        steps.append(_residual_step(trace, call, "feed-forward", middle, fed, f"{name}.out"))
        return steps
    total = join("sum", middle, fed, "x + feed-forward", watched.into(f"{at}feed_forward_norm", call.number))
    steps.append(_residual_step(trace, call, "feed-forward", middle, fed, total))
    out = normed(trace, total, block.get_submodule("feed_forward_norm"))
    values = watched.out(f"{at}feed_forward_norm", call.number)
    trace.add(f"{name}.out", values, "output of the layer", "x", "token unit", out, where=where)
    steps.append(_norm_step(trace, call, total, f"{name}.out"))
    return steps


def trace_feed_forward(trace: Trace, watched: Watched, network: nn.Module, call: BlockCall, x: str) -> list[Step]:
    """Add the feed-forward net of a block: expanded, units, feed_forward."""
    path, name, where = f"{call.path}.feed_forward", call.name, call.label
    module: Any = network.get_submodule(path)
    expanded = watched.out(f"{path}.expand", call.number)
    gated = isinstance(module, GatedFeedForward)
    first_bias = " + b_1" if module.expand.bias is not None else ""
    trace.add(
        f"{name}.expanded", expanded, "before the activation", "e", "token unit",
        linear(trace, x, module.expand, f"e = W_1 x{first_bias}"), where=where,
    )  # fmt: skip
    function = "SiLU" if gated else _name(module.activation)

    def factors(index: Index) -> list[tuple[Factor, ...]]:
        first = trace.factor(f"{name}.expanded", *index)
        if not gated:
            value = float(module.units(torch.tensor([first.value]))[0])
            return [(Factor(f"{function}({first.label})", value, first.at),)]
        gate = float(nn.functional.silu(torch.tensor(first.value)))
        up = trace.factor(f"{name}.expanded", index[0], index[1] + module.expand.out_features // 2)
        return [(Factor(f"SiLU({first.label})", gate, first.at), up)]

    equation = "u_i = SiLU(e_i) e_{i+F}" if gated else f"u = {function}(e)"
    units = watched.into(f"{path}.contract", call.number)
    trace.add(f"{name}.units", units, "unit", "u", "token unit", product(trace, factors, equation), where=where)
    bias = " + b_2" if module.contract.bias is not None else ""
    origin = linear(trace, f"{name}.units", module.contract, f"y = W_2 u{bias}")
    trace.add(
        f"{name}.feed_forward",
        watched.out(path, call.number),
        "output of feed-forward",
        "y",
        "token unit",
        origin,
        where=where,
    )
    says = (
        f"Each token on its own passes through a small network: {units.shape[1]} units, each {function} of a weighted "
        f"sum{', times a second sum,' if gated else ','} and a matrix back to the width {trace[x].shape[1]}."
    )

    def grids(look: Look) -> list[Grid]:
        return [
            strip(trace, x, "input", look.position),
            strip(trace, f"{name}.units", "units", look.position),
            strip(trace, f"{name}.feed_forward", "output", look.position),
        ]

    gate = "y = W_2 ( SiLU(W_1 x) ∘ W_3 x )"
    return [
        Step(
            f"{name}.feed_forward",
            where,
            "Feed-forward",
            says,
            gate if gated else f"y = W_2 {function}(W_1 x{first_bias}){bias}",
            grids,
        )
    ]


def _name(activation: Any) -> str:
    name = getattr(activation, "__name__", type(activation).__name__)
    return {"gelu": "GELU", "gelu_tanh": "GELU", "relu": "ReLU", "silu": "SiLU", "tanh": "tanh"}.get(name, name)


def _residual_step(trace: Trace, call: BlockCall, what: str, x: str, y: str, total: str) -> Step:
    def grids(look: Look) -> list[Grid]:
        labels = {x: "before", y: f"from {what}", total: "sum"}
        return [strip(trace, each, label, look.position) for each, label in labels.items()]

    says = f"The output of {what} is added to the vector of the token: the layer changes it, and does not replace it."
    return Step(f"{total}", call.label, f"Add the {what}", says, "r = x + y", grids)


def _norm_step(trace: Trace, call: BlockCall, x: str, y: str) -> Step:
    def grids(look: Look) -> list[Grid]:
        return [strip(trace, x, "before", look.position), strip(trace, y, "after", look.position)]

    says = "The vector is brought to a common scale; then each number gets a learnt factor γ"
    rms = "β" not in trace.arrays[y].origin(tuple(0 for _ in trace[y].shape)).equation  # type: ignore[misc]
    equation = "y = frac{x}{r} γ , r = sqrt{mean x ^ 2 + ε}" if rms else "y = frac{x - μ}{σ} γ + β"
    return Step(y, call.label, "Norm", says + ("." if rms else " and a shift β."), equation, grids)


def _plain_block(trace: Trace, watched: Watched, network: nn.Module, call: BlockCall, x: str) -> list[Step]:
    """h = tanh(W z + b), without residual and norm: the first rungs of attention-lm."""
    steps = trace_attention(trace, watched, network, call, x, causal=True)
    path, name = f"{call.path}.feed_forward", call.name
    origin = linear(
        trace, f"{name}.attention", network.get_submodule(f"{path}.0"), "h = tanh(W z + b)", function="tanh",
        apply=apply_to(torch.tanh),
    )  # fmt: skip
    trace.add(
        f"{name}.out",
        watched.out(path, call.number),
        "output of the layer",
        "h",
        "token unit",
        origin,
        where=call.label,
    )

    def grids(look: Look) -> list[Grid]:
        return [
            strip(trace, f"{name}.attention", "output of attention", look.position),
            strip(trace, f"{name}.out", "units", look.position),
        ]

    says = "Each unit is tanh of a weighted sum of what the heads have gathered."
    return [*steps, Step(f"{name}.out", call.label, "Feed-forward", says, "h = tanh(W z + b)", grids)]
