"""Continue sequences that are not text, token by token: the notes of a piece, the pixels of a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.models.abilities import PredictsNext

Report = Callable[[int, int], None]


class Continuation(NamedTuple):
    """A sequence that a model has continued."""

    ids: tuple[int, ...]  # with those that were given, without boundaries
    given: int  # the number of tokens that were given
    ended: bool  # whether the model ended the item


def continue_tokens(
    model: PredictsNext,
    given: Sequence[int],
    *,
    boundary: int,
    tokens: int,
    sampling: Sampling,
    samples: int = 1,
    report: Report = lambda done, total: None,
) -> list[Continuation]:
    """Return `samples` continuations of the tokens after a boundary, each by at most `tokens` tokens.

    Each has its own random numbers, so the first is the same for any number of samples.
    """
    row = torch.tensor([[boundary, *given]], device=model.device)
    found, ended = [list(given) for _ in range(samples)], [False] * samples
    steps = generate(model, row, tokens=tokens, pick=Sampler(sampling), samples=samples, boundary=boundary)
    for done, step in enumerate(steps, start=1):
        for each in step:
            ended[each.row] = each.token == boundary
            if not ended[each.row]:
                found[each.row].append(each.token)
        report(done, tokens)
    return [Continuation(tuple(ids), len(given), end) for ids, end in zip(found, ended, strict=True)]
