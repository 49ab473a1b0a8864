"""Writers continue texts: token by token by sampling, or with the most probable continuations of a beam search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lmlab.decoding.beam_search import beam_search
from lmlab.decoding.generate import NextTokenResult, StatefulReader, generate
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.decoding.search_recorder import Recorder
from lmlab.decoding.streaming import TextStream
from lmlab.models.abilities import PredictsNext
from lmlab.pages.search_tree import SearchTree
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.boundary import prompt_tokens
from lmlab.tokenizers.frames import Frame


class Written(NamedTuple):
    """A generated token, and the new text that is certain after it, which may be empty."""

    next: NextTokenResult
    text: str


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A model that predicts the next token, with its tokenizer and its frame (the special tokens before a text)."""

    model: PredictsNext
    tokenizer: Tokenizer
    frame: Frame
    ends: frozenset[int] = frozenset()
    """Further tokens that end a text: in a chat, the token that ends a message."""

    @property
    def end(self) -> int | None:
        """The boundary, which ends a text; None if it is also the end of a line (`words`)."""
        return None if self.tokenizer.newline_is_boundary else self.tokenizer.boundary

    def is_end(self, token: int) -> bool:
        """Whether a token ends a text; it is not part of the text."""
        return token == self.end or token in self.ends

    def write(
        self,
        prompt: str | Sequence[int],
        *,
        sampling: Sampling,
        tokens: int,
        samples: int = 1,
        stop: str | Sequence[str] = (),
        top: int | None = None,
    ) -> Iterator[list[Written]]:
        """Continuations of a prompt, token by token: each time the tokens of the texts that have not ended.

        A prompt is a text or its tokens.
        `top` asks for surprisals and the number of alternatives of each token: see `generate`.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        streams = [self._begin(ids, stop) for _ in range(samples)]
        steps = generate(
            self.model,
            self._row(ids),
            tokens=tokens,
            pick=Sampler(sampling),
            samples=samples,
            boundary=self.end,
            top=top,
            stops=lambda row, token: streams[row].stops(token),
        )
        return ([Written(each, streams[each.row].take(ended=bool(each.ended))) for each in step] for step in steps)

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        sampling: Sampling,
        tokens: int,
        samples: int = 1,
        stop: str | Sequence[str] = (),
    ) -> Iterator[list[str]]:
        """Continuations of a prompt, piece by piece: at each step one (perhaps empty) string per sample."""
        steps = self.write(prompt, sampling=sampling, tokens=tokens, samples=samples, stop=stop)
        texts = ({each.next.row: each.text for each in step} for step in steps)
        return ([text.get(row, "") for row in range(samples)] for text in texts)

    def generate(
        self,
        prompt: str,
        *,
        sampling: Sampling,
        tokens: int,
        samples: int = 1,
        beams: int | None = None,
        length_penalty: float = 0.0,
        stop: str | Sequence[str] = (),
        trace: Callable[[SearchTree], None] | None = None,
    ) -> list[str]:
        """Whole continuations of a prompt: sampled, or found by a beam search if `beams` is given."""
        if beams is not None:
            if given := sampling.given():
                raise ValueError(
                    f"beams = {beams} with {', '.join(given)}: beam search does not sample, leave out one or the other"
                )
            return self.search(
                prompt,
                tokens=tokens,
                beams=beams,
                samples=samples,
                length_penalty=length_penalty,
                stop=stop,
                trace=trace,
            )
        if trace is not None:
            raise ValueError("trace receives the tree of a beam search: give beams too")
        texts = [""] * samples
        for pieces in self.stream(prompt, sampling=sampling, tokens=tokens, samples=samples, stop=stop):
            texts = [text + piece for text, piece in zip(texts, pieces, strict=True)]
        return texts

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
        """The `samples` best continuations of a beam search, best first; `trace` is called with its tree."""
        if not 1 <= samples <= beams:
            raise ValueError(f"samples = {samples} with beams = {beams}: a search finds at most as many texts as beams")
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
            logits = StatefulReader(self.model, batch=1).read(self._row(self.tokenizer.encode(prompt)))
            best = logits[0].double().softmax(-1).topk(min(top, logits.shape[-1]))
        return [(self.tokenizer.show(i), p) for p, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]

    def _row(self, ids: list[int]) -> Tensor:
        """The tokens [1, T] of a prompt in its frame."""
        return torch.tensor([prompt_tokens(self.frame, ids)], device=self.model.device)

    def _begin(self, ids: list[int], stop: str | Sequence[str]) -> TextStream:
        stop = [stop] if isinstance(stop, str) else list(stop)
        return TextStream(self.tokenizer, prompt=ids, stop=stop, ends=self.ends)
