"""The steps of an n-gram model: counts, discounts and back-off weights, order by order.

Each order gives p(w|c) = (count − discount) / total + γ(c) p(w|c'), where c' is the context without its first token
(interpolation), or one of the two alone (back-off, and contexts that were never seen). All probabilities are those that
the model stores; counts are stored with it since version 0.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lmlab.analysis.forward_pass.numbers import Array, Factor, Index, Sum, Trace
from lmlab.analysis.forward_pass.steps import Address, Facts, Look, Step
from lmlab.models.ngram import NGram
from lmlab.ngrams.counting import trace as find_ranks

SHOWN = 8
"""Candidates in the table of an order."""


class Estimated(NamedTuple):
    """How one order makes the probability of a token after its context."""

    seen: bool
    """Whether the context was seen in training."""
    times: int | None
    """How often the n-gram was counted; None where counts are not known."""
    total: float | None
    """Of all n-grams with this context (and, with add-k, k times the vocabulary)."""
    discount: float | None
    part: float
    """(count − discount) / total: what the n-gram itself contributes."""
    backoff: float
    """γ, the weight of the lower order."""
    lower: float
    """The probability of the lower order."""
    probability: float


class Orders:
    """The distributions of all orders after one context, and how they are made."""

    def __init__(self, model: NGram, context: Array) -> None:
        self.model, self.context = model, context[None]  # [1, n − 1]
        levels = model.levels
        self.distributions = [
            np.exp(model.log_probabilities(self.context[:, self.context.shape[1] - n :])[0]) for n in range(len(levels))
        ]
        """[n]: after the last n tokens."""
        finders = [level.find for level in levels[1:-1]]
        ranks = find_ranks(finders, self.context) if self.context.size else []
        self.ranks = [int(rank[0, -1]) for rank in ranks]  # of the contexts of 1, 2, … tokens; −1: never seen

    def explain(self, n: int, token: int) -> Estimated:
        """The probability of a token after the last n tokens."""
        V, level = self.model.vocabulary, self.model.levels[n]
        value = float(self.distributions[n][token])
        lower = float(self.distributions[n - 1][token]) if n else 1 / V
        rank = 0 if n == 0 else self.ranks[n - 1]
        if rank < 0:
            return Estimated(False, None, None, None, 0.0, 1.0, lower, value)
        context, word = np.array([rank]), np.array([token])
        own = level.find(context, word) if n else word
        here = own[0] >= 0
        stored = float(np.exp(level.log_probabilities[own][0])) if here else 0.0
        backoff = self._backoff(n, rank)
        interpolated = self.model.config.smoothing != "backoff"
        part = (stored - backoff * lower if interpolated else stored) if here else 0.0
        if n == 0 and not interpolated:
            part, backoff = stored, 0.0
        if here and not interpolated:
            backoff = 0.0
        if level.counts is None:
            return Estimated(True, None, None, None, part, backoff, lower, value)
        first, many = (int(each[0]) for each in level.children(context)) if n else (0, V)
        total = float(level.counts[first : first + many].sum(dtype=np.int64)) + self._prior()
        count = int(level.counts[own[0]]) if here else 0
        return Estimated(True, count, total, count - part * total if here else 0.0, part, backoff, lower, value)

    def _prior(self) -> float:
        config = self.model.config
        return config.k * config.vocabulary if config.smoothing == "add-k" else 0.0

    def _backoff(self, n: int, rank: int) -> float:
        """γ of the context; for the empty one it is what the parts of all tokens leave."""
        if n:
            return float(np.exp(self.model.levels[n - 1].log_backoffs[np.array([rank])][0]))
        level, V = self.model.levels[0].unpack(), self.model.vocabulary
        if level.counts is None or self.model.config.smoothing == "backoff":
            return 0.0
        p, counts = np.exp(level.log_probabilities), level.counts.astype(np.float64)
        unseen = np.flatnonzero(counts == 0)
        if len(unseen):
            return float(p[unseen[0]] * V)
        return _empty_backoff(self.model, p, counts)


def _empty_backoff(model: NGram, p: Array, counts: Array) -> float:
    """γ of the empty context where every token was seen: from the discounts, or the weight of the order."""
    from lmlab.ngrams.smoothing import find_discounts, histogram

    V, total = model.vocabulary, counts.sum()
    match model.config.smoothing:
        case "modified-kneser-ney" | "kneser-ney":
            modified = model.config.smoothing.startswith("modified")
            table = find_discounts([histogram(counts.astype(np.int64))], modified=modified)[0]
            return float(table[np.minimum(counts, 3).astype(int)].sum() / total)
        case "jelinek-mercer":
            most = int(np.argmax(counts))
            apart = counts[most] / total - 1 / V
            return 1.0 if apart == 0 else 1 - float((p[most] - 1 / V) / apart)
        case _:
            prior = model.config.k * V
            return float(prior / (total + prior)) if model.config.order == 1 else 1.0


def trace_ngram(trace: Trace, model: NGram, ids: list[int]) -> tuple[list[Step], Array]:
    """The steps of the last position, and the log-probabilities of all tokens."""
    history = np.array([model.config.boundary] * (model.config.order - 1) + ids, np.int64)[None]
    import torch

    context = model._advance(torch.from_numpy(history))[0].numpy()
    orders = Orders(model, context)
    words = [trace.show_token(int(token)) for token in context]
    for n, distribution in enumerate(orders.distributions):
        after = f"after “{''.join(words[len(words) - n :])}”" if n else "without context"
        trace.add(f"order{n + 1}", distribution, f"probability {after}", f"p_{n + 1}", "candidate", _origin(orders, n))
    steps = [_context_step(words, model.config.order)]
    steps += [_order_step(trace, orders, n, words) for n in range(len(orders.distributions))]
    return steps, np.log(orders.distributions[-1])


def _origin(orders: Orders, n: int) -> Callable[[Index], Sum]:
    def origin(index: Index) -> Sum:
        made = orders.explain(n, index[0])
        lower = Factor(
            "uniform, 1/V" if n == 0 else f"p_{n} of the lower order", made.lower, f"order{n}:{index[0]}" if n else None
        )
        own: tuple[Factor, ...] = (Factor("part of the n-gram", made.part),)
        if made.times is not None and made.total:
            counted = Factor(
                f"count {made.times} − discount {made.discount:.4f}", made.times - float(made.discount or 0)
            )
            own = (counted, Factor(f"1 ÷ total {made.total:g}", 1 / made.total))
        parts = [
            own,
            (Factor("γ, the back-off weight" if made.seen else "γ: the context was never seen", made.backoff), lower),
        ]
        return Sum(
            "p(w|c) = frac{count − discount}{total} + γ p(w|c')",
            np.array([np.prod([each.value for each in some]) for some in parts]),
            lambda i: parts[i],
        )

    return origin


def _context_step(words: list[str], order: int) -> Step:
    rows = tuple((n, "".join(words[len(words) - n :]) or "(nothing)") for n in range(order - 1, -1, -1))
    says = (
        f"An n-gram of order {order} looks at the last {order - 1} tokens; shorter contexts help where it was not seen."
    )
    grids = lambda look: [Facts("contexts", ("tokens", "context"), rows)]  # noqa: E731
    return Step("context", "Context", "Context", says, f"P(w | last {order - 1} tokens)", grids)


def _order_step(trace: Trace, orders: Orders, n: int, words: list[str]) -> Step:
    context = "".join(words[len(words) - n :])
    seen = n == 0 or orders.ranks[n - 1] >= 0
    name = f"order{n + 1}"

    def grids(look: Look) -> list[Facts]:
        best = np.argsort(-orders.distributions[n], kind="stable")[:SHOWN].tolist()
        tokens = [*best, *([look.candidate] if look.candidate not in best else [])]
        rows = []
        for token in tokens:
            made = orders.explain(n, token)
            lower = Address(f"order{n}:{token}") if n else made.lower
            rows.append(
                (
                    trace.show(token),
                    made.times,
                    made.discount,
                    made.total,
                    made.part,
                    made.backoff,
                    lower,
                    Address(f"{name}:{token}"),
                )
            )
        columns = ("token", "count", "discount", "total", "own part", "γ", "lower order", "probability")
        return [Facts(f"after “{context}”" if n else "without context", columns, tuple(rows))]

    if n == 0:
        says = (
            "Without context, a token is as probable as it was frequent (Kneser–Ney: in how many contexts it was seen)."
        )
    elif seen:
        says = f"After “{context}”: each n-gram that was seen gives up a discount, which the lower order distributes."
    else:
        says = f"“{context}” was never seen in training, so the probabilities of the lower order are taken over."
    equation = "p(w|c) = frac{count − discount}{total} + γ p(w|c')" if seen else "p(w|c) = p(w|c')"
    title = ("Single tokens", "Pairs", "Triples")[n] if n < 3 else f"{n + 1}-grams"
    return Step(name, f"Order {n + 1}", title, says, equation, grids)
