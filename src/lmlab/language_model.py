"""What users hold: a model with its tokenizer, that scores texts, continues them and names the next token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.analysis.alignment import Alignment, align
from lmlab.analysis.embedding import BATCH_TOKENS, Embedder, Pool, TokenVectors, Vectors
from lmlab.decoding.filling import BEAMS, Filled, Order
from lmlab.decoding.filling import fill as fill_blanks
from lmlab.decoding.mixture import Mixture, learn_weights
from lmlab.decoding.pseudo import pseudo_score_tokens
from lmlab.decoding.sampling import Sampler
from lmlab.decoding.scoring import Progress, Score, score_tokens
from lmlab.decoding.search import Penalty
from lmlab.decoding.tracing import SearchTree
from lmlab.decoding.translation import Translation, Translator
from lmlab.decoding.writing import Writer
from lmlab.models import model as contracts
from lmlab.models.abilities import FillsBlanks, PredictsNext, require

if TYPE_CHECKING:
    from lmlab.tokenizers import Tokenizer


def load(path: str | Path, *, device: str | torch.device = "cpu") -> LanguageModel:
    """The language model in a run directory."""
    from lmlab.checkpoint import load_model, load_source_tokenizer, reads_backwards

    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path} does not exist; a run directory is made by: lmlab train MODEL TEXT -o {path}")
    model, tokenizer = load_model(path)
    if isinstance(model, torch.nn.Module):
        model.to(device).eval()
    return LanguageModel(
        model=model,
        tokenizer=tokenizer,
        path=path,
        source_tokenizer=load_source_tokenizer(path),
        reverse_source=reads_backwards(path),
    )


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A model and the tokenizer it was trained with."""

    model: PredictsNext
    tokenizer: Tokenizer
    path: Path | None = None
    source_tokenizer: Tokenizer | None = None
    """Of a translator whose source has a vocabulary of its own."""
    reverse_source: bool = False
    """Whether a translator reads its source from the last token to the first."""

    def __repr__(self) -> str:
        kind = type(self.model).__name__
        return (
            f"LanguageModel({kind}, {self.model.vocabulary:,} tokens, {str(self.path) if self.path else 'not saved'})"
        )

    def score(self, text: str | Sequence[str], *, batch: int = 16, progress: Progress | None = None) -> Score:
        """How well the model predicts a text, or several texts that have nothing to do with each other.

        A model that fills blanks guesses each token from all others: that is its pseudo-log-likelihood (`pseudo`).
        """
        texts = [text] if isinstance(text, str) else list(text)
        documents = self._encode(texts)
        pseudo = isinstance(self.model, contracts.EncoderModel)
        score = self._pseudo_score if pseudo else self._score
        nats = score(documents, batch, progress)
        unknown = sum(int(np.count_nonzero(document == self.tokenizer.unknown)) for document in documents)
        return Score(
            nats=float(sum(part.sum() for part in nats)),
            tokens=sum(map(len, documents)),
            words=sum(len(each.split()) for each in texts),
            bytes=sum(len(each.encode()) for each in texts),
            lossy=self.tokenizer.lossy or unknown > 0,
            unknown=unknown,
            pseudo=pseudo,
            token_ids=documents,
            token_nats=nats,
            show=self.tokenizer.show,
        )

    def fill(
        self,
        text: str,
        *,
        top: int = 5,
        jointly: bool = False,
        order: Order = "left-to-right",
        beams: int = BEAMS,
    ) -> Filled:
        """The best fillings of a text in which each `[MASK]` is a blank, and the best tokens of each blank by itself.

        Several blanks are filled each by itself, or `jointly`, so that they suit each other: see decoding/filling.py.
        """
        return fill_blanks(
            self.model, text, tokenizer=self.tokenizer, top=top, jointly=jointly, order=order, beams=beams
        )

    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        layers: str | int = ...,
        pool: None = ...,
        truncate: bool = ...,
        batch_tokens: int = ...,
        progress: Progress | None = ...,
    ) -> list[TokenVectors]: ...

    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        layers: str | int = ...,
        pool: Pool,
        truncate: bool = ...,
        batch_tokens: int = ...,
        progress: Progress | None = ...,
    ) -> Vectors: ...

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        layers: str | int = "last",
        pool: Pool | None = None,
        truncate: bool = False,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
    ) -> list[TokenVectors] | Vectors:
        """The vectors of each text's tokens, with their words; with `pool`, one vector for each text [N, D].

        `layers` is last, first (the embeddings), second-to-last, a number, sum:, mean: or concat: with all, -4: or 1,3,
        or mix, the mean of all. `pool` is cls, mean or max.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        embedder = Embedder(
            model=self.model,
            tokenizer=self.source_tokenizer or self.tokenizer,
            layers=layers,
            truncate=truncate,
            backwards=self.reverse_source,
            batch_tokens=batch_tokens,
            progress=progress,
        )
        return embedder.tokens(given) if pool is None else embedder.whole(given, pool)

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
        trace: Callable[[SearchTree], None] | None = None,
    ) -> str | list[str]:
        """The continuation of a prompt (without the prompt), or a list of `samples` of them.

        With `beams` they are the most probable ones that a search with so many beams finds, best first, and nothing is
        drawn; `trace` is then given the tree of the search. The text ends after `tokens` tokens, before a `stop`
        string, or where the model ends the document.
        """
        if beams is None:
            if trace is not None:
                raise ValueError("trace is given the tree of a beam search: give beams too")
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
            drawing = {
                "top_k": top_k is not None,
                "top_p": top_p is not None,
                "min_p": min_p is not None,
                "temperature": temperature != 1.0,
                "repetition_penalty": repetition_penalty != 1.0,
            }
            if given := [name for name, is_given in drawing.items() if is_given]:
                raise ValueError(
                    f"beams = {beams} with {', '.join(given)}: beam search draws nothing, leave out one or the other"
                )
            texts = self.writer.search(
                prompt,
                tokens=tokens,
                samples=samples,
                beams=beams,
                length_penalty=length_penalty,
                stop=stop,
                trace=trace,
            )
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
        pick = Sampler(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        )
        return self.writer.stream(prompt, pick=pick, tokens=tokens, samples=samples, stop=stop)

    @property
    def writer(self) -> Writer:
        """The model as one that continues a text; a ValueError where it writes from a source."""
        self._check_reads_no_source()
        return Writer(model=self.model, tokenizer=self.tokenizer)

    @property
    def translator(self) -> Translator:
        """The model as one that writes a target from a source; a ValueError where it is not."""
        if not isinstance(self.model, contracts.EncoderDecoder):
            raise ValueError(
                f"{self.path or self} holds {type(self.model).__name__}, which reads no source: it translates nothing. "
                f"A translator is made by: lmlab train transformer --source FILE --target FILE -o RUN"
            )
        return Translator(
            model=self.model,
            tokenizer=self.tokenizer,
            source_tokenizer=self.source_tokenizer,
            reverse=self.reverse_source,
        )

    def translate(
        self,
        text: str | Sequence[str],
        *,
        beams: int = 5,
        length_penalty: float = 0.6,
        penalty: Penalty = "wu",
        tokens: int | None = None,
        shortest: int = 0,
        no_repeat: int = 0,
        batch: int = 32,
        trace: Callable[[SearchTree], None] | None = None,
        progress: Progress | None = None,
    ) -> str | list[str]:
        """The best translation of a text, or of each of several; an empty text stays empty.

        A beam search for at most `tokens` tokens with at least `shortest`, in which no `no_repeat` tokens in a row come
        twice; `trace` is given the tree of each search. `translator.translate` gives all that it finds, with scores.
        """
        found = self.translator.translate(
            [text] if isinstance(text, str) else text,
            beams=beams,
            length_penalty=length_penalty,
            penalty=penalty,
            tokens=tokens,
            shortest=shortest,
            no_repeat=no_repeat,
            batch=batch,
            trace=trace,
            progress=progress,
        )
        best = [each[0].text if each else "" for each in found]
        return best[0] if isinstance(text, str) else best

    def alignments(
        self,
        source: str | Sequence[str],
        target: str | Sequence[str | Translation],
        *,
        layer: int = -1,
        head: int | None = None,
        batch: int = 32,
    ) -> list[Alignment]:
        """How much each target token attends to each source token: the mean over the heads of the decoder's last block.

        Another `layer` (from 0) or a single `head` can be asked for. A translation stands for the tokens that it was
        written with.
        """
        translator = self.translator
        sources = [source] if isinstance(source, str) else list(source)
        targets = [target] if isinstance(target, str) else list(target)
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources and {len(targets)} targets: one target for each source is needed")
        found = align(
            translator.model,
            translator.source_rows(sources),
            translator.target_rows(targets),
            show_source=(self.source_tokenizer or self.tokenizer).show,
            show_target=self.tokenizer.show,
            layer=layer,
            head=head,
            batch=batch,
        )
        texts = [each if isinstance(each, str) else each.text for each in targets]
        found = [each._replace(texts=(a, b)) for each, a, b in zip(found, sources, texts, strict=True)]
        return [each.in_order() for each in found] if translator.reverse else found

    def next(self, prompt: str = "", *, top: int = 10) -> list[tuple[str, float]]:
        """The most probable next tokens after a prompt, with their probabilities."""
        return self.writer.next(prompt, top=top)

    def mix(self, others: Sequence[LanguageModel], *, weights: Sequence[float] | None = None) -> LanguageModel:
        """A linear mixture with other models of the very same tokenizer; `weights` in order, this one's first."""
        for other in others:
            if self.tokenizer.fingerprint != other.tokenizer.fingerprint:
                raise ValueError(
                    f"{other.path or other} cannot be mixed with {self.path or self}: their tokenizers differ; "
                    f"train both with the same tokenizer.json"
                )
        models = [self.model, *(other.model for other in others)]
        if any(isinstance(model, contracts.EncoderModel) for model in models):
            raise ValueError("models that fill blanks are not mixed: only predictions of the next token are")
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

    def _encode(self, texts: list[str]) -> list[NDArray[np.int64]]:
        documents = [np.asarray(ids, dtype=np.int64) for ids in self.tokenizer.encode_batch(texts)]
        if not sum(map(len, documents)):
            raise ValueError("there is no text to score: it is empty, or has no token")
        return documents

    def _score(
        self, documents: list[NDArray[np.int64]], batch: int, progress: Progress | None
    ) -> list[NDArray[np.float64]]:
        self._check_reads_no_source()
        return score_tokens(self.model, documents, boundary=self.tokenizer.boundary, batch=batch, progress=progress)

    def _pseudo_score(
        self, documents: list[NDArray[np.int64]], batch: int, progress: Progress | None
    ) -> list[NDArray[np.float64]]:
        roles = {name: self.tokenizer.role(name) for name in ("cls", "sep", "mask")}
        return pseudo_score_tokens(require(self.model, FillsBlanks), documents, batch=batch, progress=progress, **roles)

    def _check_reads_no_source(self) -> None:
        if isinstance(self.model, contracts.EncoderDecoder):
            raise ValueError(
                f"{self.path or self} holds {type(self.model).__name__}, which writes from a source and continues "
                f"no text: try lmlab translate, or lmlab evaluate for its loss"
            )
