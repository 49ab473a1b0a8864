"""The simplest guess at a blank: each token as often as it was seen."""

from __future__ import annotations

import math

import numpy as np

from lmlab.data.loaders.streams import Tokens
from lmlab.tokenizers.pieces import Flags


def unigram_nats(seen: Tokens, scored: Tokens, *, special: Flags) -> float:
    """Nats per token of one text under the counts of another, one added to each; special tokens do not count.

    What a masked model must beat: exp of it is the perplexity of blanks to which no context is known.
    """
    counts = np.bincount(seen, minlength=len(special))[~special] + 1
    wanted = np.bincount(scored, minlength=len(special))[~special]
    if not wanted.sum():
        raise ValueError("there is nothing to score: the text has only special tokens")
    return float(math.log(counts.sum()) - (wanted * np.log(counts)).sum() / wanted.sum())
