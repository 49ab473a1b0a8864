"""Translators: sentences of similar length are searched in one batch, and returned in the given order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.decoding.beam_search import Expansion, Hypothesis, Penalty, beam_search
from lmlab.decoding.search_recorder import Recorder
from lmlab.messages import TooLongError
from lmlab.models.abilities import WritesTarget
from lmlab.pages.search_tree import SearchTree
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, pad_rows
from lmlab.tokenizers.tokenizer import SPECIAL_TOKENS


class Translation(NamedTuple):
    """A target text that the search ended with."""

    text: str
    score: float  # log_probability / length penalty
    log_probability: float
    tokens: list[int]  # without what ends it
    finished: bool


LONGEST = 1024
"""Tokens of the longest source that is translated, by default: each token takes a step of the search."""


def room_for(source: int) -> int:
    """The default length limit of a translation: ample, because the model ends it."""
    return 3 * source + 16


class Searching(TypedDict, total=False):
    """The options of `Translator.translate` by name, for signatures that take them one by one."""

    beams: int
    length_penalty: float
    penalty: Penalty
    tokens: int | None
    shortest: int
    no_repeat: int
    longest: int | None
    batch: int
    trace: Callable[[SearchTree], None] | None
    progress: ReportProgress | None


@dataclass(frozen=True, kw_only=True)
class Translator:
    """A model that writes a target from a source, with the tokenizers of its two sides.

    The frame has the special tokens around source and target, and whether sources are read backwards.
    """

    model: WritesTarget
    tokenizer: Tokenizer
    frame: Frame
    source_tokenizer: Tokenizer | None = None

    @cached_property
    def end(self) -> int:
        """The token that ends a target: the one that the frame has after it."""
        begun, whole = self.frame.row()["tokens"], self.frame.row(b=[])["tokens"]
        if len(whole) != len(begun) + 1:
            raise ValueError(f"a target needs one token that ends it, not {whole[len(begun) :]}: fix the frame")
        return int(whole[-1])

    def translate(
        self,
        texts: Sequence[str],
        *,
        beams: int = 5,
        length_penalty: float = 0.6,
        penalty: Penalty = "wu",
        tokens: int | None = None,
        shortest: int = 0,
        no_repeat: int = 0,
        longest: int | None = LONGEST,
        batch: int = 32,
        trace: Callable[[SearchTree], None] | None = None,
        progress: ReportProgress | None = None,
    ) -> list[list[Translation]]:
        """The best translations of each text, best first, up to `beams`; none of an empty text.

        `batch` sentences of like length are searched side by side; that changes the speed, not the results. The default
        length penalty is that of Vaswani et al. 2017, section 6.1. A text of more than `longest` tokens is an error,
        for the search takes the longer the more there are; `shorten` cuts it.
        """
        if batch < 1:
            raise ValueError(f"batch = {batch}: it must be at least 1")
        rows = self.source_rows(texts, longest=longest)
        found: list[list[Translation]] = [[] for _ in texts]
        trees: dict[int, SearchTree] = {}
        lengths, least = [len(row) for row in rows], self.frame.overhead("source", "a") + 1
        count = _Count([length if length >= least else 0 for length in lengths], progress)
        for group in _groups(lengths, batch, shortest=least):
            recorder = Recorder() if trace is not None else None
            count.begin(group)
            results = self._search(
                [rows[i] for i in group],
                tokens=tokens,
                beams=beams,
                length_penalty=length_penalty,
                penalty=penalty,
                shortest=shortest,
                no_repeat=no_repeat,
                recorder=recorder,
                count=count,
            )
            for position, (index, hypotheses) in enumerate(zip(group, results, strict=True)):
                found[index] = [self._translation(hypothesis) for hypothesis in hypotheses]
                if recorder is not None:
                    trees[index] = recorder.tree(
                        hypotheses,
                        text=position,
                        show=self.tokenizer.show,
                        decode=self.tokenizer.decode,
                        boundary=self.end,
                        beams=beams,
                        length_penalty=length_penalty,
                        source=texts[index],
                    )
            count.end()
        if trace is not None:
            for index in sorted(trees):
                trace(trees[index])
        return found

    @torch.inference_mode()
    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch: int = 32, progress: ReportProgress | None = None
    ) -> list[NDArray[np.float64]]:
        """The surprisal in nats of each token of each target after its source, the one that ends it included."""
        rows, written = self.source_rows(sources), self.target_rows(targets)
        nats: list[NDArray[np.float64]] = [np.zeros(0)] * len(rows)
        done = 0
        for group in _groups([len(row) + len(text) for row, text in zip(rows, written, strict=True)], batch):
            check_cancelled()
            source, lengths = pad_rows([rows[i] for i in group], device=self.model.device)
            text, _ = pad_rows([written[i] for i in group], device=self.model.device)
            state = self.model.begin(self.model.encode(source=source, lengths=lengths))
            scored, _ = self.model.score(text[:, :-1], text[:, 1:], state)
            for index, part in zip(group, scored.cpu().double().numpy(), strict=True):
                nats[index] = part[: len(written[index]) - 1]
            done += len(group)
            if progress is not None:
                progress(done, len(rows))
        return nats

    def source_rows(self, texts: Sequence[str], *, longest: int | None = None) -> list[list[int]]:
        """What the model reads of each source; a ValueError where one is too long for the model, or for the user."""
        encoded = (self.source_tokenizer or self.tokenizer).encode_batch([text.strip() for text in texts])
        most, fits = self.most_source_tokens(longest), self.most_source_tokens(None)
        for number, ids in enumerate(encoded, start=1):
            if most is not None and len(ids) > most:
                remedy = "split it into sentences, or " + (
                    "train with a larger --set model.window" if most == fits else f"allow more than longest = {longest}"
                )
                raise TooLongError("source", number, tokens=len(ids), most=most, remedy=remedy)
        return [self.frame.row(a=ids)["source"] for ids in encoded]

    def most_source_tokens(self, longest: int | None) -> int | None:
        """The most tokens of a source, by the model's window and by what the user allows; None where nothing bounds."""
        if longest is not None and longest < 1:
            raise ValueError(f"longest = {longest}: it must be at least 1")
        window = self.model.source_window
        bounds = [] if window is None else [window - self.frame.overhead("source", "a")]
        return min([*bounds, *([] if longest is None else [longest])], default=None)

    def shorten(self, texts: Sequence[str], *, longest: int | None = LONGEST) -> list[str]:
        """The texts, those that are too long cut after the last token that there is room for."""
        tokenizer, most = self.source_tokenizer or self.tokenizer, self.most_source_tokens(longest)
        result = [text.strip() for text in texts]
        for number, text in enumerate(result):
            position = most
            while most is not None and position and len(tokenizer.encode(result[number])) > most:
                offsets = tokenizer.engine.encode(text, add_special_tokens=False).offsets
                result[number] = text[: offsets[position - 1][1]].rstrip()
                position -= 1  # what is cut may have other tokens at its end, even more of them
        return result

    def target_rows(self, texts: Sequence[str | Translation]) -> list[list[int]]:
        """Each target in its frame; of a translation, the tokens that it was written with."""
        encoded = iter(self.tokenizer.encode_batch([text.strip() for text in texts if isinstance(text, str)]))
        tokens = [next(encoded) if isinstance(text, str) else text.tokens for text in texts]
        rows = [self.frame.row(b=row)["tokens"] for row in tokens]
        window, around = self.model.window, self.frame.overhead("tokens", "b")
        for number, row in enumerate(rows, start=1):
            if window is not None and len(row) - 1 > window:
                length, most = len(row) - around, window + 1 - around
                raise ValueError(f"target {number} has {length} tokens, and the model writes at most {most}")
        return rows

    def _search(
        self,
        rows: list[list[int]],
        *,
        tokens: int | None,
        beams: int,
        length_penalty: float,
        penalty: Penalty,
        shortest: int,
        no_repeat: int,
        recorder: Recorder | None,
        count: _Count,
    ) -> list[list[Hypothesis]]:
        source, lengths = pad_rows(rows, device=self.model.device)
        limits = [max(room_for(len(row)), shortest + 1) if tokens is None else tokens for row in rows]
        if tokens is None and self.model.window is not None:
            limits = [min(limit, self.model.window) for limit in limits]
        steps = itertools.count(1)

        def watch(expansion: Expansion) -> None:
            count.step(next(steps), max(limits))
            if recorder is not None:
                recorder(expansion)

        with torch.inference_mode():
            return beam_search(
                self.model,
                torch.tensor([self.frame.row()["tokens"]] * len(rows), device=source.device),
                tokens=limits,
                beams=beams,
                boundary=self.end,
                length_penalty=length_penalty,
                penalty=penalty,
                shortest=shortest,
                no_repeat=no_repeat,
                never=self._never(),
                state=self.model.begin(self.model.encode(source=source, lengths=lengths)),
                watch=watch,
            )

    def _never(self) -> list[int]:
        """Tokens that no translation may have: the start of a target, and the special tokens of pre-training."""
        specials = (self.tokenizer.special(name) for name in SPECIAL_TOKENS if self.tokenizer.has_special(name))
        found = {*self.frame.row()["tokens"], *specials}
        return sorted(found - {self.end})

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        tokens = hypothesis.written
        text = " ".join(self.tokenizer.decode(tokens).splitlines()).strip()  # one line of input, one of output
        return Translation(text, hypothesis.score, hypothesis.log_probability, tokens, hypothesis.finished)


class _Count:
    """How much is done, in tokens of the sources; it rises within a search, too, which may be long."""

    def __init__(self, sizes: Sequence[int], progress: ReportProgress | None) -> None:
        self.sizes, self.total, self.progress = sizes, sum(sizes), progress
        self.done = self.now = 0

    def begin(self, group: Sequence[int]) -> None:
        self.now = sum(self.sizes[i] for i in group)

    def step(self, step: int, most: int) -> None:
        self._report(self.done + self.now * (step - 1) // most)

    def end(self) -> None:
        self.done += self.now
        self._report(self.done)

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, self.total)


def _groups(lengths: list[int], size: int, *, shortest: int = 1) -> Iterator[list[int]]:
    """Yield the indices of rows with at least `shortest` tokens, `size` at a time, longest rows first."""
    order = sorted((i for i, length in enumerate(lengths) if length >= shortest), key=lambda i: -lengths[i])
    for first in range(0, len(order), size):
        yield order[first : first + size]
