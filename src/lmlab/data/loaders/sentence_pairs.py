"""Pairs of text segments from the sentences of documents: does B follow A, are A and B in order?"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders.framing import FlatTexts, Integers, frame_rows
from lmlab.data.loaders.rows import RowLoader, Rows
from lmlab.data.loaders.sentences import Sentences, find_sentences
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.pieces import Pieces

Kind = Literal["next-sentence", "sentence-order"]

ATTEMPTS = 16
"""Draws of another document before a shorter one than wanted is taken."""
PART = 16
"""Rows in each of the parts that are used as documents if the text is one document."""


class _Plan(NamedTuple):
    """The rows of an epoch, each array [rows]: first segment, second segment, label."""

    first: Integers  # where the first segment starts
    first_length: Integers
    second: Integers
    second_length: Integers
    label: Integers
    chunk: Integers  # where the run of sentences starts from which the pair was made


class SentencePairs(RowLoader):
    """Two texts A and B in their frame, `[CLS] A [SEP] B [SEP]`, in rows of the window: runs of sentences.

    Devlin et al. 2019, appendix A.2; Lan et al. 2020, section 3.1. A document is cut into runs of sentences that fill
    the window; a run is cut into A and B between two of its sentences (inside one, where it has only one), and tokens
    too many are taken off the longer segment, by chance at its beginning or its end.

    - `next-sentence`: in half of the rows B is replaced by sentences of another document, as many tokens long, so that
      the length says nothing. The new B is drawn evenly from all sentences of the others.
    - `sentence-order`: in half of the rows the two change places.

    Documents shorter than the window give shorter rows with padding. The rest at the end of a document is a row of its
    own, going back into the one before, if it is at least half a row. Every epoch has runs, cuts and pairs of its own,
    unless `fixed`; the order is always new.
    """

    def __init__(
        self,
        data: TextSplit,
        *,
        pieces: Pieces,
        kind: Kind,
        frame: Frame,
        pad: int,
        batch: int,
        window: int,
        seed: int,
        fixed: bool,
    ) -> None:
        around = frame.overhead(frame.reads, "ab")
        if window < around + 2:
            raise ValueError(
                f"a window of {window} tokens has no room for two texts among the special tokens around them; "
                f"give {around + 2} or more"
            )
        self.tokens, self.frame, self.pad, self.batch_size = data.tokens, frame, pad, batch
        self.kind, self.seed, self.fixed = kind, seed, fixed
        sentences = _usable(find_sentences(data.tokens, data.documents, pieces))
        if kind == "next-sentence":
            sentences = _usable(_several_documents(sentences, size=PART * window))
        self.starts, self.ends, self.document = sentences
        first = np.flatnonzero(np.diff(self.document, prepend=-1))
        self.first_sentence, self.next_first = first, np.append(first[1:], len(self.starts))
        self.document_starts, self.document_ends = self.starts[first], self.ends[self.next_first - 1]
        self.window = min(window, int((self.document_ends - self.document_starts).max()) + around)
        self.text = self.window - around
        starts, ends = self._chunks(None)
        self.count = len(starts)
        self.steps_per_epoch = self.count / batch
        self.row_tokens = float(np.minimum(ends - starts, self.text).mean()) + around
        self._epoch = lru_cache(2)(self._make_epoch)  # a batch may have rows of two epochs

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": self.batch_size * self.row_tokens}

    def batch(self, step: int) -> Rows:
        numbers = step * self.batch_size + np.arange(self.batch_size)
        epochs, positions = divmod(numbers, self.count)
        parts = []
        for epoch in np.unique(epochs):
            order, plan = self._epoch(int(epoch))
            chosen = order[positions[epochs == epoch]]
            parts.append([column[chosen] for column in plan])
        return self._fill(_Plan(*(np.concatenate(columns) for columns in zip(*parts, strict=True))))

    def _fill(self, plan: _Plan) -> Rows:
        """The rows of pairs."""
        first = FlatTexts(self.tokens, plan.first, plan.first_length)
        second = FlatTexts(self.tokens, plan.second, plan.second_length)
        rows = frame_rows(self.frame, self.frame.reads, {"a": first, "b": second}, pad=self.pad, width=self.window)
        return Rows(
            rows.tokens,
            np.stack([np.full_like(plan.chunk, self.seed), plan.chunk], axis=1),
            segments=rows.segments,
            pair=plan.label,
            lengths=rows.lengths if (rows.lengths < self.window).any() else None,
            cls=rows.position_of("cls"),
        )

    def _make_epoch(self, epoch: int) -> tuple[Integers, _Plan]:
        """Return the order and the rows of an epoch."""
        generator = np.random.default_rng([self.seed, epoch])
        order = generator.permutation(self.count)
        if self.fixed:
            return order, self._plan(*self._chunks(None), np.random.default_rng(self.seed))
        starts, ends = self._chunks(generator)
        taken = generator.permutation(len(starts))[np.arange(self.count) % len(starts)]
        return order, self._plan(starts[taken], ends[taken], generator)

    def _chunks(self, generator: np.random.Generator | None) -> tuple[Integers, Integers]:
        """Where runs of whole sentences start and end that fill a row, or are all of a short document.

        The first run of a document starts with its first sentence; with a generator, with one drawn from those in the
        first row's worth of text that leave a full row after them.
        """
        lengths = self.document_ends - self.document_starts
        latest = self.document_starts + np.clip(lengths - self.text, 0, self.text)
        if generator is None:
            begin = self.first_sentence
        else:
            choices = np.searchsorted(self.starts, latest, "right") - self.first_sentence
            begin = self.first_sentence + generator.integers(0, choices)
        jump = (np.searchsorted(self.ends, self.starts + self.text) + 1).tolist()  # to the sentence after a full run
        fills = (self.starts + self.text <= self.document_ends[self.document]).tolist()
        runs: list[tuple[int, int]] = []
        tails: list[int] = []  # the documents that end in half a row or more, or are less than a row
        for document, (sentence, stop) in enumerate(zip(begin.tolist(), self.next_first.tolist(), strict=True)):
            before = len(runs)
            while sentence < stop and fills[sentence]:
                runs.append((sentence, jump[sentence]))
                sentence = jump[sentence]
            rest = self.document_ends[document] - self.starts[sentence] if sentence < stop else 0
            if 2 * rest >= self.text or len(runs) == before:
                tails.append(document)
        chosen = np.array(runs, np.int64).reshape(-1, 2)
        tail = np.array(tails, np.int64)
        goes_back = np.maximum(self.document_ends[tail] - self.text, self.document_starts[tail])
        tail_starts = self.starts[np.searchsorted(self.starts, goes_back, "right") - 1]
        starts = np.concatenate([self.starts[chosen[:, 0]], tail_starts])
        ends = np.concatenate([self.ends[chosen[:, 1] - 1], self.document_ends[tail]])
        return starts, ends

    def _plan(self, starts: Integers, ends: Integers, generator: np.random.Generator) -> _Plan:
        """Cut each run into two segments that fill the window, and replace or swap the second in half of them."""
        count = len(starts)
        low = np.searchsorted(self.starts, starts, "right")
        high = np.searchsorted(self.starts, ends)
        drawn = self.starts[
            np.minimum(low + (generator.random(count) * (high - low)).astype(np.int64), len(self.starts) - 1)
        ]
        inside = starts + 1 + (generator.random(count) * (ends - starts - 1)).astype(np.int64)
        cut = np.where(high > low, drawn, inside)

        room = np.minimum(ends - starts, self.text)
        lengths = np.stack([cut - starts, ends - cut])
        shorter = np.minimum(lengths.min(axis=0), room // 2)
        kept = np.where(lengths[0] <= lengths[1], [shorter, room - shorter], [room - shorter, shorter])
        first, second = np.stack([starts, cut]) + generator.binomial(lengths - kept, 0.5)
        first_length, second_length = kept

        label = (generator.random(count) < 0.5).astype(np.int64)
        other = label == 1
        if self.kind == "next-sentence":
            second[other], second_length[other] = self._elsewhere(starts[other], second_length[other], generator)
        else:
            first, second = np.where(other, second, first), np.where(other, first, second)
            first_length, second_length = (
                np.where(other, second_length, first_length),
                np.where(other, first_length, second_length),
            )
        return _Plan(first, first_length, second, second_length, label, starts)

    def _elsewhere(
        self, starts: Integers, lengths: Integers, generator: np.random.Generator
    ) -> tuple[Integers, Integers]:
        """Texts of the given lengths that start with a sentence of another document (or so as to end with it)."""
        home = np.searchsorted(self.document_starts, starts, "right") - 1
        sizes = self.document_ends - self.document_starts
        positions = np.zeros_like(starts)
        found = np.zeros_like(lengths)
        for _ in range(ATTEMPTS):
            open_rows = np.flatnonzero(found < lengths)
            if not len(open_rows):
                break
            # a sentence of any document but the row's own: numbers from its first sentence on skip its sentences
            own = home[open_rows]
            own_first = self.first_sentence[own]
            own_count = self.next_first[own] - own_first
            drawn = generator.integers(0, len(self.starts) - own_count)
            sentence = drawn + np.where(drawn >= own_first, own_count, 0)
            document = self.document[sentence]
            reached = np.minimum(sizes[document], lengths[open_rows])
            better = reached > found[open_rows]
            rows = open_rows[better]
            positions[rows] = np.minimum(self.starts[sentence], self.document_ends[document] - reached)[better]
            found[rows] = reached[better]
        return positions, found


def _usable(sentences: Sentences) -> Sentences:
    """The sentences of documents with two or more tokens, which can form a pair; documents are renumbered."""
    first = np.flatnonzero(np.diff(sentences.document, prepend=-1))
    counts = np.diff(np.append(first, len(sentences.starts)))
    lengths = sentences.ends[first + counts - 1] - sentences.starts[first]
    kept = np.repeat(lengths >= 2, counts)
    if not kept.any():
        raise ValueError("no document of the text has two tokens, so there are no pairs; give more text")
    document = np.repeat(np.cumsum(lengths >= 2) - 1, counts)[kept]
    return Sentences(sentences.starts[kept], sentences.ends[kept], document)


def _several_documents(sentences: Sentences, *, size: int) -> Sentences:
    """The sentences, those of a text that is one document being cut into parts of about `size` tokens."""
    if sentences.document[-1] > 0:
        return sentences
    length = sentences.ends[-1] - sentences.starts[0]
    number = (sentences.starts - sentences.starts[0]) * max(2, length // size) // length
    if number[-1] == 0:
        raise ValueError(
            "next sentence prediction needs two documents, and the text is a single sentence; give more text, say what "
            "a document is (data.documents = 'blank' or 'lines'), or set objective.pairs to 'sentence-order' or 'none'"
        )
    warnings.warn(
        "the text is one document: next sentence prediction takes parts of it for documents; "
        "say where documents end with --documents, or set objective.pairs to sentence-order",
        TextWarning,
        stacklevel=4,
    )
    return sentences._replace(document=number)
