"""Beam search: the most probable continuations, kept k at a time.

Shapes: B texts at once, K beams each, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lmlab.decoding.generate import Reader
from lmlab.models.model import LanguageModel


class Hypothesis(NamedTuple):
    """One continuation that the search ended with."""

    tokens: list[int]  # with the boundary at its end where it finished
    log_probability: float  # summed over the tokens, in nats
    score: float  # log_probability / length penalty, by which hypotheses are ranked
    finished: bool  # whether it ended with the boundary, not at the greatest length


class Expansion(NamedTuple):
    """One level of the search tree: what became of the beams in one step, best first."""

    parent: Tensor  # [B, C] which of the K beams a candidate continues
    token: Tensor  # [B, C] by which token
    log_probability: Tensor  # [B, C] of the whole continuation; -inf where there is no candidate
    kept: Tensor  # [B, K] which candidates are the next beams


def length_penalty_of(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha, by which log-probabilities are divided; Wu et al. 2016, equation 14.

    Summed log-probabilities favour short texts; alpha 0 leaves that as it is, 0.6 to 1 is usual for translation.
    """
    return float(((5 + length) / 6) ** alpha)


@torch.inference_mode()
def beam_search(
    model: LanguageModel,
    prompt: Tensor,
    *,
    tokens: int,
    beams: int,
    boundary: int | None = None,
    length_penalty: float = 0.0,
    watch: Callable[[Expansion], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best continuations of prompts [B, T] by at most `tokens` tokens: for each prompt up to K, best first.

    In each step every beam is continued by every token and the best K candidates stay. One that ends with `boundary`
    leaves the search as a result, and the next best takes its place. A text is done when K results are in and no beam
    can still beat the worst of them; beams that reach the greatest length are results as they are.
    """
    if tokens < 1 or beams < 1:
        raise ValueError(f"tokens = {tokens}, beams = {beams}: both must be at least 1")
    device, size = prompt.device, prompt.shape[0]
    reader = Reader(model, batch=size)
    logits = reader.read(prompt)
    vocabulary = logits.shape[-1]
    first_row = torch.arange(size, device=device)[:, None] * beams
    rows = torch.arange(size, device=device).repeat_interleave(beams)
    reader.reorder(rows)
    logits = logits[rows]
    totals = torch.full((size, beams), -torch.inf, dtype=torch.float64, device=device)
    totals[:, 0] = 0.0  # all beams are the same text at first: only one of them counts
    texts = torch.empty((size, beams, 0), dtype=torch.long, device=device)
    results: list[list[Hypothesis]] = [[] for _ in range(size)]

    for length in range(1, tokens + 1):
        joint = totals[:, :, None] + logits.log_softmax(-1).view(size, beams, vocabulary)  # [B, K, V]
        best, flat = joint.flatten(1).topk(min(2 * beams, beams * vocabulary))  # [B, C], C >= 2K or all there is
        parent, token = flat.div(vocabulary, rounding_mode="floor"), flat % vocabulary
        going = best
        if boundary is not None:
            ends = token == boundary
            going = best.masked_fill(ends, -torch.inf)
            ends[:, beams:] = False
            for row, column in (ends & best.isfinite()).nonzero().tolist():
                text = [*texts[row, parent[row, column]].tolist(), boundary]
                _add(results[row], text, float(best[row, column]), length_penalty, beams, finished=True)
        totals, kept = going.topk(beams)
        if watch is not None:
            watch(Expansion(parent, token, best, kept))
        parent, token = parent.gather(1, kept), token.gather(1, kept)
        texts = torch.cat([texts.gather(1, parent[:, :, None].expand(-1, -1, length - 1)), token[:, :, None]], dim=2)
        if length == tokens or all(
            _settled(result, float(top), length, tokens, length_penalty, beams)
            for result, top in zip(results, totals[:, 0].tolist(), strict=True)
        ):
            break
        if beams > 1:
            reader.reorder((first_row + parent).flatten())
        logits = reader.read(token.view(-1, 1))

    for row, column in totals.isfinite().nonzero().tolist():
        if texts.shape[2] == tokens:
            text = texts[row, column].tolist()
            _add(results[row], text, float(totals[row, column]), length_penalty, beams, finished=False)
    return results


def _add(results: list[Hypothesis], text: list[int], total: float, alpha: float, beams: int, *, finished: bool) -> None:
    """Put a hypothesis among the best `beams`, best first."""
    results.append(Hypothesis(text, total, total / length_penalty_of(len(text), alpha), finished))
    results.sort(key=lambda hypothesis: -hypothesis.score)
    del results[beams:]


def _settled(results: list[Hypothesis], top: float, length: int, tokens: int, alpha: float, beams: int) -> bool:
    """Whether no continuation of a beam can enter the results: a total only falls, its penalty is known in advance."""
    if top == -torch.inf:
        return True
    bound = top / max(length_penalty_of(length + 1, alpha), length_penalty_of(tokens, alpha))
    return len(results) == beams and results[-1].score >= bound
