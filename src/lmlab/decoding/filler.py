"""Filling blanks: what a model that reads both ways puts where a token is missing.

Several blanks can be filled each by itself, P(a)·P(b), or together by the chain rule, P(a)·P(b | a): in "I saw
[MASK] [MASK]", New goes with York and Golden with Gate, but New Gate is nonsense (Yang et al. 2019, section 2.2).
Shapes: K fillings at once, T tokens, N blanks, D width, V vocabulary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lmlab.decoding.masked_text import MaskedText, encode_masked_text, fill_masks
from lmlab.models.abilities import FillsBlanks, require
from lmlab.models.model import Filler
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame

Order = str | Sequence[int]
"""One of ORDERS, or the numbers of the blanks from 1 on, in the order in which they are filled: "2,1" or (2, 1)."""
ORDERS = ("left-to-right", "confident", "right-to-left")
BEAMS = 16


def find_order(given: Order, blanks: int | None = None) -> list[int] | None:
    """The blanks, counted from 0, in the order in which they are filled; None where the surest is always the next.

    A ValueError where there is no such order, or not of so many `blanks`.
    """
    count = blanks or 0
    if given in ORDERS:
        return {"left-to-right": list(range(count)), "right-to-left": list(range(count))[::-1]}.get(str(given))
    if isinstance(given, str) and not re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", given):
        raise ValueError(
            f"order {given!r} is not known; allowed: {', '.join(ORDERS)}, or the numbers of the blanks in the order in "
            f"which they are filled, such as 2,1,3"
        )
    numbers = [int(number) for number in (given.split(",") if isinstance(given, str) else given)]
    if sorted(numbers) != list(range(1, (blanks or len(numbers)) + 1)):
        told = ",".join(map(str, numbers))
        raise ValueError(
            f"order {told} is no permutation of the blanks: name each from 1 to {blanks or len(numbers)} once"
        )
    return [number - 1 for number in numbers]


class Candidate(NamedTuple):
    """What may stand in one blank while the others stay open."""

    token: str
    probability: float


@dataclass(frozen=True)
class Filling:
    """The text with every blank filled."""

    text: str
    tokens: tuple[str, ...]  # one for each blank
    independent: float  # the product of the tokens' probabilities, each while all blanks are open
    joint: float  # the probability by the chain rule, each given those that were filled before it


@dataclass(frozen=True)
class Filled:
    """The best fillings of a text, by `joint` or by `independent` probability, and each blank by itself."""

    fillings: list[Filling]
    blanks: list[list[Candidate]]
    jointly: bool
    by_generator: bool = False  # ELECTRA: the generator fills, the discriminator cannot


@dataclass(frozen=True, kw_only=True)
class MaskFiller:
    """A model that fills blanks, with its tokenizer and what stands around a text."""

    model: FillsBlanks
    tokenizer: Tokenizer
    frame: Frame
    by_generator: bool = False
    """Whether it is another network than the one that users hold: ELECTRA's discriminator fills nothing."""
    progress: ReportProgress | None = None
    """Is told after each reading of the text how many there were, and how many there will be."""

    @torch.inference_mode()
    def fill(
        self, text: str, *, top: int = 5, jointly: bool = False, order: Order = "left-to-right", beams: int = BEAMS
    ) -> Filled:
        """The `top` fillings of a text with blanks, and the `top` tokens of each blank by itself.

        `jointly` ranks by the chain rule, searched with `beams` fillings at a time; otherwise by the product, which is
        exact. A masked model's conditionals need not be those of one distribution, so `order` matters: blanks are
        filled from left to right, the one of which the model is surest first, or as their numbers say ("2,1").
        """
        if top < 1 or beams < 1:
            raise ValueError(f"top = {top}, beams = {beams}: both must be at least 1")
        find_order(order)
        blanked = self.encode(text)
        sequence = find_order(order, len(blanked.places))
        tokenizer = self.tokenizer
        count = len(blanked.places)
        blanks = _Blanks(self.model, blanked, sequence, self.progress, 1 + count + (count if jointly else 0))
        alone = blanks.alone()
        chosen = blanks.search(max(beams, top)) if jointly else _best_products(alone, top)
        chosen = chosen[:top]
        joint = blanks.chain(chosen)
        each = alone[torch.arange(len(blanked.places), device=alone.device), chosen]  # [K, N]
        probability, token = alone.exp().topk(min(top, alone.shape[1]))
        return Filled(
            fillings=[
                Filling(
                    text=fill_masks(blanked.parts, row, tokenizer),
                    tokens=tuple(map(tokenizer.show, row)),
                    independent=math.exp(product),
                    joint=math.exp(chained),
                )
                for row, product, chained in zip(chosen.tolist(), each.sum(1).tolist(), joint.tolist(), strict=True)
            ],
            blanks=[
                [Candidate(tokenizer.show(i), p) for i, p in zip(tokens, probabilities, strict=True)]
                for tokens, probabilities in zip(token.tolist(), probability.tolist(), strict=True)
            ],
            jointly=jointly,
            by_generator=self.by_generator,
        )

    def encode(self, text: str) -> MaskedText:
        """A text with blanks as the model reads it; a ValueError where it has no blank, or is too long."""
        blanked = encode_masked_text(text, self.tokenizer, self.frame)
        if self.model.window is not None and len(blanked.tokens) > self.model.window:
            raise ValueError(
                f"the text has {len(blanked.tokens)} tokens with [CLS] and [SEP], and the model reads at most "
                f"{self.model.window}: shorten it, or leave out sentences far from the blanks"
            )
        return blanked


def filler_of(model: object, tokenizer: Tokenizer, frame: Frame) -> MaskFiller:
    """What of a model fills blanks; ELECTRA's generator is another network than the one that users hold."""
    found = require(model, FillsBlanks)
    other = isinstance(found, Filler) and found.encoder is not model
    return MaskFiller(model=found, tokenizer=tokenizer, frame=frame, by_generator=other)


class _Blanks:
    """The blanks of one text, to be filled in K ways at once."""

    def __init__(
        self,
        model: FillsBlanks,
        blanked: MaskedText,
        sequence: list[int] | None,
        progress: ReportProgress | None,
        readings: int,
    ) -> None:
        self.model, self.sequence = model, sequence
        self.progress, self.readings, self.done = progress, readings, 0
        self.row = torch.tensor([blanked.tokens], device=model.device)
        self.places = torch.tensor(blanked.places, device=model.device)

    def alone(self) -> Tensor:
        """The log-probabilities of each blank while all are open [N, V]."""
        return self._log_probabilities(self._read(self.row, self.places[None])[0])

    def search(self, beams: int) -> Tensor:
        """The most probable fillings by the chain rule that a beam search finds [K, N], best first."""
        rows, totals = self.row, torch.zeros(1, dtype=torch.float64, device=self.row.device)
        still_open = torch.ones(1, len(self.places), dtype=torch.bool, device=self.row.device)
        for _ in self.places:
            which, scores = self._next(rows, still_open)
            totals, flat = (totals[:, None] + scores).flatten().topk(min(beams, scores.numel()))
            parent, token = flat // scores.shape[1], flat % scores.shape[1]
            rows, still_open = self._put(rows[parent], still_open[parent], which[parent], token)
        return rows[:, self.places]

    def chain(self, fillings: Tensor) -> Tensor:
        """The log-probability of each filling [K, N] by the chain rule [K]."""
        rows = self.row.expand(len(fillings), -1)
        still_open = torch.ones_like(fillings, dtype=torch.bool)
        totals = torch.zeros(len(fillings), dtype=torch.float64, device=rows.device)
        for _ in self.places:
            which, scores = self._next(rows, still_open)
            token = fillings.gather(1, which[:, None])
            totals = totals + scores.gather(1, token)[:, 0]
            rows, still_open = self._put(rows.clone(), still_open.clone(), which, token[:, 0])
        return totals

    def _next(self, rows: Tensor, still_open: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row [K, T], which open blank is filled next [K], and the log-probabilities there [K, V].

        All rows have as many open blanks; those that are filled are read as part of the text.
        """
        left = still_open.nonzero()[:, 1].view(len(rows), -1)  # [K, n]
        hidden = self._read(rows, self.places[left])  # [K, n, D]
        every = torch.arange(len(rows), device=rows.device)
        if self.sequence is not None:
            blank = self.sequence[len(self.places) - left.shape[1]]
            chosen = (left == blank).int().argmax(1)
            return left[every, chosen], self._log_probabilities(hidden[every, chosen])
        scores = self._log_probabilities(hidden)
        chosen = scores.amax(-1).argmax(1)
        return left[every, chosen], scores[every, chosen]

    def _read(self, rows: Tensor, at: Tensor) -> Tensor:
        check_cancelled()
        hidden = self.model.read(tokens=rows, at=at)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.readings)
        return hidden

    def _put(self, rows: Tensor, still_open: Tensor, which: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        every = torch.arange(len(rows), device=rows.device)
        rows[every, self.places[which]] = token
        still_open[every, which] = False
        return rows, still_open

    def _log_probabilities(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden).double().log_softmax(-1)


def _best_products(alone: Tensor, top: int) -> Tensor:
    """The best fillings where each blank counts by itself [K, N], best first: exact, for a sum of scores [N, V]."""
    fillings, totals = torch.empty(1, 0, dtype=torch.long, device=alone.device), alone.new_zeros(1)
    for scores in alone:
        best, token = scores.topk(min(top, len(scores)))
        sums = totals[:, None] + best
        totals, flat = sums.flatten().topk(min(top, sums.numel()))
        fillings = torch.cat([fillings[flat // len(best)], token[flat % len(best)][:, None]], dim=1)
    return fillings
