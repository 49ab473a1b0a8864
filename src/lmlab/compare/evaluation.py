"""What is measured of a finished run: exact bits on each unit of the test text, a sample, one passage by tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.compare.cloze import MASK, NO_CLOZE, Cloze, make_cloze
from lmlab.language_model import LanguageModel
from lmlab.progress import ReportProgress
from lmlab.tokenizers import Tokenizer

FEWEST_DOCUMENTS = 20
"""With fewer test documents, blocks of lines are what the bootstrap draws."""
BLOCKS = 100
SMALLEST_BLOCK = 100
CANDIDATES = 40
PASSAGE = 460
"""Characters of the passage that the report shows in colour."""
SAMPLE_BYTES = 260
PROMPT_WORDS = 4
PLAIN_WORDS = re.compile(r"\b[^\W\d_]+(?: [^\W\d_]+){3}\b")
PART_TOKENS = 20_000
"""Of the test text, what pseudo-log-likelihoods are computed on: each token takes a forward pass of its own."""


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
        document, start = max(candidates, key=lambda place: self._prose(*place), default=(longest, 0))
        text = self.texts[document]
        end = min(len(text), start + PASSAGE)
        space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        return document, start, space if space > start and end < len(text) else end

    def _prose(self, document: int, start: int) -> int:
        """Letters and the spaces between them."""
        return sum(len(word) + 1 for word in re.findall(r"[^\W\d_]+ ", self.texts[document][start : start + PASSAGE]))


class Tests(NamedTuple):
    """What systems are scored on."""

    whole: TestText
    part: TestText  # of it, for systems that fill blanks

    def of(self, predicts: str) -> TestText:
        """What ranks systems that predict this."""
        return self.part if predicts == "blanks" else self.whole


def make_test_text(texts: Sequence[str], *, prompt: str | None) -> TestText:
    """Test text with the prompt given, or the first plain words in it; a prompt with [MASK] in it is the cloze too."""
    plain = (found[0] for text in texts if (found := PLAIN_WORDS.search(text)))
    words = next(plain, " ".join(next((text for text in texts if text.strip()), "").split()[:PROMPT_WORDS]))
    if prompt is None:
        return TestText(list(texts), words[:80], make_cloze(texts))
    before, blank, _ = prompt.partition(MASK)
    return TestText(list(texts), before.rstrip(), Cloze(prompt, ()) if blank else make_cloze(texts))


def shorten(test: TestText, *, characters: int) -> TestText:
    """About so many characters of a test text, from all over it: the beginnings of documents, cut at white space.

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
    places = np.unique(np.linspace(0, len(texts) - 1, kept).astype(int)) if kept > 1 else [0]
    return TestText([texts[place] for place in places], test.prompt, test.cloze)


def _beginning(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    space = max(text.rfind("\n", size // 2, size), text.rfind(" ", size // 2, size))
    return text[: space + 1] if space >= 0 else text[:size]


def block_starts(text: str, *, size: int) -> list[int]:
    """Where blocks of whole lines, each of at least `size` characters, begin; longer lines are cut at spaces."""
    starts, length = [0], 0
    place = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        for piece in [line] if len(line) <= 2 * size else re.findall(r"\s*\S+\s*?|\s+", line):
            if length >= size and len(text) - place >= size // 2:
                starts.append(place)
                length = 0
            place += len(piece)
            length += len(piece)
    return starts


def token_ends(tokenizer: Tokenizer, text: str, *, count: int) -> NDArray[np.int64]:
    """The character after each of the `count` tokens of a text."""
    offsets = tokenizer.engine.encode(text, add_special_tokens=False).offsets
    if len(offsets) != count:  # a tokenizer of others that joins tokens: spread them evenly
        return np.linspace(len(text) / max(1, count), len(text), count).astype(np.int64)
    return np.maximum.accumulate(np.array([end for _, end in offsets], dtype=np.int64))


def evaluate(model: LanguageModel, test: TestText, *, progress: ReportProgress | None = None) -> dict[str, Any]:
    """The exact score of a model, as JSON: bits of each unit, counts, a sample, and the passage."""
    record = score_units(model, test, progress=progress)
    bytes_per_token = float(test.sizes.sum()) / record["tokens"]
    return {**record, "sample": write_sample(model, test, bytes_per_token=bytes_per_token)}


def score_units(model: LanguageModel, test: TestText, *, progress: ReportProgress | None = None) -> dict[str, Any]:
    """Bits of each unit of a test text, counts, and the passage; of a masked model, by its pseudo-log-likelihood."""
    score = model.score(test.texts, progress=progress)
    if not math.isfinite(score.nats):
        raise ValueError("the model gives some token of the test text no probability at all, so it has no score")
    bits: list[NDArray[np.float64]] = []
    for text, starts, nats in zip(test.texts, test.starts, score.token_nats, strict=True):
        if len(starts) == 1:
            bits.append(np.array([nats.sum()]))
            continue
        ends = token_ends(model.tokenizer, text, count=len(nats))
        unit = np.searchsorted(starts, np.maximum(ends - 1, 0), side="right") - 1
        bits.append(np.bincount(unit, weights=nats, minlength=len(starts)).astype(np.float64))
    return {
        "bits": (np.concatenate(bits) / math.log(2)).tolist(),
        "tokens": score.tokens,
        "lossy": score.lossy,
        "unknown": score.unknown,
        "passage": read_passage(model.tokenizer, test, score.token_nats[test.passage[0]] / math.log(2)),
    }


def write_sample(model: LanguageModel, test: TestText, *, bytes_per_token: float) -> str:
    """How a model goes on from the prompt; about as much text from every tokenizer."""
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
