"""What users hold: a model with its tokenizer, that scores texts, continues them and names the next token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.decoding.generate import Picker, Reader, device_of
from lmlab.decoding.generate import generate as generate_tokens
from lmlab.decoding.mixture import Mixture, learn_weights
from lmlab.decoding.sampling import Greedy, Sampler
from lmlab.decoding.scoring import Progress, Score, score_tokens
from lmlab.decoding.search import beam_search
from lmlab.decoding.streaming import TextStream
from lmlab.models import model as contracts

if TYPE_CHECKING:
    from lmlab.tokenizers import Tokenizer


def load(path: str | Path, *, device: str | torch.device = "cpu") -> LanguageModel:
    """The language model in a run directory."""
    from lmlab.checkpoint import load_model

    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path} does not exist; a run directory is made by: lmlab train MODEL TEXT -o {path}")
    model, tokenizer = load_model(path)
    if isinstance(model, torch.nn.Module):
        model.to(device).eval()
    return LanguageModel(model=model, tokenizer=tokenizer, path=path)


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A model and the tokenizer it was trained with."""

    model: contracts.LanguageModel
    tokenizer: Tokenizer
    path: Path | None = None

    def __repr__(self) -> str:
        kind = type(self.model).__name__
        return (
            f"LanguageModel({kind}, {self.model.vocabulary:,} tokens, {str(self.path) if self.path else 'not saved'})"
        )

    def score(self, text: str | Sequence[str], *, batch: int = 16, progress: Progress | None = None) -> Score:
        """How well the model predicts a text, or several texts that have nothing to do with each other."""
        texts = [text] if isinstance(text, str) else list(text)
        documents = self._encode(texts)
        nats = score_tokens(self.model, documents, boundary=self.tokenizer.boundary, batch=batch, progress=progress)
        unknown = sum(int(np.count_nonzero(document == self.tokenizer.unknown)) for document in documents)
        return Score(
            nats=float(sum(part.sum() for part in nats)),
            tokens=sum(map(len, documents)),
            words=sum(len(each.split()) for each in texts),
            bytes=sum(len(each.encode()) for each in texts),
            lossy=self.tokenizer.lossy or unknown > 0,
            unknown=unknown,
            token_ids=documents,
            token_nats=nats,
            show=self.tokenizer.show,
        )

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int = 100,
        samples: int = 1,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
        beams: int | None = None,
        length_penalty: float = 0.0,
        stop: str | Sequence[str] = (),
        seed: int = 0,
    ) -> str | list[str]:
        """The continuation of a prompt (without the prompt), or a list of `samples` of them.

        With `beams` they are the most probable ones that a search with so many beams finds, best first, and nothing is
        drawn. The text ends after `tokens` tokens, before a `stop` string, or where the model ends the document.
        """
        if beams is None:
            pieces = self.stream(
                prompt,
                tokens=tokens,
                samples=samples,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
                stop=stop,
                seed=seed,
            )
            texts = ["".join(column) for column in zip(*pieces, strict=True)]
        else:
            idle = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
            given = [name for name, value in idle.items() if value is not None]
            given += [
                name
                for name, value in (("temperature", temperature), ("repetition_penalty", repetition_penalty))
                if value != 1.0
            ]
            if given:
                raise ValueError(
                    f"beams = {beams} with {', '.join(given)}: beam search draws nothing, leave out one or the other"
                )
            texts = self._search(prompt, tokens, samples, beams, length_penalty, _listed(stop))
        return texts[0] if samples == 1 else texts

    def stream(
        self,
        prompt: str = "",
        *,
        tokens: int = 100,
        samples: int = 1,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
        stop: str | Sequence[str] = (),
        seed: int = 0,
    ) -> Iterator[list[str]]:
        """The same piece by piece as the tokens come: each time one (perhaps empty) string per sample."""
        ids = self.tokenizer.encode(prompt)
        pick: Picker = Sampler(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        )
        if temperature == 0.0 and repetition_penalty == 1.0:
            pick = Greedy()
        streams = [TextStream(self.tokenizer, prompt=ids, stop=_listed(stop)) for _ in range(samples)]
        chosen = generate_tokens(
            self.model, self._prompt(ids), tokens=tokens, pick=pick, samples=samples, boundary=self._end
        )
        return self._pieces(chosen, streams)

    def next(self, prompt: str = "", *, top: int = 10) -> list[tuple[str, float]]:
        """The most probable next tokens after a prompt, with their probabilities."""
        if top < 1:
            raise ValueError(f"top = {top}: ask for at least 1 token")
        with torch.inference_mode():
            logits = Reader(self.model, batch=1).read(self._prompt(self.tokenizer.encode(prompt)))
            best = logits[0].double().softmax(-1).topk(min(top, logits.shape[-1]))
        return [(self.tokenizer.show(i), p) for p, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]

    def mix(self, others: Sequence[LanguageModel], *, weights: Sequence[float] | None = None) -> LanguageModel:
        """A linear mixture with other models of the very same tokenizer; `weights` in order, this one's first."""
        for other in others:
            if self.tokenizer.fingerprint != other.tokenizer.fingerprint:
                raise ValueError(
                    f"{other.path or other} cannot be mixed with {self.path or self}: their tokenizers differ; "
                    f"train both with the same tokenizer.json"
                )
        models = [self.model, *(other.model for other in others)]
        return LanguageModel(model=Mixture(models, weights=weights), tokenizer=self.tokenizer)

    def learn_mixture(
        self, text: str | Sequence[str], *, batch: int = 16, progress: Progress | None = None
    ) -> list[float]:
        """The weights with which a mixture's parts best predict held-out text, to be given to `mix`."""
        if not isinstance(self.model, Mixture):
            raise ValueError("weights are learnt for a mixture: make one with model.mix([other, …])")
        documents = self._encode([text] if isinstance(text, str) else list(text))
        nats = [
            score_tokens(part, documents, boundary=self.tokenizer.boundary, batch=batch, progress=progress)
            for part in self.model.models
        ]
        return learn_weights([np.concatenate(part) for part in nats])

    @property
    def _end(self) -> int | None:
        """The boundary, at which a text ends; not where it is also the end of a line (`words`)."""
        return None if self.tokenizer.newline_is_boundary else self.tokenizer.boundary

    def _encode(self, texts: list[str]) -> list[NDArray[np.int64]]:
        documents = [np.asarray(ids, dtype=np.int64) for ids in self.tokenizer.encode_batch(texts)]
        if not sum(map(len, documents)):
            raise ValueError("there is no text to score: it is empty, or has no token")
        return documents

    def _prompt(self, ids: list[int]) -> Tensor:
        return torch.tensor([[self.tokenizer.boundary, *ids]], device=device_of(self.model))

    def _pieces(self, chosen: Iterator[Tensor], streams: list[TextStream]) -> Iterator[list[str]]:
        end = self._end
        for tokens in chosen:
            pieces = []
            for stream, token in zip(streams, tokens.tolist(), strict=True):
                pieces.append(stream.finish() if token == end else stream.add(token))
            yield pieces
            if all(stream.stopped for stream in streams):
                return
        yield [stream.finish() for stream in streams]

    def _search(
        self, prompt: str, tokens: int, samples: int, beams: int, length_penalty: float, stop: list[str]
    ) -> list[str]:
        if not 1 <= samples <= beams:
            raise ValueError(f"samples = {samples} with beams = {beams}: a search gives at most as many texts as beams")
        ids = self.tokenizer.encode(prompt)
        (found,) = beam_search(
            self.model, self._prompt(ids), tokens=tokens, beams=beams, boundary=self._end, length_penalty=length_penalty
        )
        texts = []
        for hypothesis in found[:samples]:
            stream = TextStream(self.tokenizer, prompt=ids, stop=stop)
            kept = hypothesis.tokens[:-1] if hypothesis.finished else hypothesis.tokens
            texts.append("".join(stream.add(token) for token in kept) + stream.finish())
        return texts


def _listed(stop: str | Sequence[str]) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop)
