"""The numbers of a forward pass, each with its origin: a sum of products, and a function of the sum.

A `Trace` holds arrays by name, as they were watched in the model itself (layers/watching.py). A number has an address,
such as "0.query:1,5,3": the name of its array and the index in it. `explain` returns its `Origin`; the factors of its
terms have addresses in turn, so that one can go back from a prediction to the embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
Index = tuple[int, ...]
MOST_TERMS = 12
"""Terms of a sum that are shown, the largest first; the others are one number."""


class Factor(NamedTuple):
    """A number in a product, with its address if it has an origin."""

    label: str
    value: float
    at: str | None = None


class Term(NamedTuple):
    """A product in a sum."""

    value: float
    factors: tuple[Factor, ...]


class Origin(NamedTuple):
    """Where a number comes from: `function` of the sum of the terms is the `result`, which equals the `value`."""

    label: str
    value: float
    """As the model has computed it."""
    equation: str
    terms: tuple[Term, ...]
    others: int
    """Terms that are not shown."""
    rest: float
    """Their sum."""
    total: float
    function: str
    """What is done with the sum, such as "÷ √16"; nothing where the sum is the number."""
    result: float


class Sum(NamedTuple):
    """How to compute a number: products, what is known of the factors of each, and the function of their sum."""

    equation: str
    products: Array
    factors: Callable[[int], tuple[Factor, ...]]
    function: str = ""
    apply: Callable[[float], float] = lambda total: total


@dataclass(frozen=True)
class Numbers:
    """An array of the forward pass; `origin` says how the number at an index is computed, None: it was learnt."""

    label: str
    symbol: str
    axes: tuple[str, ...]
    """What each dimension counts: token, key (a token that is attended to), head, unit, candidate (a token id)."""
    values: Array
    origin: Callable[[Index], Sum] | None = None
    where: str = ""
    """The layer."""


@dataclass
class Trace:
    """All numbers of a forward pass, by name."""

    tokens: list[str]
    show: Callable[[int], str]
    """The text of a token id."""
    keys: list[str] = field(default_factory=list)
    """The tokens that attention looks at, where they are others than `tokens`."""
    arrays: dict[str, Numbers] = field(default_factory=dict)

    def add(
        self,
        name: str,
        values: Array | Tensor,
        label: str,
        symbol: str,
        axes: str,
        origin: Callable[[Index], Sum] | None = None,
        *,
        where: str = "",
    ) -> str:
        """Add an array, whose axes are given as "token unit"; returns its name."""
        found = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else values
        self.arrays[name] = Numbers(label, symbol, tuple(axes.split()), found, origin, where)
        return name

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name].values

    def factor(self, name: str, *index: int) -> Factor:
        """A number of the trace as a factor."""
        numbers = self.arrays[name]
        value, at = float(numbers.values[index]), f"{name}:{','.join(map(str, index))}"
        return Factor(self.describe(numbers, index), value, None if numbers.origin is None else at)

    def show_token(self, token: int) -> str:
        """The text of a token id, with marks for white space."""
        return mark_spaces(self.show(token))

    def describe(self, numbers: Numbers, index: Index) -> str:
        """What a number is called: q[3] “cat”."""
        text, tokens = numbers.symbol.replace("~", "\u0303"), ""
        for axis, position in zip(numbers.axes, index, strict=True):
            if axis == "unit":
                text += f"[{position}]"
            elif axis == "head":
                text += f"₍{position}₎" if numbers.symbol == "z" else ""
            elif axis != "masked":
                token = self.show_token(position) if axis == "candidate" else mark_spaces(self._tokens(axis)[position])
                tokens += f" → “{token}”" if tokens else f" “{token}”"
        return text + tokens

    def _tokens(self, axis: str) -> list[str]:
        return self.keys if axis in ("key", "context") and self.keys else self.tokens

    def find(self, address: str) -> tuple[Numbers, Index]:
        """The array and the index of an address; a ValueError where there is no such number."""
        name, _, rest = address.rpartition(":")
        if name not in self.arrays or not re.fullmatch(r"\d{1,9}(,\d{1,9})*", rest):
            raise ValueError(f"there is no number {address[:80]!r} in this forward pass")
        numbers, index = self.arrays[name], tuple(int(each) for each in rest.split(","))
        shape = numbers.values.shape
        if len(index) != len(shape) or any(i >= size for i, size in zip(index, shape, strict=True)):
            raise ValueError(f"{address[:80]!r}: {numbers.label} has the shape {' × '.join(map(str, shape))}")
        return numbers, index

    def explain(self, address: str) -> Origin:
        """Where the number at an address comes from."""
        numbers, index = self.find(address)
        value = float(numbers.values[index])
        where = f"{numbers.where}: " if numbers.where else ""
        head = f" of head {index[0]}" if numbers.axes[0] == "head" else ""
        label = f"{where}{numbers.label}{head}, {self.describe(numbers, index)}"
        if numbers.origin is None:
            return Origin(label, value, "learnt in training", (), 0, 0.0, value, "", value)
        how = numbers.origin(index)
        products = np.asarray(how.products, np.float64)
        order = np.argsort(-np.abs(products), kind="stable")
        shown = order if len(order) <= MOST_TERMS + 1 else order[:MOST_TERMS]
        terms = tuple(Term(float(products[i]), how.factors(int(i))) for i in shown)
        rest, total = float(products[order[len(shown) :]].sum()), float(products.sum())
        return Origin(
            label, value, how.equation, terms, len(order) - len(shown), rest, total, how.function, how.apply(total)
        )


def mark_spaces(token: str) -> str:
    """A token in which white space can be seen."""
    return token.replace(" ", "·").replace("\n", "⏎").replace("\\n", "⏎").replace("\t", "⇥") or "∅"


def apply_to(function: Callable[[Tensor], Tensor]) -> Callable[[float], float]:
    """A function of tensors as one of numbers."""
    return lambda total: float(function(torch.tensor(total, dtype=torch.float64)))


def affine(
    trace: Trace,
    inputs: Callable[[Index], tuple[Array, Callable[[int], Factor]]],
    weight: Callable[[Index], tuple[Array, str]],
    bias: Callable[[Index], float] | None,
    equation: str,
    *,
    function: str = "",
    apply: Callable[[float], float] = lambda total: total,
) -> Callable[[Index], Sum]:
    """Σ W x + b: `inputs` and `weight` give the numbers of x and of a row of W, with their names, for an index."""

    def origin(index: Index) -> Sum:
        x, name = inputs(index)
        row, symbol = weight(index)
        products = x.astype(np.float64) * row
        shift = None if bias is None else bias(index)

        def factors(i: int) -> tuple[Factor, ...]:
            if i == len(x):
                return (Factor("bias", float(shift or 0.0)),)
            return (name(i), Factor(f"{symbol},{i}]", float(row[i])))

        return Sum(equation, products if shift is None else np.append(products, shift), factors, function, apply)

    return origin


def linear(
    trace: Trace,
    x: str,
    module: Any,
    equation: str,
    *,
    symbol: str = "W",
    first: Callable[[Index], int] = lambda index: index[-1],
    function: str = "",
    apply: Callable[[float], float] = lambda total: total,
) -> Callable[[Index], Sum]:
    """The origin of numbers [T, O] = W x + b of a linear module over the array x [T, I].

    The row of W for an index is its last number, or what `first` says; the position is `index[-2]`, that of the token.
    """
    weight, bias = array(module.weight), None if module.bias is None else array(module.bias)

    def inputs(index: Index) -> tuple[Array, Callable[[int], Factor]]:
        token = index[-2]
        return trace[x][token], lambda i: trace.factor(x, token, i)

    return affine(
        trace,
        inputs,
        lambda index: (weight[first(index)], f"{symbol}[{first(index)}"),
        None if bias is None else lambda index: float(bias[first(index)]),
        equation,
        function=function,
        apply=apply,
    )


def added(trace: Trace, *names: str, equation: str) -> Callable[[Index], Sum]:
    """The origin of a sum of arrays of one shape."""

    def origin(index: Index) -> Sum:
        parts = [trace.factor(name, *index) for name in names]
        return Sum(equation, np.array([part.value for part in parts]), lambda i: (parts[i],))

    return origin


def normed(trace: Trace, x: str, norm: Any) -> Callable[[Index], Sum]:
    """The origin of LayerNorm(x), γ (x − μ) / σ + β, or of RMSNorm(x), γ x / r."""
    weight = array(norm.weight)
    bias = array(norm.bias) if getattr(norm, "bias", None) is not None else None
    centred, epsilon = isinstance(norm, torch.nn.LayerNorm), float(norm.eps)

    def origin(index: Index) -> Sum:
        *token, unit = index
        row = trace[x][tuple(token)].astype(np.float64)
        mean = float(row.mean()) if centred else 0.0
        deviation = float(np.sqrt(((row - mean) ** 2).mean() + epsilon))
        gain = Factor(f"γ[{unit}]", float(weight[unit]))
        scale = Factor("1/σ" if centred else "1/r", 1 / deviation)
        factors: list[tuple[Factor, ...]] = [(trace.factor(x, *index), scale, gain)]
        if centred:
            factors.append((Factor("−μ", -mean), scale, gain))
        if bias is not None:
            factors.append((Factor(f"β[{unit}]", float(bias[unit])),))
        products = np.array([np.prod([each.value for each in some]) for some in factors])
        equation = "y = frac{x - μ}{σ} γ + β" if centred else "y = frac{x}{r} γ , r = sqrt{mean x ^ 2 + ε}"
        return Sum(equation, products, lambda i: factors[i])

    return origin


def product(trace: Trace, factors: Callable[[Index], Sequence[tuple[Factor, ...]]], equation: str) -> Any:
    """The origin of a short sum of products, whose factors are listed."""

    def origin(index: Index) -> Sum:
        found = list(factors(index))
        return Sum(equation, np.array([np.prod([each.value for each in some]) for some in found]), lambda i: found[i])

    return origin


def softmax_origin(
    trace: Trace, scores: str, equation: str, *, keys: Callable[[Index], int | None]
) -> Callable[[Index], Sum]:
    """The origin of softmax(s) over the last axis: the terms are exp(s − largest), their sum divides one of them.

    `keys` says how many of the row count; None: all.
    """

    def origin(index: Index) -> Sum:
        *before, own = index
        row = trace[scores][tuple(before)][: keys(index)].astype(np.float64)
        most = row.max()
        powers = np.exp(row - most)
        one = float(powers[own]) if own < len(powers) else 0.0

        def factors(i: int) -> tuple[Factor, ...]:
            score = trace.factor(scores, *before, i)
            return (Factor(f"exp({score.label} − {most:.3f})", float(powers[i]), score.at),)

        return Sum(equation, powers, factors, f"{one:.4g} ÷ the sum", lambda total: one / total)

    return origin


def array(tensor: Tensor) -> Array:
    """Parameters as an array, without a copy where they are single precision on the CPU."""
    found: Array = tensor.detach().float().cpu().numpy()
    return found
