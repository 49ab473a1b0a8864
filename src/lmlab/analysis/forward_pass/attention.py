"""The steps of attention: queries, keys and values, scores, weights, and the mixture of the values.

Every array is what a module of the block gave or was given. Only scores before the softmax and turned queries and keys
are computed here, because fused kernels never hold them; they are checked against the model's own weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from lmlab.analysis.forward_pass.numbers import (
    Array,
    Factor,
    Index,
    Sum,
    Trace,
    affine,
    array,
    product,
    softmax_origin,
)
from lmlab.analysis.forward_pass.steps import Grid, Look, Row, Step, Watched, rows_of, strip
from lmlab.layers.attention.multi_head import GroupedAttention
from lmlab.layers.attention.relative import RelativeAttention, SkewedAttention
from lmlab.layers.positions import rotate


@dataclass(frozen=True)
class BlockCall:
    """One call of a block: its path in the network, which call it is, and what it is called here."""

    path: str
    number: int
    name: str
    """The prefix of its arrays."""
    label: str
    """What it is called: layer 0."""


@dataclass(frozen=True)
class Part:
    """Queries, keys or values: [H, T, d], and the rows of the matrix that makes them, [H, d, D]."""

    values: Array
    weight: Array
    bias: Array | None


def trace_attention(
    trace: Trace, watched: Watched, network: nn.Module, call: BlockCall, x: str, *, causal: bool
) -> list[Step]:
    """Add the attention of a block: query, key, value, scores, weights, heads, attention."""
    path, name, where = f"{call.path}.attention", call.name, call.label
    module: Any = network.get_submodule(path)
    width = module.head_width
    parts = _parts(watched, module, path, call.number)
    heads = len(parts["query"].values)
    turned = isinstance(module, GroupedAttention) and module.rotary is not None
    for part, (symbol, words) in {"query": ("q", "query"), "key": ("k", "key"), "value": ("v", "value")}.items():
        own = f"{name}.{part}" + (" before" if turned and part != "value" else "")
        origin = _projected(
            trace, x, parts[part], f"{symbol} = W_{symbol} x" + (" + b" if parts[part].bias is not None else "")
        )
        trace.add(own, parts[part].values, words, symbol, "head token unit", origin, where=where)
        if turned and part != "value":
            _turn(trace, own, f"{name}.{part}", module.rotary, where)
    groups = heads // len(parts["key"].values)
    extra = _relative_terms(trace, watched, module, path, call)
    q, k = trace[f"{name}.query"], trace[f"{name}.key"]
    products = np.einsum("hid,hjd->hij", q.astype(np.float64), np.repeat(k, groups, 0)) + extra.sums
    scores = np.nan_to_num(products / math.sqrt(width)).astype(np.float32)
    trace.add(
        f"{name}.scores", scores, "score", "s", "head token key", _score(trace, name, groups, extra, width), where=where
    )
    weights = softmax_origin(
        trace, f"{name}.scores", "a_j = frac{exp(s_j)}{∑ exp(s)}", keys=lambda index: index[-2] + 1 if causal else None
    )
    probabilities = watched.out(f"{path}.probabilities", call.number)
    trace.add(f"{name}.weights", probabilities, "attention weight", "a", "head token key", weights, where=where)
    projected = hasattr(module, "projection")
    mixed = watched.into(f"{path}.projection", call.number) if projected else watched.out(path, call.number)
    per_head = mixed.view(-1, heads, width).transpose(0, 1)
    trace.add(
        f"{name}.heads",
        per_head,
        "mixture of values",
        "z",
        "head token unit",
        _mixture(trace, name, groups),
        where=where,
    )
    if projected:
        origin = _merged(trace, name, module.projection, width)
    else:
        origin = product(
            trace,
            lambda i: [(trace.factor(f"{name}.heads", i[1] // width, i[0], i[1] % width),)],
            "z = [z_0 ; z_1 ; …]",
        )
    out = watched.out(path, call.number)
    trace.add(f"{name}.attention", out, "output of attention", "y", "token unit", origin, where=where)
    return _attention_steps(trace, call, x, heads=heads, groups=groups, width=width, causal=causal, turned=turned)


def _parts(watched: Watched, module: Any, path: str, number: int) -> dict[str, Part]:
    """Queries, keys and values of each head, as the module's own products gave them."""
    H, d = module.heads, module.head_width
    if hasattr(module, "query_key_value"):
        made = watched.out(f"{path}.query_key_value", number).view(-1, 3, H, d).permute(1, 2, 0, 3)
        weight = array(module.query_key_value.weight).reshape(3, H, d, -1)
        bias = None if module.query_key_value.bias is None else array(module.query_key_value.bias).reshape(3, H, d)
        return {
            part: Part(array(made[n]), weight[n], None if bias is None else bias[n])
            for n, part in enumerate(("query", "key", "value"))
        }
    found = {}
    G = getattr(module, "key_value_heads", H)
    q, kv = watched.out(f"{path}.query", number), watched.out(f"{path}.key_value", number)
    rows, both = array(module.query.weight).reshape(H, d, -1), array(module.key_value.weight).reshape(2, G, d, -1)
    shift = None if module.query.bias is None else array(module.query.bias).reshape(H, d)
    shifts = None if module.key_value.bias is None else array(module.key_value.bias).reshape(2, G, d)
    found["query"] = Part(array(q.view(-1, H, d).transpose(0, 1)), rows, shift)
    for n, part in enumerate(("key", "value")):
        values = kv.view(-1, 2, G, d)[:, n].transpose(0, 1)
        found[part] = Part(array(values), both[n], None if shifts is None else shifts[n])
    return found


def _projected(trace: Trace, x: str, part: Part, equation: str) -> Callable[[Index], Sum]:
    """q, k or v = W x + b, for each head."""
    bias = part.bias

    def inputs(index: Index) -> tuple[Array, Callable[[int], Factor]]:
        return trace[x][index[1]], lambda i: trace.factor(x, index[1], i)

    return affine(
        trace,
        inputs,
        lambda index: (part.weight[index[0], index[2]], f"W[{index[2]}"),
        None if bias is None else lambda index: float(bias[index[0], index[2]]),
        equation,
    )


def _turn(trace: Trace, before: str, name: str, rotary: Any, where: str) -> None:
    """Queries or keys turned by their position (RoPE)."""
    plain = trace[before]  # [H, T, d]
    angles = rotary.at(plain.shape[1], None)
    turned = rotate(torch.from_numpy(plain).transpose(0, 1)[None], angles.cpu())[0].transpose(0, 1)
    cos, sin = (array(each) for each in angles.chunk(2, -1))
    half = plain.shape[2] // 2

    def factors(index: Index) -> list[tuple[Factor, ...]]:
        h, t, i = index
        angle = i % half
        sign = -1.0 if i < half else 1.0
        other = (i + half) % (2 * half)
        first = (trace.factor(before, h, t, i), Factor(f"cos {t}θ[{angle}]", float(cos[t, angle])))
        sine = Factor(f"{'−' if sign < 0 else ''}sin {t}θ[{angle}]", sign * float(sin[t, angle]))
        return [first, (trace.factor(before, h, t, other), sine)]

    old = trace.arrays[before]
    label = f"turned {old.label}"
    equation = f"{old.symbol}'_i = {old.symbol}_i cos(tθ_i) ∓ {old.symbol}_{{i+d/2}} sin(tθ_i)"
    trace.add(name, turned, label, old.symbol + "'", "head token unit", product(trace, factors, equation), where=where)


@dataclass(frozen=True)
class _Extra:
    """What relative attention adds to q · k: sums [H, T, T], and for a score its products with their factors."""

    sums: Any = 0.0
    terms: Callable[[Index], tuple[Array, Callable[[int], tuple[Factor, ...]]]] | None = None
    equation: str = "s = frac{q · k}{sqrt{d}}"


def _relative_terms(trace: Trace, watched: Watched, module: Any, path: str, call: BlockCall) -> _Extra:
    if isinstance(module, SkewedAttention):
        table = array(module.distances)  # [H, L, d]
        q = trace[f"{call.name}.query"]
        apart = _distances(q.shape[1], table.shape[1])
        sums = np.einsum("hid,hijd->hij", q.astype(np.float64), table[:, apart])

        def skewed(index: Index) -> tuple[Array, Callable[[int], tuple[Factor, ...]]]:
            h, i, j = index
            far = int(apart[i, j])
            row = table[h, far]

            def factors(n: int) -> tuple[Factor, ...]:
                return trace.factor(f"{call.name}.query", h, i, n), Factor(f"E[{far},{n}]", float(row[n]))

            return q[h, i].astype(np.float64) * row, factors

        return _Extra(sums, skewed, "s = frac{q · k + q · E_{i−j}}{sqrt{d}}")
    if not isinstance(module, RelativeAttention):
        return _Extra()
    q, k = trace[f"{call.name}.query"], trace[f"{call.name}.key"]
    H, T, d = q.shape
    r = array(watched.out(f"{path}.distance", call.number))[::-1].reshape(-1, H, d)  # by distance, 0 first
    u, v = (array(each) for each in _biases(watched))
    apart = _distances(T, len(r))
    by_distance = np.einsum("hid,ijhd->hij", q.astype(np.float64) + v[:, None], r[apart])
    sums = by_distance + np.einsum("hd,hjd->hj", u.astype(np.float64), k)[:, None]

    def relative(index: Index) -> tuple[Array, Callable[[int], tuple[Factor, ...]]]:
        h, i, j = index
        far = int(apart[i, j])
        R, key, query = r[far, h].astype(np.float64), k[h, j], q[h, i]
        groups = (u[h] * key, query * R, v[h] * R)

        def factors(n: int) -> tuple[Factor, ...]:
            kind, unit = divmod(n, d)
            distance = Factor(f"r_{far}[{unit}]", float(R[unit]))
            if kind == 0:
                return Factor(f"u[{unit}]", float(u[h, unit])), trace.factor(f"{call.name}.key", h, j, unit)
            first = (
                trace.factor(f"{call.name}.query", h, i, unit) if kind == 1 else Factor(f"v[{unit}]", float(v[h, unit]))
            )
            return first, distance

        return np.concatenate(groups), factors

    return _Extra(sums, relative, "s = frac{q · k + u · k + q · r_{i−j} + v · r_{i−j}}{sqrt{d}}")


def _biases(watched: Watched) -> tuple[Any, Any]:
    return watched.network.content_bias, watched.network.position_bias


def _distances(tokens: int, known: int) -> Array:
    """How far key j is before query i, [T, T], at most the last known distance; 0 for later keys."""
    positions = np.arange(tokens)
    found: Array = np.clip(positions[:, None] - positions[None], 0, known - 1)
    return found


def _score(trace: Trace, name: str, groups: int, extra: _Extra, width: int) -> Callable[[Index], Sum]:
    def origin(index: Index) -> Sum:
        h, i, j = index
        g = h // groups
        q, k = trace[f"{name}.query"][h, i].astype(np.float64), trace[f"{name}.key"][g, j]
        products, known = q * k, len(q)
        more: Callable[[int], tuple[Factor, ...]] | None = None
        if extra.terms is not None:
            others, more = extra.terms(index)
            products = np.concatenate([products, others])

        def factors(n: int) -> tuple[Factor, ...]:
            if more is not None and n >= known:
                return more(n - known)
            return trace.factor(f"{name}.query", h, i, n), trace.factor(f"{name}.key", g, j, n)

        return Sum(extra.equation, products, factors, f"÷ √{width}", lambda total: total / math.sqrt(width))

    return origin


def _mixture(trace: Trace, name: str, groups: int) -> Callable[[Index], Sum]:
    def origin(index: Index) -> Sum:
        h, t, unit = index
        weights, values = (
            trace[f"{name}.weights"][h, t].astype(np.float64),
            trace[f"{name}.value"][h // groups, :, unit],
        )

        def factors(j: int) -> tuple[Factor, ...]:
            return trace.factor(f"{name}.weights", h, t, j), trace.factor(f"{name}.value", h // groups, j, unit)

        return Sum("z = ∑ a_j v_j", weights * values, factors)

    return origin


def _merged(trace: Trace, name: str, projection: Any, width: int) -> Callable[[Index], Sum]:
    weight, bias = array(projection.weight), None if projection.bias is None else array(projection.bias)

    def inputs(index: Index) -> tuple[Array, Callable[[int], Factor]]:
        z = trace[f"{name}.heads"][:, index[0]]
        return z.reshape(-1), lambda i: trace.factor(f"{name}.heads", i // width, index[0], i % width)

    return affine(
        trace,
        inputs,
        lambda index: (weight[index[1]], f"W[{index[1]}"),
        None if bias is None else lambda index: float(bias[index[1]]),
        "y = W_o [z_0 ; z_1 ; …]" + (" + b" if bias is not None else ""),
    )


def _attention_steps(
    trace: Trace, call: BlockCall, x: str, *, heads: int, groups: int, width: int, causal: bool, turned: bool
) -> list[Step]:
    name, where = call.name, call.label
    seen = "the tokens up to itself" if causal else "all tokens"
    shared = f" Groups of {groups} heads share keys and values." if groups > 1 else ""
    turn = " Queries and keys are turned by an angle that grows with the position (RoPE)." if turned else ""

    def projections(look: Look) -> list[Grid]:
        g = look.head // groups
        return [
            strip(trace, x, "input of the layer", look.position),
            strip(trace, f"{name}.query", f"query of head {look.head}", look.position, look.head),
            rows_of(trace, f"{name}.key", f"keys of head {look.head}", look, g, causal=causal),
            rows_of(trace, f"{name}.value", f"values of head {look.head}", look, g, causal=causal),
        ]

    def weights(look: Look) -> list[Grid]:
        count = look.position + 1 if causal else len(trace.tokens)
        columns, token = tuple(trace.tokens[:count]), trace.tokens[look.position]
        every = tuple(Row(f"head{h}", (h, look.position)) for h in range(heads))
        own = (Row(token, (look.head, look.position)),)
        return [
            Grid(f"{name}.scores", f"scores of head {look.head}", own, columns),
            Grid(f"{name}.weights", "attention weights of all heads", every, columns, "share"),
        ]

    def mixture(look: Look) -> list[Grid]:
        every = tuple(Row(f"head{h}", (h, look.position)) for h in range(heads))
        return [
            Grid(f"{name}.heads", "mixture of each head", every),
            strip(trace, f"{name}.attention", "output of attention", look.position),
        ]

    return [
        Step(
            f"{name}.projections", where, "Queries, keys, values",
            f"Each head makes three vectors of {width} numbers from every token: a query (what it looks for), a key "
            f"(what it offers) and a value (what it passes on).{shared}{turn}",
            "q = W_q x , k = W_k x , v = W_v x", projections, heads,
        ),
        Step(
            f"{name}.weights", where, "Attention weights",
            f"The query is compared with the keys of {seen}; softmax turns the scores into weights that sum to 1.",
            "a_j = softmax( frac{q · k_j}{sqrt{d}} )", weights, heads,
        ),
        Step(
            f"{name}.attention", where, "Mixture of values",
            "Each head adds up the values by their weights; a matrix makes one vector of all heads.",
            "z = ∑ a_j v_j , y = W_o [z_0 ; z_1 ; …]", mixture, heads,
        ),
    ]  # fmt: skip
