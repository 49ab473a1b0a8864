"""Synthetic text: tokens with the distribution of words, in documents and sentences, to measure training speed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.corpora.pairs import PairSplit
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.engines import word_engine
from lmlab.tokenizers.tokenizer import SPECIAL_TOKENS

FIRST = 2
"""The id of the first word, after the unknown word and the boundary."""
STOP = 2
"""The rank of the full stop among the words: the third, which gives sentences of about 25 tokens."""
DOCUMENT = 2000
"""The number of tokens of a document."""
SPREAD = 0.5
"""The standard deviation of the logarithm of a sentence's length."""
CHANGE = 0.2
"""The same for the ratio of a translation's length to that of its sentence."""


def synthetic_tokenizer(vocabulary: int, *, specials: Sequence[str] = ()) -> Tokenizer:
    """Return a tokenizer with `vocabulary` tokens: synthetic words, then the special tokens."""
    words = vocabulary - FIRST - len(specials)
    if words < 1:
        raise ValueError(
            f"a vocabulary of {vocabulary} is too small: {FIRST + len(specials)} tokens are special; give a larger one"
        )
    spelled = ["." if rank == STOP else f"word{rank}" for rank in range(words)]
    return Tokenizer(word_engine([*spelled, *(SPECIAL_TOKENS[name][0] for name in specials)]))


def synthetic_text(tokenizer: Tokenizer, *, tokens: int, seed: int, specials: Sequence[str] = ()) -> TextSplit:
    """Return documents of about `tokens` tokens, with the words of `synthetic_tokenizer`."""
    count = max(2, round(tokens / DOCUMENT))
    return _joined(
        np.full(count, DOCUMENT, np.int64),
        words=tokenizer.vocabulary - FIRST - len(specials),
        boundary=tokenizer.boundary,
        generator=np.random.default_rng(seed),
    )


def synthetic_pairs(
    tokenizer: Tokenizer, *, source_vocabulary: int | None = None, tokens: int, mean: int, longest: int, seed: int
) -> PairSplit:
    """Return sentences of `mean` tokens with translations of about the same length, `tokens` tokens on each side.

    None has more than `longest` tokens, including the boundary at its end.
    """
    generator = np.random.default_rng(seed)
    count = max(2, round(tokens / mean))
    source = generator.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, count)
    target = source * generator.lognormal(0.0, CHANGE, count)
    return PairSplit(
        *(
            _joined(
                np.clip(np.rint(lengths), 2, longest).astype(np.int64) - 1,
                words=vocabulary - FIRST,
                boundary=tokenizer.boundary,
                generator=generator,
            )
            for lengths, vocabulary in (
                (source, source_vocabulary or tokenizer.vocabulary),
                (target, tokenizer.vocabulary),
            )
        )
    )


def _joined(lengths: NDArray[np.int64], *, words: int, boundary: int, generator: np.random.Generator) -> TextSplit:
    """Return texts of the given lengths, with the boundary around each."""
    starts = 1 + np.cumsum(lengths + 1) - (lengths + 1)
    tokens = FIRST + zipf_ranks(words, count=int(lengths.sum()) + len(lengths) + 1, generator=generator)
    tokens[0] = boundary
    tokens[starts + lengths] = boundary
    return TextSplit(
        tokens=tokens.astype(np.uint32),
        documents=starts,
        bytes=0,
        words=int(lengths.sum()),
        names=None,
        text_path=None,
        text_places=None,
    )


def zipf_ranks(words: int, *, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Sample ranks r = 0, 1, … with probabilities proportional to 1 / (r + 1) (Zipf 1935)."""
    reached = np.cumsum(1.0 / np.arange(1, words + 1))
    ranks: NDArray[np.int64] = np.searchsorted(reached, generator.random(count) * reached[-1], side="right")
    return np.minimum(ranks, words - 1)
