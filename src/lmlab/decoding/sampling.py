"""Ways to choose the next token: each a small pure function on logits [B, V], composed by `Sampler`.

`Sampling` is the record of all options, checked once; a `Sampler` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from lmlab.messages import ArgumentError

INFINITY = float("inf")
COLDEST = 1e-6
"""The temperature below which the best token is taken: logits divided by less may overflow."""


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Sharpen (below 1) or flatten (above 1) the distribution: softmax(logits / temperature)."""
    return logits / temperature


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k best tokens (and any that tie with the last of them); Fan et al. 2018."""
    if k >= logits.shape[-1]:
        return logits
    last = logits.topk(k).values[:, -1:]
    return logits.masked_fill(logits < last, -INFINITY)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the smallest set of best tokens whose probabilities reach p: the nucleus of Holtzman et al. 2020.

    The nucleus is nearly always small, so the best 512 are sorted first, and all only of rows that they do not fill.
    """
    if p >= 1.0:
        return logits
    probabilities = logits.softmax(-1)
    last, enough = _edge_of_nucleus(probabilities, p, min(512, logits.shape[-1]))
    if logits.shape[-1] > 512 and not bool(enough.all()):
        short = (~enough).nonzero().squeeze(1)
        last = last.index_copy(0, short, _edge_of_nucleus(probabilities[short], p, logits.shape[-1])[0])
    return logits.masked_fill(probabilities < last, -INFINITY)


def _edge_of_nucleus(probabilities: Tensor, p: float, count: int) -> tuple[Tensor, Tensor]:
    """The least probability in the nucleus [B, 1] among the best `count` tokens; and [B] whether these are enough."""
    ranked = probabilities.topk(count).values
    before = ranked.cumsum(-1) - ranked  # the mass of all better tokens
    last = ranked.masked_fill(before >= p, INFINITY).amin(-1, keepdim=True)
    return last, (before[:, -1] >= p) | torch.full_like(
        before[:, -1], count == probabilities.shape[-1], dtype=torch.bool
    )


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Keep the tokens with at least p times the probability of the best one; Nguyen et al. 2024."""
    if p <= 0.0:
        return logits
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -INFINITY)


def penalize(logits: Tensor, previous: Tensor, penalty: float) -> Tensor:
    """Make `previous` tokens [B, V] less likely; CTRL, Keskar et al. 2019, section 4.1.

    Positive logits are divided by the penalty and negative ones multiplied, the usual variant today (the paper's
    division alone would favour a repeated token with a negative logit).
    """
    return torch.where(previous, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def penalize_counts(logits: Tensor, counts: Tensor, *, presence: float, frequency: float) -> Tensor:
    """Lower the logits of generated tokens: by `presence` once, and by `frequency` for each time they occur."""
    return logits - presence * (counts > 0) - frequency * counts


def sample(logits: Tensor, uniform: Tensor) -> Tensor:
    """Sample tokens [B] from softmax(logits): invert the cumulative distribution at a uniform number per row [B]."""
    cumulative = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
    point = uniform.to(logits.device)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)


class SamplingOptions(TypedDict, total=False):
    """The options of `Sampling` by name, for signatures that take them one by one."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The sampling options: bias, penalties, temperature, top-k, top-p and min-p are applied in this order.

    Temperature 0 (or almost 0) takes the best token. The repetition penalty includes the tokens of the prompt; those
    for presence and frequency, as in OpenAI's API, count generated tokens only.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        top_k, top_p, min_p = self.top_k, self.top_p, self.min_p
        self._check("temperature", 0.0 <= self.temperature < INFINITY, "finite and 0 or more; 0 takes the best token")
        self._check("top_k", top_k is None or top_k >= 1, "1 or more; leave it out to keep every token")
        self._check("top_p", top_p is None or 0.0 < top_p <= 1.0, "above 0 and at most 1")
        self._check("min_p", min_p is None or 0.0 <= min_p <= 1.0, "between 0 and 1")
        penalty = 0.0 < self.repetition_penalty < INFINITY
        self._check("repetition_penalty", penalty, "above 0 and finite; 1 is no penalty, 1.2 is usual")
        for name in ("presence_penalty", "frequency_penalty"):
            self._check(name, abs(getattr(self, name)) < INFINITY, "finite; 0 is no penalty, -2 to 2 is usual")
        biases = all(token >= 0 and not math.isnan(bias) for token, bias in self.logit_bias.items())
        self._check("logit_bias", biases, "a number for each token, by its id; -inf excludes a token")
        self._check("seed", 0 <= self.seed < 2**63, "between 0 and 2^63 - 1")

    @property
    def greedy(self) -> bool:
        """Whether the best token is always taken, without random numbers."""
        return self.temperature < COLDEST

    def given(self) -> list[str]:
        """The names of the options that differ from their defaults, without the seed."""
        plain = Sampling(seed=self.seed)
        return [each.name for each in fields(self) if getattr(self, each.name) != getattr(plain, each.name)]

    def _check_types(self) -> None:
        """Raise a TypeError if an option is not a number."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "logit_bias" or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{each.name} = {value!r}: give a number")

    def _check(self, name: str, good: bool, allowed: str) -> None:
        if not good:
            raise ArgumentError(name, getattr(self, name), f"it must be {allowed}")


class Sampler:
    """Chooses the next tokens of B texts by the options of a `Sampling`.

    Each text has its own generator: the same seed gives the same text, whatever else uses random numbers meanwhile,
    and the first text is the same however many there are.
    """

    def __init__(self, sampling: Sampling | None = None) -> None:
        self.sampling = sampling or Sampling()
        self._generators: list[torch.Generator] = []
        self._prompt: Tensor | None = None
        self._previous: Tensor | None = None  # [B, V], only with a repetition penalty
        self._counts: Tensor | None = None  # [B, V], only with a penalty for presence or frequency
        bias = self.sampling.logit_bias
        self._biased = torch.tensor(list(bias)), torch.tensor(list(bias.values()), dtype=torch.float32)

    def begin(self, prompt: Tensor, *, first: int = 0) -> None:
        """Begin B new texts with the tokens [B, T] of their prompts.

        They are texts `first`, `first` + 1, … of the seed; each has its own random numbers.
        """
        self._generators = [generator_of(self.sampling.seed, first + row) for row in range(len(prompt))]
        self._prompt, self._previous, self._counts = prompt, None, None

    def __call__(self, logits: Tensor) -> Tensor:
        """The next tokens [B], chosen by the logits [B, V]."""
        if not self._generators:
            self.begin(torch.empty(len(logits), 0, dtype=torch.long, device=logits.device))
        chosen = self.choose(self.apply_penalties(logits), [self])
        self.record(chosen)
        return chosen

    def choose(self, logits: Tensor, samplers: Sequence[Sampler]) -> Tensor:
        """The best tokens, or tokens sampled with the random numbers of `samplers`; penalties are applied before."""
        if self.sampling.greedy:
            return logits.argmax(-1)
        uniform = [sampler.uniform() for sampler in samplers]
        return sample(self.apply_filters(logits), uniform[0] if len(uniform) == 1 else torch.cat(uniform))

    def record(self, chosen: Tensor) -> None:
        """Count the chosen tokens [B], for penalties."""
        if self._previous is not None:
            self._previous.scatter_(1, chosen[:, None], True)
        if self._counts is not None:
            self._counts.scatter_add_(1, chosen[:, None], torch.ones_like(self._counts[:, :1]))

    def apply_filters(self, logits: Tensor) -> Tensor:
        """The logits of the distribution that is sampled from; -inf for excluded tokens."""
        sampling = self.sampling
        if sampling.temperature != 1.0:
            logits = apply_temperature(logits, sampling.temperature)
        if sampling.top_k is not None:
            logits = keep_top_k(logits, sampling.top_k)
        if sampling.top_p is not None:
            logits = keep_top_p(logits, sampling.top_p)
        if sampling.min_p is not None:
            logits = keep_min_p(logits, sampling.min_p)
        return logits

    @property
    def has_penalties(self) -> bool:
        """Whether there are biases or penalties."""
        sampling = self.sampling
        penalties = sampling.presence_penalty, sampling.frequency_penalty
        return bool(sampling.logit_bias) or sampling.repetition_penalty != 1.0 or any(penalties)

    def apply_penalties(self, logits: Tensor) -> Tensor:
        """The logits with biases and penalties; the given tensor is not changed."""
        sampling = self.sampling
        if sampling.logit_bias:
            tokens, bias = (part.to(logits.device) for part in self._biased)
            if (most := max(sampling.logit_bias)) >= logits.shape[-1]:
                raise ValueError(f"logit_bias for token {most}: there are {logits.shape[-1]} tokens, from 0 on")
            logits = logits.index_add(1, tokens, bias.to(logits.dtype).expand(len(logits), -1))
        if sampling.repetition_penalty != 1.0:
            if self._previous is None:
                self._previous = _tokens_in(self._prompt, logits)
            logits = penalize(logits, self._previous, sampling.repetition_penalty)
        if sampling.presence_penalty or sampling.frequency_penalty:
            if self._counts is None:
                self._counts = torch.zeros_like(logits)
            logits = penalize_counts(
                logits, self._counts, presence=sampling.presence_penalty, frequency=sampling.frequency_penalty
            )
        return logits

    def uniform(self) -> Tensor:
        """The next random number of each text [B], in [0, 1)."""
        numbers = [torch.rand(1, generator=each, dtype=torch.float64) for each in self._generators]
        return numbers[0] if len(numbers) == 1 else torch.cat(numbers)


def sample_each(logits: Tensor, samplers: Sequence[Sampler]) -> list[int]:
    """The next token of each row of logits [B, V] by its own sampler, begun with one text.

    Rows with the same options are sampled together; each is chosen as it would be alone, to the bit.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    penalized = {number: sampler for number, sampler in enumerate(samplers) if sampler.has_penalties}
    if penalized:
        rows = [logits[number : number + 1] for number in range(len(samplers))]
        for number, sampler in penalized.items():
            rows[number] = sampler.apply_penalties(rows[number])
        logits = torch.cat(rows)
    for number, sampler in enumerate(samplers):
        sampling = sampler.sampling
        alike.setdefault((sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p), []).append(number)
    chosen = torch.empty(len(samplers), dtype=torch.long, device=logits.device)
    for numbers in alike.values():
        index = torch.tensor(numbers, device=logits.device)
        group = [samplers[number] for number in numbers]
        chosen[index] = group[0].choose(logits if len(alike) == 1 else logits[index], group)
    for number, sampler in penalized.items():
        sampler.record(chosen[number : number + 1])
    return [int(token) for token in chosen.tolist()]


def _tokens_in(prompt: Tensor | None, logits: Tensor) -> Tensor:
    """Which tokens the prompt [B, T] contains, as [B, V]; new words of an open vocabulary have no logit to lower."""
    found = torch.zeros(logits.shape[0], logits.shape[1] + 1, dtype=torch.bool, device=logits.device)
    if prompt is not None:
        found.scatter_(1, prompt.to(logits.device).clamp(max=logits.shape[1]), True)
    return found[:, :-1].contiguous()


def generator_of(seed: int, row: int) -> torch.Generator:
    """The random numbers of one text among several; the first has those of the seed itself."""
    if row:
        seed = int(np.random.SeedSequence([seed, row]).generate_state(1, np.uint64)[0]) >> 1
    return torch.Generator().manual_seed(seed)
