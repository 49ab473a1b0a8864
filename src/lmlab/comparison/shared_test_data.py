"""The held-out text that systems meet on: whole or in part, in units, with a passage, a prompt and a cloze sentence."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.corpus import Dataset
from lmlab.data.readers.clips import SpeechClip
from lmlab.tokenizers.processors.sequences import SequenceTokenizer

FEWEST_DOCUMENTS = 20
"""With fewer test documents, blocks of lines are what the bootstrap draws."""
BLOCKS = 100
SMALLEST_BLOCK = 100
CANDIDATES = 40
PASSAGE = 460
"""Characters of the passage that the report shows in colour."""
PROMPT_WORDS = 4
PLAIN_WORDS = re.compile(r"\b[^\W\d_]+(?: [^\W\d_]+){3}\b")
PART_TOKENS = 20_000
"""Of the test text, what pseudo-log-likelihoods are computed on: each token takes a forward pass."""
MASK = "[MASK]"
SENTENCE = re.compile(r"(?<!\S)[^\W\d_]+(?: [^\W\d_]+){8,16}(?=[.;!?])")
DOCUMENTS = 40
SEARCHED = 100_000
"""Characters of a document in which a sentence is looked for."""
SHORT = 80
QUARTERS = (1, 2, 3)


class Cloze(NamedTuple):
    """A sentence with masks."""

    text: str
    answers: tuple[str, ...]  # the original words, if they are known


NO_CLOZE = Cloze("", ())


@dataclass(frozen=True)
class TestText:
    """The held-out documents, cut into the units that the bootstrap draws."""

    texts: list[str]
    prompt: str
    cloze: Cloze = NO_CLOZE

    __test__ = False  # not a test, whatever pytest thinks of the name

    @cached_property
    def starts(self) -> list[list[int]]:
        """The character at which each unit of each document begins."""
        if len(self.texts) >= FEWEST_DOCUMENTS:
            return [[0] for _ in self.texts]
        size = max(SMALLEST_BLOCK, sum(map(len, self.texts)) // BLOCKS)
        return [block_starts(text, size=size) for text in self.texts]

    @property
    def unit(self) -> str:
        """What a unit is, in words."""
        return "documents" if len(self.texts) >= FEWEST_DOCUMENTS else "blocks of lines"

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """The bytes of each unit."""
        return np.array(
            [
                len(text[start:end].encode())
                for text, starts in zip(self.texts, self.starts, strict=True)
                for start, end in zip(starts, [*starts[1:], len(text)], strict=True)
            ],
            dtype=np.float64,
        )

    @cached_property
    def passage(self) -> tuple[int, int, int]:
        """Document, first and last character of a passage: whole lines, of those looked at the most like prose."""
        candidates = [
            (document, found.end())
            for document, text in enumerate(self.texts[:CANDIDATES])
            for found in list(re.finditer(r"\n\s*\n|^", text))[:CANDIDATES]
            if len(text) - found.end() >= PASSAGE
        ]
        longest = max(range(len(self.texts)), key=lambda i: len(self.texts[i]))
        document, start = max(candidates, key=lambda position: self._prose(*position), default=(longest, 0))
        text = self.texts[document]
        end = min(len(text), start + PASSAGE)
        space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        return document, start, space if space > start and end < len(text) else end

    def _prose(self, document: int, start: int) -> int:
        """Letters and the spaces between them."""
        return sum(len(word) + 1 for word in re.findall(r"[^\W\d_]+ ", self.texts[document][start : start + PASSAGE]))


@dataclass(frozen=True)
class HeldOutItems:
    """Held-out items that are not text, as tokens."""

    items: list[NDArray[np.int64]]
    tokenizer: SequenceTokenizer

    @property
    def sizes(self) -> NDArray[np.float64]:
        """The number of tokens of each item."""
        return np.array([len(each) for each in self.items], dtype=np.float64)


class Tests(NamedTuple):
    """What systems are scored on."""

    whole: TestText
    part: TestText  # of it, where scoring takes long
    sequences: HeldOutItems | None = None  # in place of text, of music and of pixels
    media: Dataset | tuple[SpeechClip, ...] | None = None  # in place of text, of pictures, recordings and episodes


def make_test_text(texts: Sequence[str], *, prompt: str | None) -> TestText:
    """Test text with the prompt given, or the first plain words in it; a prompt with [MASK] in it is the cloze too."""
    plain = (found[0] for text in texts if (found := PLAIN_WORDS.search(text)))
    words = next(plain, " ".join(next((text for text in texts if text.strip()), "").split()[:PROMPT_WORDS]))
    if prompt is None:
        return TestText(list(texts), words[:80], make_cloze(texts))
    before, mask, _ = prompt.partition(MASK)
    return TestText(list(texts), before.rstrip(), Cloze(prompt, ()) if mask else make_cloze(texts))


def shorten(test: TestText, *, characters: int) -> TestText:
    """About this many characters from all over a test text: the beginnings of documents, cut at white space.

    Documents are cut to the length at which all of them together have that many characters, but not so short that
    fewer than 20 of them would do; then some are left out, at even distances.
    """
    lengths = np.sort([len(text) for text in test.texts])
    before = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    together = before + lengths * np.arange(len(lengths), 0, -1)  # if all were cut to the length of this one
    fitting = int(np.searchsorted(together, characters, side="right"))
    if fitting == len(lengths):
        return test
    level = max((characters - before[fitting]) / (len(lengths) - fitting), characters / FEWEST_DOCUMENTS)
    texts = [_beginning(text, int(level)) for text in test.texts]
    kept = max(1, min(len(texts), round(len(texts) * characters / max(1, sum(map(len, texts))))))
    positions = np.unique(np.linspace(0, len(texts) - 1, kept).astype(int)) if kept > 1 else [0]
    return TestText([texts[position] for position in positions], test.prompt, test.cloze)


def shorten_for_pseudo(test: TestText, *, tokens: int) -> TestText:
    """The part of a test text of this many tokens that pseudo-log-likelihoods are computed on."""
    characters = sum(map(len, test.texts))
    return shorten(test, characters=math.ceil(PART_TOKENS * characters / max(1, tokens)))


def _beginning(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    space = max(text.rfind("\n", size // 2, size), text.rfind(" ", size // 2, size))
    return text[: space + 1] if space >= 0 else text[:size]


def block_starts(text: str, *, size: int) -> list[int]:
    """Where blocks of whole lines, each of at least `size` characters, begin; longer lines are cut at spaces."""
    starts, length = [0], 0
    position = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        for piece in [line] if len(line) <= 2 * size else re.findall(r"\s*\S+\s*?|\s+", line):
            if length >= size and len(text) - position >= size // 2:
                starts.append(position)
                length = 0
            position += len(piece)
            length += len(piece)
    return starts


def make_cloze(texts: Sequence[str]) -> Cloze:
    """Return the first plain sentence with a mask near each quarter of it, on the most frequent word there.

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
            position
            for position in (middle, middle + 1, middle - 1)
            if 0 < position < len(words)
            and words[position].isalpha()
            and all(abs(position - each) > 1 for each in chosen)
        ]
        if near:
            chosen.append(max(near, key=lambda position: common[words[position]]))
    if not chosen:
        return NO_CLOZE
    text = " ".join(MASK if position in chosen else word for position, word in enumerate(words))
    return Cloze(text, tuple(words[position] for position in chosen))
