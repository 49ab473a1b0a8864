"""Ways to choose the next token: each a small pure function on scores [B, V], composed by `Sampler`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

INFINITY = float("inf")


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

    The nucleus is nearly always small, so the best 512 are sorted first and all only where they fall short of p.
    """
    if p >= 1.0:
        return logits
    probabilities = logits.softmax(-1)
    for count in (min(512, logits.shape[-1]), logits.shape[-1]):
        ranked = probabilities.topk(count).values
        before = ranked.cumsum(-1) - ranked  # the mass of all better tokens
        if count == logits.shape[-1] or bool((before[:, -1] >= p).all()):
            break
    last = ranked.masked_fill(before >= p, INFINITY).amin(-1, keepdim=True)
    return logits.masked_fill(probabilities < last, -INFINITY)


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


def draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One token [B] from softmax(logits), by inverting the cumulative distribution at one uniform number per row."""
    cumulative = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
    uniform = torch.rand(logits.shape[0], 1, generator=generator, dtype=torch.float64, device=generator.device)
    point = uniform.to(logits.device) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)


class Sampler:
    """Draws the next token after penalty, temperature, top-k, top-p and min-p, in this order.

    It has its own generator: the same seed gives the same text, whatever else draws random numbers meanwhile.
    Temperature 0 takes the best token.
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
        seed: int = 0,
    ) -> None:
        _check(
            "temperature",
            temperature,
            0.0 <= temperature < INFINITY,
            "finite and 0 or more; 0 takes the best token",
        )
        _check("top_k", top_k, top_k is None or top_k >= 1, "1 or more; leave it out to keep every token")
        _check("top_p", top_p, top_p is None or 0.0 < top_p <= 1.0, "above 0 and at most 1")
        _check("min_p", min_p, min_p is None or 0.0 <= min_p <= 1.0, "between 0 and 1")
        _check(
            "repetition_penalty",
            repetition_penalty,
            0.0 < repetition_penalty < INFINITY,
            "above 0 and finite; 1 is no penalty, 1.2 is usual",
        )
        _check("seed", seed, 0 <= seed < 2**63, "between 0 and 2^63 - 1")
        self.temperature, self.top_k, self.top_p, self.min_p = temperature, top_k, top_p, min_p
        self.repetition_penalty = repetition_penalty
        self.seed = seed
        self._generator = torch.Generator().manual_seed(seed)
        self._prompt: Tensor | None = None
        self._seen: Tensor | None = None  # [B, V], only with a penalty

    def start(self, prompt: Tensor) -> None:
        self._generator.manual_seed(self.seed)
        self._prompt, self._seen = prompt, None

    def __call__(self, logits: Tensor) -> Tensor:
        if self.repetition_penalty != 1.0:
            logits = penalize(logits, self._mark(logits), self.repetition_penalty)
        chosen = logits.argmax(-1) if self.temperature == 0.0 else draw(self.shape(logits), self._generator)
        if self._seen is not None:
            self._seen.scatter_(1, chosen[:, None], True)
        return chosen

    def shape(self, logits: Tensor) -> Tensor:
        """The scores of the distribution that is drawn from; -inf where a token is left out."""
        if self.temperature != 1.0:
            logits = apply_temperature(logits, self.temperature)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        if self.min_p is not None:
            logits = keep_min_p(logits, self.min_p)
        return logits

    def _mark(self, logits: Tensor) -> Tensor:
        if self._seen is None:
            self._seen = torch.zeros_like(logits, dtype=torch.bool)
            if self._prompt is not None:
                self._seen.scatter_(1, self._prompt, True)
        return self._seen


def _check(name: str, value: float | None, good: bool, allowed: str) -> None:
    if not good:
        raise ValueError(f"{name} = {value}: it must be {allowed}")
