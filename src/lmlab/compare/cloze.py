"""One sentence of the test text with blanks, which every system that fills blanks is shown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

MASK = "[MASK]"
SENTENCE = re.compile(r"(?<!\S)[^\W\d_]+(?: [^\W\d_]+){8,16}(?=[.;!?])")
DOCUMENTS = 40
SEARCHED = 100_000
"""Characters of a document in which a sentence is looked for."""
SHORT = 80
QUARTERS = (1, 2, 3)


class Cloze(NamedTuple):
    """A sentence with blanks."""

    text: str
    answers: tuple[str, ...]  # what stood in the blanks, where that is known


NO_CLOZE = Cloze("", ())


def make_cloze(texts: Sequence[str]) -> Cloze:
    """The first plain sentence with a blank near each quarter of it: the commonest word there, so that one token fits.

    Where there is no such sentence, the first few words of the texts.
    """
    searched = [text[:SEARCHED] for text in texts[:DOCUMENTS]]
    found = (match[0] for text in searched for match in SENTENCE.finditer(text))
    words = next(found, " ".join(searched).strip()[:SHORT]).split()
    common = Counter(word for text in searched for word in text.split())
    chosen: list[int] = []
    for quarter in QUARTERS:
        middle = quarter * len(words) // 4
        near = [
            place
            for place in (middle, middle + 1, middle - 1)
            if 0 < place < len(words) and words[place].isalpha() and all(abs(place - other) > 1 for other in chosen)
        ]
        if near:
            chosen.append(max(near, key=lambda place: common[words[place]]))
    if not chosen:
        return NO_CLOZE
    text = " ".join(MASK if place in chosen else word for place, word in enumerate(words))
    return Cloze(text, tuple(words[place] for place in chosen))
