"""Ways to choose the next token: each a small pure function on scores [B, V], composed by `Sampler`.

`Sampling` is the record of all options, checked once; `Sampler` draws by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from lmlab.names import ArgumentError

INFINITY = float("inf")
COLDEST = 1e-6
"""The temperature below which the best token is taken: scores divided by less may overflow."""


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Sharpen (below 1) or flatten (above 1) the distribution: softmax(logits / temperature)."""
    return logits / temperature


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Leave the k best tokens (and any that tie with the last of them); Fan et al. 2018."""
    if k >= logits.shape[-1]:
        return logits
    last = logits.topk(k).values[:, -1:]
    return logits.masked_fill(logits < last, -INFINITY)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Leave the smallest set of best tokens whose probabilities reach p: the nucleus of Holtzman et al. 2020.

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
    """The least probability in the nucleus [B, 1] as far as the best `count` tokens tell; and [B] whether they do."""
    ranked = probabilities.topk(count).values
    before = ranked.cumsum(-1) - ranked  # the mass of all better tokens
    last = ranked.masked_fill(before >= p, INFINITY).amin(-1, keepdim=True)
    return last, (before[:, -1] >= p) | torch.full_like(
        before[:, -1], count == probabilities.shape[-1], dtype=torch.bool
    )


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Leave the tokens with at least p times the probability of the best one; Nguyen et al. 2024."""
    if p <= 0.0:
        return logits
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -INFINITY)


def penalize(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens that were `seen` [B, V] less likely; CTRL, Keskar et al. 2019, section 4.1.

    Scores are divided by the penalty where positive and multiplied where negative, as is done since (the paper's
    division alone would favour a repeated token of negative score).
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def penalize_counts(logits: Tensor, counts: Tensor, *, presence: float, frequency: float) -> Tensor:
    """Lower the scores of tokens by `presence` where they were written, and by `frequency` each time they were."""
    return logits - presence * (counts > 0) - frequency * counts


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """One token [B] from softmax(logits), by inverting the cumulative distribution at a uniform number per row [B]."""
    cumulative = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
    point = uniform.to(logits.device)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)


class Drawing(TypedDict, total=False):
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
    """How tokens are drawn: bias, penalties, temperature, top-k, top-p and min-p, in this order.

    Temperature 0, or next to it, takes the best token. The repetition penalty sees the prompt, too; those for presence
    and frequency, as in OpenAI's API, only what has been written.
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
        self._check("logit_bias", biases, "a number for each token, by its id; -inf leaves a token out")
        self._check("seed", 0 <= self.seed < 2**63, "between 0 and 2^63 - 1")

    @property
    def greedy(self) -> bool:
        """Whether the best token is taken, and nothing drawn."""
        return self.temperature < COLDEST

    def given(self) -> list[str]:
        """The options that are not as they are by default, without the seed."""
        plain = Sampling(seed=self.seed)
        return [each.name for each in fields(self) if getattr(self, each.name) != getattr(plain, each.name)]

    def _check_types(self) -> None:
        """A TypeError where an option is no number."""
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
    """Draws the next tokens of B texts by the options of a `Sampling`.

    Each text has its own generator: the same seed gives the same text, whatever else draws random numbers meanwhile,
    and the first text is the same however many there are.
    """

    def __init__(self, sampling: Sampling | None = None) -> None:
        self.sampling = sampling or Sampling()
        self._generators: list[torch.Generator] = []
        self._prompt: Tensor | None = None
        self._seen: Tensor | None = None  # [B, V], only with a repetition penalty
        self._counts: Tensor | None = None  # [B, V], only with a penalty for presence or frequency
        bias = self.sampling.logit_bias
        self._biased = torch.tensor(list(bias)), torch.tensor(list(bias.values()), dtype=torch.float32)

    def begin(self, prompt: Tensor, *, first: int = 0) -> None:
        """Begin B new texts with the tokens [B, T] that they start with.

        They are texts `first`, `first` + 1, … of the seed, which each have their own random numbers.
        """
        self._generators = [generator_of(self.sampling.seed, first + row) for row in range(len(prompt))]
        self._prompt, self._seen, self._counts = prompt, None, None

    def __call__(self, logits: Tensor) -> Tensor:
        """The next tokens [B], chosen by the scores [B, V]."""
        if not self._generators:
            self.begin(torch.empty(len(logits), 0, dtype=torch.long, device=logits.device))
        logits = self.lean(logits)
        chosen = logits.argmax(-1) if self.sampling.greedy else draw(self.shape(logits), self.uniform())
        self.note(chosen)
        return chosen

    def note(self, chosen: Tensor) -> None:
        """Remember the tokens [B] that were chosen, for penalties."""
        if self._seen is not None:
            self._seen.scatter_(1, chosen[:, None], True)
        if self._counts is not None:
            self._counts.scatter_add_(1, chosen[:, None], torch.ones_like(self._counts[:, :1]))

    def shape(self, logits: Tensor) -> Tensor:
        """The scores of the distribution that is drawn from; -inf where a token is left out."""
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
    def leans(self) -> bool:
        """Whether there are biases or penalties."""
        sampling = self.sampling
        penalties = sampling.presence_penalty, sampling.frequency_penalty
        return bool(sampling.logit_bias) or sampling.repetition_penalty != 1.0 or any(penalties)

    def lean(self, logits: Tensor) -> Tensor:
        """The scores with biases and penalties; the given ones stay as they are."""
        sampling = self.sampling
        if sampling.logit_bias:
            tokens, bias = (part.to(logits.device) for part in self._biased)
            if (most := max(sampling.logit_bias)) >= logits.shape[-1]:
                raise ValueError(f"logit_bias for token {most}: there are {logits.shape[-1]} tokens, from 0 on")
            logits = logits.index_add(1, tokens, bias.to(logits.dtype).expand(len(logits), -1))
        if sampling.repetition_penalty != 1.0:
            if self._seen is None:
                self._seen = _seen_in(self._prompt, logits)
            logits = penalize(logits, self._seen, sampling.repetition_penalty)
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


def draw_each(logits: Tensor, samplers: Sequence[Sampler]) -> list[int]:
    """The next token of each row of scores [B, V] by a sampler of its own, begun with one text.

    Rows that are drawn in the same way are drawn at once; each is chosen as it would be alone, to the bit.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    leaning = {number: sampler for number, sampler in enumerate(samplers) if sampler.leans}
    if leaning:
        rows = [logits[number : number + 1] for number in range(len(samplers))]
        for number, sampler in leaning.items():
            rows[number] = sampler.lean(rows[number])
        logits = torch.cat(rows)
    for number, sampler in enumerate(samplers):
        sampling = sampler.sampling
        alike.setdefault((sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p), []).append(number)
    chosen = torch.empty(len(samplers), dtype=torch.long, device=logits.device)
    for numbers in alike.values():
        index = torch.tensor(numbers, device=logits.device)
        scores = logits if len(alike) == 1 else logits[index]
        if samplers[numbers[0]].sampling.greedy:
            picked = scores.argmax(-1)
        else:
            uniform = torch.cat([samplers[number].uniform() for number in numbers])
            picked = draw(samplers[numbers[0]].shape(scores), uniform)
        chosen[index] = picked
    for number, sampler in leaning.items():
        sampler.note(chosen[number : number + 1])
    return [int(token) for token in chosen.tolist()]


def _seen_in(prompt: Tensor | None, logits: Tensor) -> Tensor:
    """Which tokens stand in the prompt [B, T], as [B, V]; new words of an open vocabulary have no score to lower."""
    seen = torch.zeros(logits.shape[0], logits.shape[1] + 1, dtype=torch.bool, device=logits.device)
    if prompt is not None:
        seen.scatter_(1, prompt.to(logits.device).clamp(max=logits.shape[1]), True)
    return seen[:, :-1].contiguous()


def generator_of(seed: int, row: int) -> torch.Generator:
    """The random numbers of one text among several: those of the seed itself for the first."""
    if row:
        seed = int(np.random.SeedSequence([seed, row]).generate_state(1, np.uint64)[0]) >> 1
    return torch.Generator().manual_seed(seed)
