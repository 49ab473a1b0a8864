"""Masked language modelling: hide some tokens of a text and predict them from all the others, left and right.

Devlin et al. 2019 (BERT); dynamic masking and full sentences: Liu et al. 2019 (RoBERTa); sentence order: Lan et al.
2020 (ALBERT); spans: Joshi et al. 2020 (SpanBERT). `corrupt` chooses the tokens and what replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.corpora.pairs import PairSplit
from lmlab.data.loaders.framing import Integers
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.pairs import TranslationRows
from lmlab.data.loaders.rows import LengthSchedule, RowLoader, Rows, TextRows, WithMaskingRate
from lmlab.data.loaders.sentence_pairs import SentencePairs
from lmlab.metrics.metric import StreamingMetric, accuracy
from lmlab.models.abilities import FillsMasks, ScoresSentencePairs, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import IGNORE, Batch, Loss, PreTraining
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.pieces import Flags, Pieces, describe_pieces

Unit = Literal["token", "word", "span"]

SPAN_END = 0.2
LONGEST_SPAN = 10
"""The length of a span is geometric, P(n) ∝ 0.8ⁿ up to 10 words: 3.8 on average (Joshi et al. 2020, section 3.1)."""


PAIR_LENGTH = 32
"""Rows that are shorter at the beginning of a run hold one text: of two, a few tokens each would be left."""


class MaskedRowsConfig(Config):
    """How rows are made, and which of their tokens are chosen."""

    masking_rate: float = Field(0.15, gt=0, lt=1, description="fraction of the tokens of a row to predict")
    unit: Unit = Field("token", description="what is masked: single tokens, whole words, or spans of words")
    dynamic: bool = Field(
        True, description="dynamic masking: new masks each time a text is read; false: static masking"
    )
    short: int | list[int] | None = Field(
        None, description="sequence length in the first part of the run, below train.window; or several: [16, 64]"
    )
    short_fraction: float = Field(0.9, gt=0, lt=1, description="fraction of the run with short sequences")
    short_masking_rate: float | None = Field(
        None, gt=0, lt=1, description="fraction to predict in short sequences; by default masking_rate"
    )

    @property
    def short_lengths(self) -> list[int]:
        """The short sequence lengths, in the order of the run."""
        return [] if self.short is None else [self.short] if isinstance(self.short, int) else self.short

    @field_validator("short")
    @classmethod
    def _short_lengths_rise(cls, short: int | list[int] | None) -> int | list[int] | None:
        lengths = [short] if isinstance(short, int) else short
        if lengths is not None and (not lengths or lengths[0] < 5 or sorted(set(lengths)) != lengths):
            raise ValueError(f"{short}: give a length of 5 or more, or several of them, the shortest first: [16, 64]")
        return short


class MaskedConfig(MaskedRowsConfig):
    """What is hidden, and what else is asked."""

    mask_fraction: float = Field(0.8, ge=0, le=1, description="fraction of the chosen tokens replaced by [MASK]")
    random_fraction: float = Field(
        0.1, ge=0, le=1, description="fraction replaced by a random token; the rest are unchanged"
    )
    pairs: Literal["none", "next-sentence", "sentence-order"] = Field(
        "none",
        description="auxiliary objective on pairs of segments: next-sentence prediction (NSP) or sentence order (SOP)",
    )

    @field_validator("random_fraction")
    @classmethod
    def _fractions_fit(cls, random_fraction: float, info: ValidationInfo) -> float:
        mask_fraction = info.data.get("mask_fraction", 0.0)
        if mask_fraction + random_fraction > 1 + 1e-9:
            raise ValueError(
                f"mask_fraction = {mask_fraction:g} and random_fraction = {random_fraction:g} sum to more than 1"
            )
        return random_fraction


class MaskedRows(PreTraining):
    """What objectives over rows with masks have in common: the rows, and which of their tokens are chosen."""

    reads: ClassVar[tuple[str, ...]] = ("text", "languages")
    specials: ClassVar[tuple[str, ...]] = ("pad", "cls", "sep", "mask")
    likelihood: ClassVar[bool] = False
    extra_positions: int = 0  # positions of a row, beside the chosen ones, whose vectors the loss needs
    config: MaskedRowsConfig

    def __init__(self, config: MaskedRowsConfig, tokenizer: Tokenizer, frame: Frame) -> None:
        self.config, self.frame = config, frame
        self.pieces = describe_pieces(tokenizer)
        self.pad, self.mask = tokenizer.special("pad"), tokenizer.special("mask")

    def loader(self, data: TextSplit, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        """Rows of the window; with `short`, batches of as many tokens in shorter rows come first."""
        if streams:
            raise ValueError("a masked language model has no state from row to row; set train.order=shuffled")
        rows = self._rows(data, batch=batch, window=window, seed=seed)
        lengths = self.config.short_lengths
        if not lengths:
            return rows
        if lengths[-1] >= window:
            raise ValueError(
                f"objective.short = {self.config.short} is not shorter than the window of {window} tokens; "
                f"lower it, raise train.window, or set it to none"
            )
        short: list[RowLoader] = [
            self._rows(data, batch=max(1, batch * window // length), window=length, seed=seed, first=True)
            for length in lengths
        ]
        if (masking_rate := self.config.short_masking_rate) is not None:
            short = [WithMaskingRate(each, masking_rate) for each in short]
        return LengthSchedule(short, rows, fraction=self.config.short_fraction)

    def _rows(self, data: TextSplit, *, batch: int, window: int, seed: int, first: bool = False) -> RowLoader:
        fixed = not self.config.dynamic
        return TextRows(data.tokens, frame=self.frame, batch=batch, window=window, seed=seed, fixed=fixed)

    def _corrupt(
        self, raw: Rows, generator: np.random.Generator, **fractions: float
    ) -> tuple[Corrupted, RandomNumbers]:
        draws = sample_numbers(raw, generator, dynamic=self.config.dynamic)
        corrupted = corrupt(
            raw,
            draws,
            pieces=self.pieces,
            mask=self.mask,
            unit=self.config.unit,
            masking_rate=raw.masking_rate or self.config.masking_rate,
            **fractions,
        )
        return corrupted, draws

    def filling_flops(self, filler: FillsMasks, batch: Batch, *, memory_length: int = 0) -> float:
        """Floating-point operations of a forward pass: reading a batch, and the output layer at the chosen tokens."""
        positions = self.extra_positions + batch.labels["positions"].shape[1]
        body = filler.reading_flops(batch.inputs, positions=positions, memory_length=memory_length)
        return body + filler.head_flops() * batch.counts["masked"]


class Masked(MaskedRows):
    """Cross-entropy of the chosen tokens given the corrupted row, and with pairs that of the pair's label."""

    Config: ClassVar[type[Config]] = MaskedConfig
    reads: ClassVar[tuple[str, ...]] = ("text", "languages", "pairs")
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {
        "accuracy": accuracy,
        "pair_accuracy": accuracy,
    }
    config: MaskedConfig

    def __init__(self, config: MaskedConfig, tokenizer: Tokenizer, frame: Frame) -> None:
        super().__init__(config, tokenizer, frame)
        pairs = config.pairs != "none"
        self.extra_positions = int(pairs)  # [CLS], which tells about the pair
        self.loss_weights: Mapping[str, float] = {"masked": 1.0, "pair": 1.0} if pairs else {"masked": 1.0}

    @classmethod
    def needs(cls, config: MaskedConfig) -> tuple[type, ...]:
        return (FillsMasks,) if config.pairs == "none" else (FillsMasks, ScoresSentencePairs)

    @classmethod
    def usual_for(cls, data: str) -> dict[str, Any]:
        """Of a translation no sentence is the next."""
        return {"pairs": "none"} if data == "pairs" else {}

    def _rows(
        self, data: TextSplit | PairSplit, *, batch: int, window: int, seed: int, first: bool = False
    ) -> RowLoader:
        """Rows of text; of translation pairs, a text and its translation (translation language modelling).

        In the `first` part of a run rows may be too short for two texts.
        """
        if isinstance(data, PairSplit):
            if self.config.pairs != "none":
                raise ValueError(
                    "translation pairs allow no sentence-pair objective (NSP/SOP); set objective.pairs=none"
                )
            return TranslationRows(data, frame=self.frame, pad=self.pad, batch=batch, window=window, seed=seed)
        if self.config.pairs == "none" or (first and window < PAIR_LENGTH):
            return super()._rows(data, batch=batch, window=window, seed=seed)
        return SentencePairs(
            data,
            pieces=self.pieces,
            kind=self.config.pairs,
            frame=self.frame,
            pad=self.pad,
            batch=batch,
            window=window,
            seed=seed,
            fixed=not self.config.dynamic,
        )

    def batch(self, raw: Rows, generator: np.random.Generator) -> Batch:
        fractions = {"mask_fraction": self.config.mask_fraction, "random_fraction": self.config.random_fraction}
        corrupted, _ = self._corrupt(raw, generator, **fractions)
        if self.extra_positions and raw.pair is None:  # short rows; their loss of pairs is 0
            rows = len(raw.tokens)
            raw = raw._replace(pair=np.full(rows, IGNORE), cls=np.zeros(rows, np.int64))
        return make_batch(raw, corrupted)

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        """The surprisal of the chosen tokens, and of the pairs' labels; accuracy is watched in evaluation only."""
        filler, labels = require(model, FillsMasks), batch.labels
        pair = "pair" in labels
        at = torch.cat([labels["cls"], labels["positions"]], dim=1) if pair else labels["positions"]
        hidden = filler.read(**batch.inputs, at=at)
        chosen, targets = at_masks(batch, hidden[:, 1:] if pair else hidden)
        sums, watched = {"masked": filler.total_nll(chosen, targets)}, {}
        if not model.training:
            watched["accuracy"] = is_right(filler.logits(chosen), targets)
        if pair:
            scores = require(model, ScoresSentencePairs).score_pairs(hidden).float()
            sums["pair"] = F.cross_entropy(scores, labels["pair"], reduction="sum", ignore_index=IGNORE)
            watched["pair_accuracy"] = is_right(scores, labels["pair"])
        return Loss(sums, watched=watched)

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        pairs = batch.counts.get("pair", 0)
        pair_flops = pairs * require(model, ScoresSentencePairs).pair_head_flops() if pairs else 0.0
        return PASSES * (self.filling_flops(require(model, FillsMasks), batch) + pair_flops)


def make_batch(raw: Rows, corrupted: Corrupted, **labels: np.ndarray) -> Batch:
    """The arrays as tensors; `kept` among the labels names the targets there are, where some row has fewer."""
    inputs = {"tokens": corrupted.tokens, "segments": raw.segments, "lengths": raw.lengths, "positions": raw.positions}
    labels |= {"targets": corrupted.targets, "positions": corrupted.positions}
    kept = np.flatnonzero(corrupted.targets != IGNORE)
    counts = {"masked": len(kept)}
    if len(kept) < corrupted.targets.size:
        labels["kept"] = kept
    if raw.pair is not None and raw.cls is not None:
        labels |= {"pair": raw.pair, "cls": raw.cls[:, None]}
        counts["pair"] = int((raw.pair != IGNORE).sum())
    return Batch(
        {name: torch.from_numpy(value) for name, value in inputs.items() if value is not None},
        {name: torch.from_numpy(value) for name, value in labels.items()},
        counts,
        {"tokens": raw.tokens.size if raw.lengths is None else int(raw.lengths.sum())},
    )


def at_masks(batch: Batch, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Of the vectors at all positions [B, K, D] those of the blanks that there are [N, D], and their targets [N]."""
    kept = batch.labels.get("kept", slice(None))
    return hidden.flatten(0, 1)[kept], batch.labels["targets"].flatten()[kept]


def is_right(scores: Tensor, targets: Tensor) -> Tensor:
    """Whether the highest of the scores [N, V] are those of the targets [N]."""
    return scores.detach().argmax(-1) == targets


class RandomNumbers(NamedTuple):
    """The random numbers of a batch, each [B, T] and even in [0, 1): all that it hangs on besides the rows."""

    order: NDArray[np.float64]  # of the units, in which they are chosen
    fate: NDArray[np.float64]  # [MASK], a random token, or kept
    token: NDArray[np.float64]  # which random token
    length: NDArray[np.float64]  # of spans
    sample: NDArray[np.float64]  # to sample tokens from a model


class Corrupted(NamedTuple):
    """Rows with blanks."""

    tokens: Integers  # [B, T]
    positions: Integers  # [B, K] of the chosen tokens, in the order of the text
    targets: Integers  # [B, K] the chosen tokens; IGNORE where a row has fewer


def sample_numbers(rows: Rows, generator: np.random.Generator, *, dynamic: bool) -> RandomNumbers:
    """New random numbers each time; or, where masking is static, always the same for the same row."""
    count, shape = len(RandomNumbers._fields), rows.tokens.shape
    if dynamic:
        return RandomNumbers(*generator.random((count, *shape)))
    each = [np.random.default_rng(identity).random((count, shape[1])) for identity in rows.identity]
    return RandomNumbers(*np.stack(each, axis=1))


def count_chosen(masking_rate: float, length: int) -> int:
    """The number of chosen tokens in a row of this length, at least 1."""
    return max(1, round(masking_rate * length))


def corrupt(
    rows: Rows,
    draws: RandomNumbers,
    *,
    pieces: Pieces,
    mask: int,
    unit: Unit = "token",
    masking_rate: float = 0.15,
    mask_fraction: float = 0.8,
    random_fraction: float = 0.1,
) -> Corrupted:
    """Choose round(masking_rate · T) tokens of each row; put [MASK], a random token, or the same in their place.

    Devlin et al. 2019, appendix A.1. Special tokens and padding are never chosen. Units (tokens, words, or spans of
    words) are chosen in random order until the number is reached, so that the last of them may be cut. The three fates
    are drawn for each token, but for spans once for all of a span (SpanBERT, Joshi et al. 2020).
    """
    tokens = rows.tokens
    window = tokens.shape[1]
    numbers = number_units(tokens, draws.length, pieces, unit)
    allowed = ~pieces.special[tokens]
    key = np.where(allowed, np.take_along_axis(draws.order, numbers, axis=1), np.inf)
    most = count_chosen(masking_rate, window)
    ranked = np.argsort(key, axis=1, kind="stable")[:, :most]
    wanted = np.full(len(tokens), most)
    if rows.lengths is not None:
        wanted = np.maximum(1, np.round(masking_rate * rows.lengths).astype(np.int64))
    wanted = np.minimum(wanted, allowed.sum(axis=1))

    positions = np.sort(np.where(np.arange(most) < wanted[:, None], ranked, window), axis=1)
    is_masked = positions < window
    positions[~is_masked] = 0
    targets = np.where(is_masked, np.take_along_axis(tokens, positions, axis=1), IGNORE)

    fate = np.take_along_axis(draws.fate, numbers, axis=1) if unit == "span" else draws.fate
    fate = np.take_along_axis(fate, positions, axis=1)
    ordinary = np.flatnonzero(~pieces.special)
    drawn = ordinary[(np.take_along_axis(draws.token, positions, axis=1) * len(ordinary)).astype(np.int64)]
    put = np.where(fate < mask_fraction, mask, np.where(fate < mask_fraction + random_fraction, drawn, targets))
    corrupted = tokens.copy()
    row = np.broadcast_to(np.arange(len(tokens))[:, None], positions.shape)
    corrupted[row[is_masked], positions[is_masked]] = put[is_masked]
    return Corrupted(corrupted, positions, targets)


def number_units(tokens: Integers, length: NDArray[np.float64], pieces: Pieces, unit: Unit) -> Integers:
    """The number [B, T] of the unit that each token belongs to, counted from 0 in each row."""
    if unit == "token":
        return np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    words = _count(pieces.begins_word(tokens))
    if unit == "word":
        return words
    window, stays = tokens.shape[1], 1 - SPAN_END
    spans = 1 + np.floor(np.log(1 - length * (1 - stays**LONGEST_SPAN)) / np.log(stays)).astype(np.int64)
    ends = np.minimum(np.cumsum(np.minimum(spans, LONGEST_SPAN), axis=1), window)
    begins = np.zeros((len(tokens), window + 1), dtype=bool)  # a span, at a word of the row: they tile it
    np.put_along_axis(begins, ends, True, axis=1)
    tile = np.take_along_axis(_count(begins), words, axis=1)
    special = pieces.special[tokens]
    new = special.copy()  # a span ends at a special token
    new[:, 1:] |= special[:, :-1] | (tile[:, 1:] != tile[:, :-1])
    return _count(new)


def _count(begins: Flags) -> Integers:
    """How many begin at the positions of a row up to each, the first position not counted."""
    return np.cumsum(begins, axis=1) - begins[:, :1]
