"""Filling masks: a model that reads both sides predicts the masked tokens of a text.

Several masks are filled independently, P(a)·P(b), or jointly by the chain rule, P(a)·P(b | a): in "I saw [MASK]
[MASK]", New goes with York and Golden with Gate, but New Gate is nonsense (Yang et al. 2019, section 2.2).
Shapes: K fillings at once, T tokens, N masks, D width, V vocabulary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from lmlab.decoding.masked_text import MaskedText, encode_masked_text, fill_masks
from lmlab.models.abilities import FillsMasks, require
from lmlab.models.model import Filler
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame

Order = str | Sequence[int]
"""One of ORDERS, or the numbers of the masks from 1 on, in the order of filling: "2,1" or (2, 1)."""
ORDERS = ("left-to-right", "confident", "right-to-left")
BEAMS = 16


def find_order(given: Order, masks: int | None = None) -> list[int] | None:
    """The masks, counted from 0, in the order of filling; None for the most confident first.

    A ValueError if the order is unknown, or is not one of `masks` masks.
    """
    count = masks or 0
    if given in ORDERS:
        return {"left-to-right": list(range(count)), "right-to-left": list(range(count))[::-1]}.get(str(given))
    if isinstance(given, str) and not re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", given):
        raise ValueError(
            f"order {given!r} is not known; allowed: {', '.join(ORDERS)}, or the numbers of the masks in the order "
            f"of filling, such as 2,1,3"
        )
    numbers = [int(number) for number in (given.split(",") if isinstance(given, str) else given)]
    if sorted(numbers) != list(range(1, (masks or len(numbers)) + 1)):
        shown = ",".join(map(str, numbers))
        raise ValueError(
            f"order {shown} is not a permutation of the masks: name each from 1 to {masks or len(numbers)} once"
        )
    return [number - 1 for number in numbers]


class MaskCandidate(NamedTuple):
    """A token for one mask while the others are not filled."""

    token: str
    probability: float


@dataclass(frozen=True)
class Filling:
    """The text with every mask filled."""

    text: str
    tokens: tuple[str, ...]  # one for each mask
    independent: float  # the product of the tokens' probabilities, each while no mask is filled
    joint: float  # the probability by the chain rule, each given those filled before it


@dataclass(frozen=True)
class Filled:
    """The best fillings of a text, by `joint` or `independent` probability, and the `candidates` of each mask."""

    fillings: list[Filling]
    candidates: list[list[MaskCandidate]]
    jointly: bool
    by_generator: bool = False  # ELECTRA: the generator fills, the discriminator cannot


@dataclass(frozen=True, kw_only=True)
class MaskFiller:
    """A model that fills masks, with its tokenizer and its frame."""

    model: FillsMasks
    tokenizer: Tokenizer
    frame: Frame
    by_generator: bool = False
    """Whether it is not the model that users hold: ELECTRA's discriminator cannot fill masks, its generator can."""
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """What the model reads beside the text, one row each: the regions of a picture."""
    progress: ReportProgress | None = None
    """Called after each pass over the text with the number of passes done and in total."""

    @torch.inference_mode()
    def fill(
        self, text: str, *, top: int = 5, jointly: bool = False, order: Order = "left-to-right", beams: int = BEAMS
    ) -> Filled:
        """The `top` fillings of a text with masks, and the `top` tokens of each mask independently.

        `jointly` ranks by the chain rule, with a beam search of `beams` fillings; otherwise by the product, which is
        exact. A masked model's conditionals need not be those of one distribution, so `order` matters: masks are filled
        from left to right, the most confident first, or in the order of their numbers ("2,1").
        """
        if top < 1 or beams < 1:
            raise ValueError(f"top = {top}, beams = {beams}: both must be at least 1")
        find_order(order)
        masked = self.encode(text)
        sequence = find_order(order, len(masked.positions))
        tokenizer = self.tokenizer
        count = len(masked.positions)
        readings = 1 + count + (count if jointly else 0)
        masks = _Masks(self.model, masked, sequence, self.inputs, progress=self.progress, readings=readings)
        alone = masks.alone()
        chosen = masks.search(max(beams, top)) if jointly else _best_products(alone, top)
        chosen = chosen[:top]
        joint = masks.chain(chosen)
        each = alone[torch.arange(len(masked.positions), device=alone.device), chosen]  # [K, N]
        probability, token = alone.exp().topk(min(top, alone.shape[1]))
        return Filled(
            fillings=[
                Filling(
                    text=fill_masks(masked.parts, row, tokenizer),
                    tokens=tuple(map(tokenizer.show, row)),
                    independent=math.exp(product),
                    joint=math.exp(chained),
                )
                for row, product, chained in zip(chosen.tolist(), each.sum(1).tolist(), joint.tolist(), strict=True)
            ],
            candidates=[
                [MaskCandidate(tokenizer.show(i), p) for i, p in zip(tokens, probabilities, strict=True)]
                for tokens, probabilities in zip(token.tolist(), probability.tolist(), strict=True)
            ],
            jointly=jointly,
            by_generator=self.by_generator,
        )

    def encode(self, text: str) -> MaskedText:
        """A text with masks as the model reads it; a ValueError if it has no mask, or is too long."""
        masked = encode_masked_text(text, self.tokenizer, self.frame)
        if self.model.window is not None and len(masked.tokens) > self.model.window:
            raise ValueError(
                f"the text has {len(masked.tokens)} tokens with [CLS] and [SEP], and the model reads at most "
                f"{self.model.window}: shorten it, or leave out sentences far from the masks"
            )
        return masked


def filler_of(model: object, tokenizer: Tokenizer, frame: Frame) -> MaskFiller:
    """The part of a model that fills masks; for ELECTRA the generator, not the model that users hold."""
    found = require(model, FillsMasks)
    other = isinstance(found, Filler) and found.encoder is not model
    return MaskFiller(model=found, tokenizer=tokenizer, frame=frame, by_generator=other)


class _Masks:
    """The masks of one text, filled in K ways at once."""

    def __init__(
        self,
        model: FillsMasks,
        masked: MaskedText,
        sequence: list[int] | None,
        inputs: Mapping[str, Tensor],
        *,
        progress: ReportProgress | None,
        readings: int,
    ) -> None:
        self.model, self.sequence = model, sequence
        self.inputs = {name: value.to(model.device) for name, value in inputs.items()}
        self.progress, self.readings, self.done = progress, readings, 0
        self.row = torch.tensor([masked.tokens], device=model.device)
        self.positions = torch.tensor(masked.positions, device=model.device)

    def alone(self) -> Tensor:
        """The log-probabilities of each mask while none is filled [N, V]."""
        return self._log_probabilities(self._read(self.row, self.positions[None])[0])

    def search(self, beams: int) -> Tensor:
        """The most probable fillings by the chain rule, found by a beam search [K, N], best first."""
        rows, totals = self.row, torch.zeros(1, dtype=torch.float64, device=self.row.device)
        still_open = torch.ones(1, len(self.positions), dtype=torch.bool, device=self.row.device)
        for _ in self.positions:
            which, scores = self._next(rows, still_open)
            totals, flat = (totals[:, None] + scores).flatten().topk(min(beams, scores.numel()))
            parent, token = flat // scores.shape[1], flat % scores.shape[1]
            rows, still_open = self._put(rows[parent], still_open[parent], which[parent], token)
        return rows[:, self.positions]

    def chain(self, fillings: Tensor) -> Tensor:
        """The log-probability of each filling [K, N] by the chain rule [K]."""
        rows = self.row.expand(len(fillings), -1)
        still_open = torch.ones_like(fillings, dtype=torch.bool)
        totals = torch.zeros(len(fillings), dtype=torch.float64, device=rows.device)
        for _ in self.positions:
            which, scores = self._next(rows, still_open)
            token = fillings.gather(1, which[:, None])
            totals = totals + scores.gather(1, token)[:, 0]
            rows, still_open = self._put(rows.clone(), still_open.clone(), which, token[:, 0])
        return totals

    def _next(self, rows: Tensor, still_open: Tensor) -> tuple[Tensor, Tensor]:
        """For each row [K, T], which open mask is filled next [K], and the log-probabilities there [K, V].

        All rows have the same number of open masks; filled ones are read as part of the text.
        """
        left = still_open.nonzero()[:, 1].view(len(rows), -1)  # [K, n]
        hidden = self._read(rows, self.positions[left])  # [K, n, D]
        every = torch.arange(len(rows), device=rows.device)
        if self.sequence is not None:
            mask = self.sequence[len(self.positions) - left.shape[1]]
            chosen = (left == mask).int().argmax(1)
            return left[every, chosen], self._log_probabilities(hidden[every, chosen])
        scores = self._log_probabilities(hidden)
        chosen = scores.amax(-1).argmax(1)
        return left[every, chosen], scores[every, chosen]

    def _read(self, rows: Tensor, at: Tensor) -> Tensor:
        check_cancelled()
        beside = {name: value.expand(len(rows), *value.shape[1:]) for name, value in self.inputs.items()}
        hidden = self.model.read(tokens=rows, at=at, **beside)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.readings)
        return hidden

    def _put(self, rows: Tensor, still_open: Tensor, which: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        every = torch.arange(len(rows), device=rows.device)
        rows[every, self.positions[which]] = token
        still_open[every, which] = False
        return rows, still_open

    def _log_probabilities(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden).double().log_softmax(-1)


def _best_products(alone: Tensor, top: int) -> Tensor:
    """The best fillings if masks are independent [K, N], best first: exact, for a sum of log-probabilities [N, V]."""
    fillings, totals = torch.empty(1, 0, dtype=torch.long, device=alone.device), alone.new_zeros(1)
    for scores in alone:
        best, token = scores.topk(min(top, len(scores)))
        sums = totals[:, None] + best
        totals, flat = sums.flatten().topk(min(top, sums.numel()))
        fillings = torch.cat([fillings[flat // len(best)], token[flat % len(best)][:, None]], dim=1)
    return fillings
