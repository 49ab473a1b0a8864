"""Translating: sentences of like length side by side, each with its own beams, and back in the order they came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.decoding.search import Hypothesis, Penalty, beam_search
from lmlab.decoding.tracing import Recorder, SearchTree
from lmlab.models.abilities import WritesTarget
from lmlab.progress import ReportProgress
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, frame_of, pad_rows
from lmlab.tokenizers.tokenizer import ROLES


class Translation(NamedTuple):
    """A target text that the search ended with."""

    text: str
    score: float  # log_probability / length penalty
    log_probability: float
    tokens: list[int]  # without the boundary
    finished: bool


def room_for(source: int) -> int:
    """The most tokens of a translation, unless the user says otherwise: ample, as the model ends it by itself."""
    return 3 * source + 16


class Searching(TypedDict, total=False):
    """The options of `Translator.translate` by name, for signatures that take them one by one."""

    beams: int
    length_penalty: float
    penalty: Penalty
    tokens: int | None
    shortest: int
    no_repeat: int
    batch: int
    trace: Callable[[SearchTree], None] | None
    progress: ReportProgress | None


@dataclass(frozen=True, kw_only=True)
class Translator:
    """A model that writes a target from a source, with the tokenizers of its two sides.

    A source is read as its tokens and the boundary. A target begins with the boundary (or with the model's own `start`)
    and ends with the boundary: so says the frame.
    """

    model: WritesTarget
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer | None = None
    reverse: bool = False
    """Whether the model was trained on sources from their last token to the first (Sutskever et al. 2014)."""

    @cached_property
    def frame(self) -> Frame:
        """What stands around a source and a target."""
        return frame_of(self.model, self.tokenizer, self.source_tokenizer, backwards=self.reverse)

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
        batch: int = 32,
        trace: Callable[[SearchTree], None] | None = None,
        progress: ReportProgress | None = None,
    ) -> list[list[Translation]]:
        """The best translations of each text, best first, up to `beams`; none of an empty text.

        `batch` sentences of like length are searched side by side; that changes the speed, not the results. The default
        length penalty is that of Vaswani et al. 2017, section 6.1.
        """
        if batch < 1:
            raise ValueError(f"batch = {batch}: it must be at least 1")
        rows = self.source_rows(texts)
        found: list[list[Translation]] = [[] for _ in texts]
        trees: dict[int, SearchTree] = {}
        done = len(rows) - sum(len(row) > 1 for row in rows)
        for group in _groups([len(row) for row in rows], batch, shortest=2):
            recorder = Recorder() if trace is not None else None
            results = self._search(
                [rows[i] for i in group],
                tokens=tokens,
                beams=beams,
                length_penalty=length_penalty,
                penalty=penalty,
                shortest=shortest,
                no_repeat=no_repeat,
                recorder=recorder,
            )
            for place, (index, hypotheses) in enumerate(zip(group, results, strict=True)):
                found[index] = [self._translation(hypothesis) for hypothesis in hypotheses]
                if recorder is not None:
                    trees[index] = recorder.tree(
                        hypotheses,
                        text=place,
                        show=self.tokenizer.show,
                        decode=self.tokenizer.decode,
                        boundary=self.tokenizer.boundary,
                        beams=beams,
                        length_penalty=length_penalty,
                        source=texts[index],
                    )
            done += len(group)
            if progress is not None:
                progress(done, len(texts))
        if trace is not None:
            for index in sorted(trees):
                trace(trees[index])
        return found

    @torch.inference_mode()
    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch: int = 32, progress: ReportProgress | None = None
    ) -> list[NDArray[np.float64]]:
        """The surprisal in nats of each token of each target after its source, the boundary that ends it included."""
        rows, written = self.source_rows(sources), self.target_rows(targets)
        nats: list[NDArray[np.float64]] = [np.zeros(0)] * len(rows)
        done = 0
        for group in _groups([len(row) + len(text) for row, text in zip(rows, written, strict=True)], batch):
            source, lengths = pad_rows([rows[i] for i in group], device=self.model.device)
            text, _ = pad_rows([written[i] for i in group], device=self.model.device)
            state = self.model.begin(self.model.encode(source, lengths))
            scored, _ = self.model.score(text[:, :-1], text[:, 1:], state)
            for index, part in zip(group, scored.cpu().double().numpy(), strict=True):
                nats[index] = part[: len(written[index]) - 1]
            done += len(group)
            if progress is not None:
                progress(done, len(rows))
        return nats

    def source_rows(self, texts: Sequence[str]) -> list[list[int]]:
        """What the model reads of each source; a ValueError where one does not fit the model."""
        tokenizer, window = self.source_tokenizer or self.tokenizer, self.model.window
        rows = [self.frame.row(a=ids)["source"] for ids in tokenizer.encode_batch([text.strip() for text in texts])]
        most = None if window is None else window - self.frame.overhead("source", "a")
        for number, row in enumerate(rows, start=1):
            if window is not None and len(row) > window:
                raise ValueError(
                    f"source {number} has {len(row) - 1} tokens, and the model reads at most {most}: split it into "
                    f"sentences, or train with a larger --set model.window"
                )
        return rows

    def target_rows(self, texts: Sequence[str | Translation]) -> list[list[int]]:
        """The start, the tokens of each target (those that a translation was written with), and the boundary."""
        encoded = iter(self.tokenizer.encode_batch([text.strip() for text in texts if isinstance(text, str)]))
        tokens = [next(encoded) if isinstance(text, str) else text.tokens for text in texts]
        rows = [self.frame.row(b=row)["tokens"] for row in tokens]
        window = self.model.window
        for number, row in enumerate(rows, start=1):
            if window is not None and len(row) - 1 > window:
                raise ValueError(
                    f"target {number} has {len(row) - 2} tokens, and the model writes at most {window - 1}"
                )
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
    ) -> list[list[Hypothesis]]:
        source, lengths = pad_rows(rows, device=self.model.device)
        limits = [max(room_for(len(row)), shortest + 1) if tokens is None else tokens for row in rows]
        if tokens is None and self.model.window is not None:
            limits = [min(limit, self.model.window) for limit in limits]
        with torch.inference_mode():
            return beam_search(
                self.model,
                torch.tensor([self.frame.row()["tokens"]] * len(rows), device=source.device),
                tokens=limits,
                beams=beams,
                boundary=self.tokenizer.boundary,
                length_penalty=length_penalty,
                penalty=penalty,
                shortest=shortest,
                no_repeat=no_repeat,
                never=self._never(),
                state=self.model.begin(self.model.encode(source, lengths)),
                watch=recorder,
            )

    def _never(self) -> list[int]:
        """Tokens that no translation holds: what begins a target, and the blanks and marks of pre-training."""
        roles = (self.tokenizer.role(role) for role in ROLES if self.tokenizer.has_role(role))
        found = {*self.frame.row()["tokens"], *roles}
        return sorted(found - {self.tokenizer.boundary})

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        tokens = hypothesis.written
        text = " ".join(self.tokenizer.decode(tokens).splitlines()).strip()  # one line of input, one of output
        return Translation(text, hypothesis.score, hypothesis.log_probability, tokens, hypothesis.finished)


def _groups(lengths: list[int], size: int, *, shortest: int = 1) -> Iterator[list[int]]:
    """The places of all rows with at least `shortest` tokens, `size` at a time, long ones first: so a bar speeds up."""
    order = sorted((i for i, length in enumerate(lengths) if length >= shortest), key=lambda i: -lengths[i])
    for first in range(0, len(order), size):
        yield order[first : first + size]
