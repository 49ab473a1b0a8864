"""Encoding by remembering: texts repeat their words, so each word with the space before it is encoded once.

Several times faster than encoding every text from scratch, with the same ids: GPT-2's pattern and BERT's rules both
begin a new piece at white space that follows something else, and never look back over it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

MOST = 500_000
"""Words remembered: about 150 MB in the worst case."""
LONGEST = 64
"""Characters of a word that is worth remembering."""

_WORDS = re.compile(r"\s*\S+|\s+")


class WordMemory:
    """Encodes texts word by word through `encode`, which is asked only for words that are new."""

    def __init__(self, encode: Callable[[Sequence[str]], list[list[int]]]) -> None:
        self._encode = encode
        self._ids: dict[str, list[int]] = {}

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The ids of each text."""
        words = [_WORDS.findall(text) for text in texts]
        known = self._ids
        new = list(set().union(*words).difference(known))
        passing = dict(zip(new, self._encode(new), strict=True)) if new else {}
        if len(known) + len(passing) <= MOST:
            known.update((word, ids) for word, ids in passing.items() if len(word) <= LONGEST)
            passing = {word: ids for word, ids in passing.items() if len(word) > LONGEST}
        if passing:
            parts = [[known[word] if word in known else passing[word] for word in text] for text in words]
        else:
            parts = [list(map(known.__getitem__, text)) for text in words]
        return [np.fromiter(chain.from_iterable(text), np.uint32) for text in parts]
