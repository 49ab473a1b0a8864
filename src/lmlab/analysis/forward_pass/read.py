"""Reading a text step by step: `read_forward` gives the steps of the model's own forward pass, and explains numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from lmlab.analysis.forward_pass.feedforward import trace_one_layer
from lmlab.analysis.forward_pass.ngram import trace_ngram
from lmlab.analysis.forward_pass.numbers import Array, Factor, Index, Origin, Sum, Trace, array
from lmlab.analysis.forward_pass.recurrent import trace_recurrent
from lmlab.analysis.forward_pass.steps import Address, Facts, Grid, Look, Step, Watched
from lmlab.analysis.forward_pass.transformers import tokens_step, trace_decoder, trace_encoder
from lmlab.analysis.view import Viewed, plain
from lmlab.decoding.masked_text import encode_masked_text
from lmlab.layers.softmax import Softmax
from lmlab.models import name_of
from lmlab.models.abilities import FillsMasks, PredictsNext, ability
from lmlab.models.attention_lm import AttentionLM
from lmlab.models.awd_lstm import AWDLSTM
from lmlab.models.bert import Encoder
from lmlab.models.bow import BagOfWords
from lmlab.models.gpt import GPT
from lmlab.models.ngram import NGram
from lmlab.models.nplm import NPLM
from lmlab.models.rnn import RNN
from lmlab.models.transformer_xl import TransformerXL
from lmlab.pages.figures import Bar, Bars, Figure
from lmlab.pages.views import Table
from lmlab.tokenizers.boundary import prompt_tokens
from lmlab.tokenizers.frames import collate

MOST_TOKENS = 64
"""Tokens that are read; of longer texts the last."""
SHOWN = 12
"""Candidates that are listed, the most probable first."""
TRACERS: tuple[tuple[tuple[type, ...], Callable[[Trace, Watched, Any], tuple[list[Step], str]]], ...] = (
    ((GPT, AttentionLM, TransformerXL), trace_decoder),
    ((RNN, AWDLSTM), trace_recurrent),
    ((NPLM, BagOfWords), trace_one_layer),
)
COVERED = (
    "ngram, bow, nplm, rnn, gru, lstm, awd-lstm, attention-lm, gpt, gpt2, llama, transformer-xl, bert, roberta, albert "
    "and electra (its generator)"
)


class LikelyToken(NamedTuple):
    """A token that may come next, or stand at the mask."""

    token: int
    text: str
    logit: float
    probability: float


@dataclass(frozen=True)
class ForwardPass(Viewed):
    """The forward pass of a model over a text, for the prediction at one position."""

    system: str
    tokens: list[str]
    position: int
    masked: bool
    """Whether the token at the position is predicted, and not the next one."""
    cut: int
    """Tokens at the beginning of the text that were not read."""
    steps: list[Step]
    trace: Trace
    logits: Array  # [V]
    temperature: float = 1.0
    title: str = field(default="How it works", init=False)

    def at(self, temperature: float) -> ForwardPass:
        """The same with another temperature of the softmax."""
        trace = replace(self.trace, arrays=dict(self.trace.arrays))
        _add_probabilities(trace, self.logits, temperature)
        return replace(self, trace=trace, temperature=temperature)

    def explain(self, number: str) -> Origin:
        """Where a number comes from, by its address, such as "0.scores:1,5,3"."""
        return self.trace.explain(number)

    def origin(self, number: str) -> OriginView:
        """The same as a record with a table."""
        return OriginView(self.explain(number))

    def candidates(self, top: int = SHOWN, *, also: int | None = None) -> list[LikelyToken]:
        """The most probable tokens, and one more."""
        probabilities = self.trace["probability"]
        best = np.argsort(-probabilities, kind="stable")[:top].tolist()
        tokens = best if also is None or also in best else [*best, also]
        return [LikelyToken(t, self.trace.show(t), float(self.logits[t]), float(probabilities[t])) for t in tokens]

    def numbers(self, grid: Grid) -> Array:
        """The numbers of a grid, a row for each of its rows."""
        values = self.trace[grid.name]
        rows = np.stack([values[row.prefix] for row in grid.rows])
        if grid.indices:
            return np.asarray(rows[:, list(grid.indices)])
        return np.asarray(rows[:, : len(grid.columns)] if grid.columns else rows)

    def lead(self) -> str:
        best = self.candidates(1)[0]
        where = "at the mask" if self.masked else "next"
        return (
            f"{len(self.steps)} steps of {self.system} over {len(self.tokens)} tokens; most probable {where}: "
            f"“{best.text}” ({best.probability:.1%})."
        )

    def notes(self) -> list[str]:
        cut = [f"the text was cut: only its last tokens were read, {self.cut} before them were not"] if self.cut else []
        return [
            *cut,
            "all numbers are those of this model's own forward pass; “others” are the terms that are not listed",
        ]

    def table(self) -> Table:
        rows = []
        for number, step in enumerate(self.steps, 1):
            for grid in step.grids(Look(self.position, 0, self.candidates(1)[0].token)):
                rows.append((number, step.group, step.title, grid.label, self._summary(grid)))
        return Table(("step", "where", "what", "numbers", "first of them"), rows, ("d", "", "", "", ""))

    def _summary(self, grid: Grid | Facts) -> str:
        if isinstance(grid, Facts):
            return " · ".join(" ".join(self._cell(cell) for cell in row) for row in grid.rows[:3])
        values = self.numbers(grid)[-1]
        shown = " ".join(f"{value:.3g}" for value in values[:6].tolist())
        return shown + (f" … ({len(values)})" if len(values) > 6 else "")

    def _cell(self, cell: object) -> str:
        if isinstance(cell, Address):
            numbers, index = self.trace.find(cell.at)
            cell = float(numbers.values[index])
        return f"{cell:.4g}" if isinstance(cell, float) else "–" if cell is None else str(cell)

    def figures(self) -> list[Figure]:
        bars = [Bar(each.text, each.probability) for each in self.candidates()]
        return [Bars("Most probable", bars)]

    def as_json(self) -> dict[str, Any]:
        look = Look(self.position, 0, self.candidates(1)[0].token)
        return {
            "system": self.system,
            "tokens": self.tokens,
            "position": self.position,
            "cut": self.cut,
            "steps": [
                {
                    "group": step.group,
                    "title": step.title,
                    "says": step.says,
                    "equation": step.equation,
                    "numbers": [
                        {"label": grid.label, "values": plain(self.numbers(grid)) if isinstance(grid, Grid) else
                         [[self._cell(cell) for cell in row] for row in grid.rows]}
                        for grid in step.grids(look)
                    ],
                }
                for step in self.steps
            ],
            "candidates": plain([each._asdict() for each in self.candidates()]),
        }  # fmt: skip


@dataclass(frozen=True)
class OriginView(Viewed):
    """Where a number comes from, as a table of the terms of its sum."""

    origin: Origin
    title: str = field(default="Where a number comes from", init=False)

    def lead(self) -> str:
        origin = self.origin
        function = f"; {origin.function} gives {origin.result:.6g}" if origin.function else ""
        return f"{origin.label} = {origin.value:.6g}. {origin.equation}: the sum is {origin.total:.6g}{function}."

    def table(self) -> Table:
        rows: list[tuple[Any, ...]] = []
        for term in self.origin.terms:
            product = " × ".join(f"{each.label} ({each.value:.4g})" for each in term.factors)
            rows.append((product, term.value, " ".join(each.at for each in term.factors if each.at)))
        if self.origin.others:
            rows.append((f"{self.origin.others} others", self.origin.rest, ""))
        return Table(("term", "value", "addresses"), rows, ("", "+.6g", ""))


def read_forward(
    model: Any, text: str, *, position: int | None = None, temperature: float = 1.0, most: int = MOST_TOKENS
) -> ForwardPass:
    """The steps of one pass of a LanguageModel over a text, up to the prediction at a position.

    A model that predicts the next token predicts it after the token at `position`, the last by default. A masked model
    predicts the token at `position`, which is hidden; by default that is the first [MASK] of the text, else the last
    token. Of a text with more than `most` tokens only the last are read.
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature = {temperature}: give a number above 0")
    network = model.model
    filler = ability(network, FillsMasks)
    encoder = getattr(filler, "encoder", None)
    with torch.inference_mode():
        if isinstance(network, NGram):
            found = _read_ngram(model, text, position, most)
        elif isinstance(encoder, Encoder):
            found = _read_masked(model, filler, text, position, most)
        else:
            found = _read_next(model, text, position, most)
        return found.at(temperature)


def _not_covered(network: Any, why: str = "") -> ValueError:
    reason = f" ({why})" if why else ""
    return ValueError(
        f"the forward pass of {name_of(network)} is not shown step by step yet{reason}; it is for {COVERED}"
    )


def _next_tokens(model: Any, text: str, position: int | None, most: int) -> tuple[list[int], int, int]:
    """The tokens that are read, how many before them are not, and the position that is asked for."""
    if model.frame.backwards:
        raise _not_covered(model.model, "it reads backwards")
    ids = model.text_tokenizer.encode(text)
    window = getattr(model.model, "window", None)
    most = most if window is None else min(most, window)
    room = most - len(prompt_tokens(model.frame, ids)) + len(ids)
    cut = max(0, len(ids) - room)
    tokens = prompt_tokens(model.frame, ids[cut:])
    at = len(tokens) - 1 if position is None else position
    if not 0 <= at < len(tokens):
        raise ValueError(f"position = {position}: there are {len(tokens)} tokens, from 0 on")
    return tokens, cut, at


def _read_next(model: Any, text: str, position: int | None, most: int) -> ForwardPass:
    network: Any = model.model
    tracer = next((trace for kinds, trace in TRACERS if isinstance(network, kinds)), None)
    if tracer is None or ability(network, PredictsNext) is None:
        raise _not_covered(network)
    tokens, cut, at = _next_tokens(model, text, position, most)
    show = model.text_tokenizer.show
    trace = Trace([show(token) for token in tokens], show)

    def run() -> Any:
        hidden, _ = network(torch.tensor([tokens], device=network.device))
        return network.logits(hidden[0, at])

    watched = Watched(network, run)
    try:
        steps, hidden = tracer(trace, watched, network)
    except ValueError as error:
        raise _not_covered(network, str(error)) from None
    logits = array(watched.result)
    steps = [tokens_step(trace, tokens), *steps]
    return _finish(model, trace, steps, logits, network.output, (hidden, at), position=at, masked=False, cut=cut)


def _read_masked(model: Any, filler: Any, text: str, position: int | None, most: int) -> ForwardPass:
    tokenizer, network = model.text_tokenizer, filler.encoder
    mask = tokenizer.special("mask")
    try:
        ids = encode_masked_text(text, tokenizer, model.frame).tokens
        row = model.frame.rows([{"a": []}])[0].inputs["tokens"].pieces
        lead = next((n for n, (a, b) in enumerate(zip(ids, row, strict=False)) if a != b), len(row))
        ids = ids[lead : len(ids) - (len(row) - lead)]
    except ValueError:
        ids = tokenizer.encode(text)
    room = min(most, network.window) - model.frame.overhead("tokens", "a")
    cut = max(0, len(ids) - room)
    (framed,) = model.frame.rows([{"a": ids[cut:]}])
    pieces, parts = list(framed.inputs["tokens"].pieces), framed.inputs["tokens"].parts
    own = [n for n, part in enumerate(parts) if part]
    if not own:
        raise ValueError("there is no token in the text to mask")
    at = next((n for n in own if pieces[n] == mask), own[-1]) if position is None else position
    if at not in own:
        raise ValueError(f"position = {position}: the tokens of the text are at {own[0]} to {own[-1]}")
    pieces[at] = mask
    inputs = {name: part.to(network.device) for name, part in collate([framed]).items() if name != "lengths"}
    inputs["tokens"] = torch.tensor([pieces], device=network.device)
    trace = Trace([tokenizer.show(piece) for piece in pieces], tokenizer.show)
    where = torch.tensor([[at]], device=network.device)
    watched = Watched(network, lambda: filler.fill(at=where, **inputs)[0, 0])
    watched.position = at
    steps, hidden = trace_encoder(trace, watched, network, filler.head)
    steps = [tokens_step(trace, pieces), *steps]
    logits = array(watched.result)
    return _finish(model, trace, steps, logits, filler.head.softmax, (hidden, 0), position=at, masked=True, cut=cut)


def _read_ngram(model: Any, text: str, position: int | None, most: int) -> ForwardPass:
    network: NGram = model.model
    tokens, cut, at = _next_tokens(model, text, position, most)
    show = model.text_tokenizer.show
    trace = Trace([show(token) for token in tokens], show)
    steps, logits = trace_ngram(trace, network, tokens[: at + 1])
    top = f"order{network.config.order}"

    def origin(index: Index) -> Sum:
        found = trace.factor(top, *index)
        return Sum("s = ln p", np.array([found.value]), lambda i: (found,), "ln", math.log)

    trace.add("logits", logits, "log-probability", "s", "candidate", origin)
    steps = [tokens_step(trace, tokens), *steps, _softmax_step()]
    return ForwardPass(name_of(network), trace.tokens, at, False, cut, steps, trace, logits)


def _finish(
    model: Any,
    trace: Trace,
    steps: list[Step],
    logits: Array,
    output: Any,
    hidden: tuple[str, int],
    *,
    position: int,
    masked: bool,
    cut: int,
) -> ForwardPass:
    """Add the logits and the last steps."""
    name, row = hidden
    exact = isinstance(output, Softmax)
    trace.add("logits", logits, "logit", "s", "candidate", _logit(trace, name, row, output) if exact else None)

    def grids(look: Look) -> list[Grid]:
        from lmlab.analysis.forward_pass.steps import Row

        best = np.argsort(-logits, kind="stable")[:SHOWN].tolist()
        tokens = tuple(best if look.candidate in best else [*best, look.candidate])
        label = trace.tokens[position] if len(trace[name]) > 1 else "[MASK]"
        vector = Grid(name, "hidden vector", (Row(label, (row,)),))
        texts = tuple(trace.show(token) for token in tokens)
        return [vector, Grid("logits", "largest logits", (Row("logit", ()),), texts, "signed", tokens)]

    says = "The hidden vector is multiplied with the row of every token: the larger the sum, the better the token fits."
    if not exact:
        says = (
            "An adaptive softmax scores frequent tokens first, and rare ones in clusters; its sums are not opened here."
        )
    bias = " + b_w" if exact and output.bias is not None else ""
    steps = [*steps, Step("logits", "Output", "Logits", says, f"s_w = h · W_w{bias}", grids), _softmax_step()]
    return ForwardPass(name_of(model.model), trace.tokens, position, masked, cut, steps, trace, logits)


def _logit(trace: Trace, name: str, row: int, output: Softmax) -> Callable[[Index], Sum]:
    weight, bias = array(output.weight), None if output.bias is None else array(output.bias)

    def origin(index: Index) -> Sum:
        token = index[0]
        hidden, own = trace[name][row].astype(np.float64), weight[token]
        products = hidden * own
        if bias is not None:
            products = np.append(products, bias[token])

        def factors(i: int) -> tuple[Factor, ...]:
            if i == len(hidden):
                return (Factor("bias of the token", float(products[i])),)
            return trace.factor(name, row, i), Factor(f"W[“{trace.show_token(token)}”,{i}]", float(own[i]))

        return Sum("s_w = h · W_w" + (" + b_w" if bias is not None else ""), products, factors)

    return origin


def _softmax_step() -> Step:
    says = (
        "Softmax turns the scores into probabilities; a temperature below 1 sharpens them, above 1 it evens them out."
    )
    none: Callable[[Look], Sequence[Grid | Facts]] = lambda look: []  # noqa: E731
    return Step("softmax", "Output", "Prediction", says, "P(w) = frac{exp(s_w / T)}{∑ exp(s / T)}", none)


def _add_probabilities(trace: Trace, logits: Array, temperature: float) -> None:
    scaled = logits.astype(np.float64) / temperature
    most = float(scaled.max())
    powers = np.exp(scaled - most)
    divide = "" if temperature == 1 else f" ÷ {temperature:g}"

    def origin(index: Index) -> Sum:
        own = float(powers[index[0]])

        def factors(i: int) -> tuple[Factor, ...]:
            score = trace.factor("logits", i)
            return (Factor(f"exp({score.label}{divide} − {most:.3f})", float(powers[i]), score.at),)

        return Sum(
            "P(w) = frac{exp(s_w / T)}{∑ exp(s / T)}",
            powers,
            factors,
            f"{own:.4g} ÷ the sum",
            lambda total: own / total,
        )

    trace.add("probability", powers / powers.sum(), "probability", "P", "candidate", origin)
