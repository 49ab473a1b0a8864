"""Beam search: the most probable continuations, kept k at a time.

Shapes: B texts at once, K beams each, C candidates for the next beams, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lmlab.decoding.generate import StatefulReader
from lmlab.messages import ArgumentError
from lmlab.models import name_of
from lmlab.models.abilities import State, Steps
from lmlab.models.states import Decoding

Penalty = Literal["wu", "power"]
Rules = Callable[[Tensor, Tensor], Tensor]
"""Written tokens [N, T] and the log-probabilities of the next [N, V] -> which of these are forbidden, [N, V]."""
MOST_PENALTY = 10
"""The greatest exponent of a length."""


class Hypothesis(NamedTuple):
    """One continuation that the search ended with."""

    tokens: list[int]  # with the boundary at its end where it finished
    log_probability: float  # summed over the tokens, in nats
    score: float  # log_probability / length penalty, by which hypotheses are ranked
    finished: bool  # whether it ended with the boundary, not at the length limit

    @property
    def written(self) -> list[int]:
        """The tokens without the boundary."""
        return self.tokens[:-1] if self.finished else self.tokens


class Expansion(NamedTuple):
    """One level of the search tree: the candidates of one step, best first."""

    text: Tensor  # [B] the index of the text of each row; finished texts have none
    parent: Tensor  # [B, C] which of the beams a candidate continues
    token: Tensor  # [B, C] by which token
    log_probability: Tensor  # [B, C] of the whole continuation; -inf where there is no candidate
    finished: Tensor  # [B, C] whether it ends with the boundary and is a result
    kept: Tensor  # [B, K] which candidates are the next beams


def length_penalty_of(length: int, alpha: float, kind: Penalty = "wu") -> float:
    """The divisor of log-probabilities: ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14), or length^alpha.

    Summed log-probabilities favour short texts; alpha 0 changes nothing, 0.6 to 1 is usual for translation. OpenNMT,
    fairseq and transformers use the plain power; with alpha 1 it gives the mean over the tokens.
    """
    return float(((5 + length) / 6 if kind == "wu" else length) ** alpha)


@dataclass(frozen=True)
class _Forbidden:
    """What may not be written: its log-probability becomes −∞."""

    boundary: int | None
    shortest: int
    no_repeat: int
    never: list[int]
    rules: Rules | None

    def apply(self, logs: Tensor, texts: Tensor, *, written: int) -> None:
        """Change the log-probabilities [R, V] that follow texts [R, T], of which the last `written` are new tokens."""
        if self.boundary is not None and written < self.shortest:
            logs[:, self.boundary] = -torch.inf
        if self.never:
            logs[:, self.never] = -torch.inf
        if self.no_repeat:
            logs.masked_fill_(_repeats(texts, self.no_repeat, logs.shape[-1], self.boundary), -torch.inf)
        if self.rules is not None:
            logs.masked_fill_(self.rules(texts[:, texts.shape[1] - written :], logs), -torch.inf)


@torch.inference_mode()
def beam_search(
    model: Steps,
    prompt: Tensor,
    *,
    tokens: int | Sequence[int],
    beams: int,
    boundary: int | None = None,
    length_penalty: float = 0.0,
    penalty: Penalty = "wu",
    shortest: int = 0,
    no_repeat: int = 0,
    never: Sequence[int] = (),
    rules: Rules | None = None,
    stop_early: bool = False,
    state: State = None,
    watch: Callable[[Expansion], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best continuations of prompts [B, T] by at most `tokens` tokens: for each prompt up to K, best first.

    In each step every beam is continued by every token and the best K candidates stay. One that ends with `boundary`
    leaves the search as a result, and the next best takes its place. A text is done, and leaves the batch, when K
    results are in and no beam can still beat the worst of them; beams that reach the length limit (one for all, or one
    for each text) are results as they are. With `stop_early` it is done as soon as K results are in.

    No text ends before it has `shortest` tokens (besides the boundary), none has the same `no_repeat` tokens in a row
    twice (0: it may), and none has a token of `never`; what is forbidden has no probability, and the other tokens keep
    theirs. `rules` may forbid further tokens by what is written so far. `state` is where to begin, of an
    encoder-decoder: `begin(encode(source))`; the beams of a text share what it knows of the source.
    """
    size, length_before, device = *prompt.shape, prompt.device
    limits = [tokens] * size if isinstance(tokens, int) else [int(limit) for limit in tokens]
    _check(
        model,
        prompt,
        limits,
        beams=beams,
        length_penalty=length_penalty,
        shortest=shortest,
        no_repeat=no_repeat,
        state=state,
    )
    forbidden = _Forbidden(boundary, shortest, no_repeat, list(never), rules)
    results = [_Results(beams, limit, length_penalty, penalty, stop_early) for limit in limits]
    reader = StatefulReader(model, batch=size, state=state, steps=max(limits, default=0))
    logits = reader.read(prompt)
    rows = torch.arange(size, device=device)  # [B] the texts that are not done
    exact = torch.float32 if device.type == "mps" else torch.float64  # many small terms are summed
    totals = torch.zeros(size, 1, dtype=exact, device=device)  # [B, K], of one beam at first
    texts = prompt[:, None]  # [B, K, T + length]

    for length in range(1, max(limits, default=0) + 1):
        width, vocabulary = totals.shape[1], logits.shape[-1]
        logs = logits.float().log_softmax(-1)
        forbidden.apply(logs, texts.flatten(0, 1), written=length - 1)
        best, parent, token = _candidates(logs, totals, min(2 * beams, width * vocabulary))
        ends = best.isfinite() & (token == (-1 if boundary is None else boundary))
        totals, kept = best.masked_fill(ends, -torch.inf).topk(min(beams, best.shape[1]))
        ends[:, beams:] = False
        if watch is not None:
            watch(Expansion(rows, parent, token, best, ends, kept))
        active = rows.tolist()
        for row, column in ends.nonzero().tolist():
            text = [*texts[row, parent[row, column], length_before:].tolist(), int(token[row, column])]
            results[active[row]].add(text, float(best[row, column]), finished=True)
        parent, token = parent.gather(1, kept), token.gather(1, kept)
        texts = torch.cat([texts.gather(1, parent[:, :, None].expand(-1, -1, texts.shape[2])), token[:, :, None]], 2)

        going = []
        for row, index in enumerate(active):
            if length == limits[index]:
                results[index].add_all(texts[row, :, length_before:].tolist(), totals[row].tolist())
            elif not results[index].settled(float(totals[row, 0]), length):
                going.append(row)
        if not going:
            break
        stay = None if len(going) == len(active) else torch.tensor(going, device=device)
        if stay is not None:
            rows, totals, parent, token, texts = (part[stay] for part in (rows, totals, parent, token, texts))
        if beams > 1 or stay is not None:
            first = width * (torch.arange(len(going), device=device) if stay is None else stay)
            reader.reorder((first[:, None] + parent).flatten(), sources=stay)
        logits = reader.read(token.view(-1, 1))
    return [each.best for each in results]


def _check(
    model: Steps,
    prompt: Tensor,
    limits: list[int],
    *,
    beams: int,
    length_penalty: float,
    shortest: int,
    no_repeat: int,
    state: State,
) -> None:
    if prompt.ndim != 2 or prompt.shape[1] == 0:
        raise ValueError(
            f"a prompt of shape {list(prompt.shape)}: [B, T] with T >= 1 is needed, start it with the boundary"
        )
    if len(limits) != len(prompt):
        raise ValueError(f"{len(limits)} length limits for {len(prompt)} prompts: give one number, or one for each")
    if min(limits, default=1) < 1 or beams < 1:
        raise ValueError(f"tokens = {min(limits, default=1)}, beams = {beams}: both must be at least 1")
    if not abs(length_penalty) <= MOST_PENALTY:
        raise ArgumentError(
            "length_penalty", length_penalty, f"give -{MOST_PENALTY} to {MOST_PENALTY}, mostly 0.6 to 1"
        )
    if shortest < 0 or no_repeat < 0:
        raise ValueError(f"shortest = {shortest}, no_repeat = {no_repeat}: neither may be negative")
    if shortest > min(limits, default=shortest):
        raise ArgumentError("shortest", shortest, f"no text has at least {shortest} and at most {min(limits)} tokens")
    longest = prompt.shape[1] + max(limits, default=0) - 1
    if isinstance(state, Decoding) and model.window is not None and longest > model.window:
        raise ArgumentError(
            "tokens",
            max(limits),
            f"{name_of(model)} has positions for {model.window} target tokens, so at most "
            f"{model.window - prompt.shape[1] + 1} can be generated after the prompt",
        )


def _candidates(logs: Tensor, totals: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of all beams, best first: their log-probability, beam and token, each [B, C].

    No more than C of one beam can be among them, so the scores of the others are never summed up nor sorted.
    """
    size, width = totals.shape
    each, token = logs.topk(min(count, logs.shape[-1]))  # [B * K, c]
    joint = totals[:, :, None] + each.view(size, width, -1)
    best, flat = joint.flatten(1).topk(count)
    return best, flat.div(each.shape[1], rounding_mode="floor"), token.view(size, -1).gather(1, flat)


def _repeats(texts: Tensor, length: int, vocabulary: int, boundary: int | None) -> Tensor:
    """[N, V], True where a token would end `length` tokens that texts [N, T] already have in a row.

    The boundary is free: it often begins the text, and without it none could end.
    """
    banned = torch.zeros(len(texts), vocabulary + 1, dtype=torch.bool, device=texts.device)
    if texts.shape[1] >= length:
        runs = texts.unfold(1, length, 1)  # [N, T - length + 1, length]
        same = (runs[:, :, :-1] == texts[:, None, texts.shape[1] - length + 1 :]).all(-1)
        banned.scatter_(1, torch.where(same, runs[:, :, -1], vocabulary), True)
    if boundary is not None:
        banned[:, boundary] = False
    return banned[:, :-1]


class _Results:
    """The best hypotheses of one text so far, and whether a better one can come."""

    def __init__(self, beams: int, limit: int, alpha: float, kind: Penalty, stop_early: bool) -> None:
        self.beams, self.limit, self.alpha, self.kind, self.stop_early = beams, limit, alpha, kind, stop_early
        self.best: list[Hypothesis] = []

    def add(self, text: list[int], total: float, *, finished: bool) -> None:
        """Put a hypothesis among the best, best first."""
        if math.isfinite(total):
            score = total / length_penalty_of(len(text), self.alpha, self.kind)
            self.best.append(Hypothesis(text, total, score, finished))
            self.best.sort(key=lambda hypothesis: -hypothesis.score)
            del self.best[self.beams :]

    def add_all(self, texts: list[list[int]], totals: list[float]) -> None:
        """Add beams that have reached the length limit, as they are."""
        for text, total in zip(texts, totals, strict=True):
            self.add(text, total, finished=False)

    def settled(self, top: float, length: int) -> bool:
        """Whether no continuation of a beam can enter: a total only falls, and its penalty is known in advance."""
        if top == -math.inf or (self.stop_early and len(self.best) == self.beams):
            return True
        lengths = (length + 1, self.limit)
        bound = top / max(length_penalty_of(each, self.alpha, self.kind) for each in lengths)
        return len(self.best) == self.beams and self.best[-1].score >= bound
