"""The steps of networks with one hidden layer over embeddings: the neural probabilistic model and the bag of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lmlab.analysis.forward_pass.numbers import Factor, Index, Sum, Trace, apply_to, linear, mark_spaces, product
from lmlab.analysis.forward_pass.steps import Grid, Look, Row, Step, Watched, strip
from lmlab.analysis.forward_pass.transformers import add_embeddings
from lmlab.models.nplm import NPLM


def trace_one_layer(trace: Trace, watched: Watched, network: Any) -> tuple[list[Step], str]:
    """The steps from the embeddings to the vectors that predict the next token, and the name of their array."""
    step = _concatenated(trace, watched, network) if isinstance(network, NPLM) else _mean(trace, watched)
    origin = linear(trace, "x", network.hidden, "h = tanh( W x + b )", function="tanh", apply=apply_to(torch.tanh))
    units = network.units(watched.out("hidden"))
    trace.add("units", units, "unit", "h", "token unit", origin)
    says = "Each hidden unit is tanh of a weighted sum of all these numbers."
    hidden = Step(
        "hidden", "Hidden layer", "Hidden layer", says, "h = tanh( W x + b )",
        lambda look: [strip(trace, "x", "input", look.position), strip(trace, "units", "units", look.position)],
    )  # fmt: skip
    if not getattr(network.config, "direct", False):
        return [*step, hidden], "units"
    width = network.config.hidden

    def both(index: Index) -> list[tuple[Factor, ...]]:
        t, i = index
        return [(trace.factor("units", t, i) if i < width else trace.factor("x", t, i - width),)]

    joined = np.concatenate([trace["units"], trace["x"]], axis=1)
    trace.add("joined", joined, "units and input", "h", "token unit", product(trace, both, "h = [ h ; x ]"))
    return [*step, hidden], "joined"


def _concatenated(trace: Trace, watched: Watched, network: NPLM) -> list[Step]:
    """The context: the embeddings of the last n − 1 tokens, side by side."""
    before, width = network.config.order - 1, network.config.width
    vectors = watched.out("embedding")  # of the padding before the text, too
    known = [mark_spaces(each) for each in [trace.show(network.config.boundary)] * before + trace.tokens]
    trace.add("embedding", vectors, "embedding", "E", "context unit")
    trace.keys = known

    def copied(index: Index) -> list[tuple[Factor, ...]]:
        t, i = index
        word, unit = t + 1 + i // width, i % width
        return [(Factor(f"E[{unit}] “{known[word]}”", float(trace["embedding"][word, unit])),)]

    trace.add(
        "x", watched.into("hidden"), "context", "x", "token unit", product(trace, copied, "x = [ E_{t−n+2} ; … ; E_t ]")
    )

    def grids(look: Look) -> list[Grid]:
        rows = tuple(Row(known[t], (t,)) for t in range(look.position + 1, look.position + 1 + before))
        return [Grid("embedding", "embeddings of the context", rows), strip(trace, "x", "side by side", look.position)]

    says = f"Only the last {before} tokens count: their embeddings are put side by side."
    return [Step("embeddings", "Embeddings", "Context", says, "x = [ E_{t−n+2} ; … ; E_t ]", grids)]


def _mean(trace: Trace, watched: Watched) -> list[Step]:
    """The bag of words: the mean of all embeddings so far."""
    add_embeddings(trace, watched)

    def mean(index: Index) -> Sum:
        t, unit = index
        parts = trace["embedding"][: t + 1, unit].astype(np.float64)
        share = Factor(f"1/{t + 1}", 1 / (t + 1))
        return Sum("m_t = frac{1}{t} ∑ E_w", parts / (t + 1), lambda i: (trace.factor("embedding", i, unit), share))

    trace.add("x", watched.into("hidden"), "mean of the embeddings", "m", "token unit", mean)

    def grids(look: Look) -> list[Grid]:
        return [strip(trace, "embedding", "embedding", look.position), strip(trace, "x", "mean so far", look.position)]

    says = "The embeddings of all tokens so far are averaged: their order is lost."
    return [Step("embeddings", "Embeddings", "Bag of words", says, "m_t = frac{1}{t} ∑ E_w", grids)]
