"""How probable a finished run finds the test text: exact bits on each unit of it, a passage by tokens, and a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lmlab.comparison.records import TrackScores
from lmlab.comparison.shared_test_data import TestText, shorten_for_pseudo
from lmlab.decoding.scorer import Scorer
from lmlab.language_model import LanguageModel
from lmlab.progress import ReportProgress
from lmlab.tokenizers import Tokenizer
from lmlab.units import bits_per_byte

SAMPLE_BYTES = 260


def perplexity(nats: float) -> float | None:
    """The perplexity of a mean surprisal in nats; None if it is too large for a float."""
    return math.exp(nats) if nats < 700 else None


def mean_perplexity(scores: Sequence[TrackScores]) -> float | None:
    """The perplexity per token of the mean surprisal over several seeds."""
    bits = [sum(each.measured["bits"]) / each.measured["tokens"] for each in scores]
    return perplexity(float(np.mean(bits)) * math.log(2))


def token_ends(tokenizer: Tokenizer, text: str, *, count: int) -> NDArray[np.int64]:
    """The character after each of the `count` tokens of a text."""
    offsets = tokenizer.encode_with_offsets(text)[1]
    if len(offsets) != count:  # a tokenizer of others that joins tokens: spread them evenly
        return np.linspace(len(text) / max(1, count), len(text), count).astype(np.int64)
    return np.maximum.accumulate(np.array([end for _, end in offsets], dtype=np.int64))


def evaluate(model: LanguageModel, test: TestText, *, progress: ReportProgress | None = None) -> TrackScores:
    """The exact score of a model: bits of each unit, counts, a sample, and the passage."""
    scores = score_units(model, test, progress=progress)
    bytes_per_token = float(test.sizes.sum()) / scores.measured["tokens"]
    return replace(scores, sample=write_sample(model, test, bytes_per_token=bytes_per_token))


def choose_scored_part(model: LanguageModel, test: TestText) -> TestText:
    """What a score of a test text is computed on: all of it, or a part where each token takes a forward pass."""
    if not model.scorer.rule.pseudo:
        return test
    tokens = sum(len(model.text_tokenizer.encode(text)) + 1 for text in test.texts) + 1
    return shorten_for_pseudo(test, tokens=tokens)


def score_units(
    model: LanguageModel, test: TestText, *, scorer: Scorer | None = None, progress: ReportProgress | None = None
) -> TrackScores:
    """Bits of each unit of a test text, counts, and the passage, by the model's own scorer or another."""
    score = (scorer or model.scorer).score(test.texts, progress=progress)
    if not math.isfinite(score.nats):
        raise ValueError("the model gives a token of the test text the probability 0, so it has no score")
    bits: list[NDArray[np.float64]] = []
    for text, starts, nats in zip(test.texts, test.starts, score.token_nats, strict=True):
        if len(starts) == 1:
            bits.append(np.array([nats.sum()]))
            continue
        ends = token_ends(model.text_tokenizer, text, count=len(nats))
        unit = np.searchsorted(starts, np.maximum(ends - 1, 0), side="right") - 1
        bits.append(np.bincount(unit, weights=nats, minlength=len(starts)).astype(np.float64))
    size = float(test.sizes.sum())
    directions = {name: bits_per_byte(nats, size) for name, nats in score.directions.items()}
    return TrackScores(
        measured={
            **({"directions": directions} if directions else {}),
            "bits": (np.concatenate(bits) / math.log(2)).tolist(),
            "tokens": score.tokens,
        },
        lossy=score.lossy,
        unknown=score.unknown,
        passage=read_passage(model.text_tokenizer, test, score.token_nats[test.passage[0]] / math.log(2)),
    )


def write_sample(model: LanguageModel, test: TestText, *, bytes_per_token: float) -> str:
    """How a model continues the prompt: about as many bytes with every tokenizer."""
    tokens = max(1, round(SAMPLE_BYTES / bytes_per_token))
    return str(model.generate(test.prompt, tokens=tokens, temperature=0.8, top_p=0.95, seed=0))


def read_passage(tokenizer: Tokenizer, test: TestText, bits: NDArray[np.float64]) -> list[tuple[str, float]]:
    """The passage in pieces of text with the bits of each; tokens that share a character are one piece."""
    document, first, last = test.passage
    text = test.texts[document]
    pieces: list[tuple[str, float]] = []
    before = 0
    for end, surprisal in zip(token_ends(tokenizer, text, count=len(bits)).tolist(), bits.tolist(), strict=True):
        start, before = before, max(before, end)
        if end <= first or start >= last:
            continue
        if end == start and pieces:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + surprisal)
        else:
            pieces.append((text[max(start, first) : min(end, last)], surprisal))
    return pieces
