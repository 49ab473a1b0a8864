"""Continuing a text: piece by piece as tokens are drawn, or by the most probable continuations that a search finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lmlab.decoding.generate import Picker, Reader, device_of, generate
from lmlab.decoding.search import beam_search
from lmlab.decoding.streaming import TextStream
from lmlab.decoding.tracing import Recorder, SearchTree
from lmlab.models.abilities import PredictsNext
from lmlab.tokenizers import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A model of the next token with its tokenizer; a text begins with the boundary."""

    model: PredictsNext
    tokenizer: Tokenizer

    @property
    def end(self) -> int | None:
        """The boundary, at which a text ends; not where it is also the end of a line (`words`)."""
        return None if self.tokenizer.newline_is_boundary else self.tokenizer.boundary

    def stream(
        self, prompt: str, *, pick: Picker, tokens: int, samples: int = 1, stop: str | Sequence[str] = ()
    ) -> Iterator[list[str]]:
        """Continuations of a prompt piece by piece as the tokens come: each time one (perhaps empty) string each."""
        ids = self.tokenizer.encode(prompt)
        streams = [self._begin(ids, stop) for _ in range(samples)]
        chosen = generate(self.model, self._row(ids), tokens=tokens, pick=pick, samples=samples, boundary=self.end)
        return self._pieces(chosen, streams)

    def search(
        self,
        prompt: str,
        *,
        tokens: int,
        beams: int,
        samples: int = 1,
        length_penalty: float = 0.0,
        stop: str | Sequence[str] = (),
        trace: Callable[[SearchTree], None] | None = None,
    ) -> list[str]:
        """The `samples` best continuations that a beam search finds, best first; `trace` is given its tree."""
        if not 1 <= samples <= beams:
            raise ValueError(f"samples = {samples} with beams = {beams}: a search gives at most as many texts as beams")
        ids = self.tokenizer.encode(prompt)
        recorder = Recorder()
        (found,) = beam_search(
            self.model,
            self._row(ids),
            tokens=tokens,
            beams=beams,
            boundary=self.end,
            length_penalty=length_penalty,
            watch=None if trace is None else recorder,
        )
        if trace is not None:
            tree = recorder.tree(
                found,
                show=self.tokenizer.show,
                decode=self.tokenizer.decode,
                boundary=self.end,
                beams=beams,
                length_penalty=length_penalty,
                prompt=prompt,
            )
            trace(tree)
        texts = []
        for hypothesis in found[:samples]:
            stream = self._begin(ids, stop)
            texts.append("".join(map(stream.add, hypothesis.written)) + stream.finish())
        return texts

    def next(self, prompt: str, *, top: int) -> list[tuple[str, float]]:
        """The most probable next tokens after a prompt, with their probabilities."""
        if top < 1:
            raise ValueError(f"top = {top}: ask for at least 1 token")
        with torch.inference_mode():
            logits = Reader(self.model, batch=1).read(self._row(self.tokenizer.encode(prompt)))
            best = logits[0].double().softmax(-1).topk(min(top, logits.shape[-1]))
        return [(self.tokenizer.show(i), p) for p, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]

    def _row(self, ids: list[int]) -> Tensor:
        """A prompt [1, T] as the model reads it."""
        return torch.tensor([[self.tokenizer.boundary, *ids]], device=device_of(self.model))

    def _begin(self, ids: list[int], stop: str | Sequence[str]) -> TextStream:
        return TextStream(self.tokenizer, prompt=ids, stop=[stop] if isinstance(stop, str) else list(stop))

    def _pieces(self, chosen: Iterator[Tensor], streams: list[TextStream]) -> Iterator[list[str]]:
        end = self.end
        for tokens in chosen:
            pieces = []
            for stream, token in zip(streams, tokens.tolist(), strict=True):
                pieces.append(stream.finish() if token == end else stream.add(token))
            yield pieces
            if all(stream.stopped for stream in streams):
                return
        yield [stream.finish() for stream in streams]
