"""A cache of encoded words: texts repeat their words, so each word with the space before it is encoded once.

Several times faster than encoding every text from scratch, with the same ids: GPT-2's pattern and BERT's rules both
begin a new piece at white space that follows something else, and never look back over it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 500_000
"""The largest number of cached words: about 150 MB in the worst case."""
LONGEST = 64
"""The largest number of characters of a cached word."""
MOST_SEARCHED = 64
"""With more added tokens than this, every text is encoded by the library, which is faster than searching for them."""

_WORDS = re.compile(r"\s*\S+|\s+")


class WordCache:
    """Encodes texts word by word; `encode` is called only for words that are not cached."""

    def __init__(self, encode: Callable[[Sequence[str]], list[list[int]]]) -> None:
        self._encode = encode
        self._ids: dict[str, list[int]] = {}

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Return the ids of each text."""
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


def find_added(settings: Mapping[str, Any], *, split_special_tokens: bool) -> re.Pattern[str] | None:
    """Return a pattern that matches in every text with an added token; None if no text can have one.

    `settings` are those of a `tokenizer.json`. Special tokens do not count if they are split like other text. An added
    token that is compared with the normalized text may be spelled differently, so then every text may have it.
    """
    added = [each for each in settings["added_tokens"] if not (each["special"] and split_special_tokens)]
    if not added:
        return None
    normalized = settings["normalizer"] is not None and any(each["normalized"] for each in added)
    if normalized or len(added) > MOST_SEARCHED:
        return re.compile("")
    return re.compile("|".join(re.escape(each["content"]) for each in added))
