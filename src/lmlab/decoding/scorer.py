"""Scorers: how well a model predicts texts, by the chain rule, in both directions, or by pseudo-log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.decoding.chain_rule import Nats, score_tokens, score_without_boundary
from lmlab.decoding.interpolation import InterpolatedModel, learn_weights
from lmlab.decoding.pseudo_likelihood import Chosen, pseudo_score_tokens
from lmlab.models.abilities import FillsMasks, PredictsBothWays, PredictsNext, ability, require
from lmlab.progress import ReportProgress
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.boundary import opening_token, puts_boundary
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.inspecting import loses_text
from lmlab.units import bits_per_byte

Documents = list[NDArray[np.int64]]
DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class Score:
    """How well a model predicts texts.

    `words` are those between white space. Published word perplexities of PTB, WikiText and Brown count line ends too:
    they are the `perplexity` per token of a `words` tokenizer, for which every line end is a token.
    """

    nats: float
    tokens: int
    words: int
    bytes: int
    lossy: bool = False  # part of the text is lost in its tokens, so bits per byte are too low
    unknown: int = 0  # tokens of words that are not in the vocabulary
    pseudo: bool = False  # each token was predicted from all others: not comparable with left-to-right scores
    approximation: str = ""  # of attention, if it is approximated: hashes and their seed
    directions: dict[str, float] = field(default_factory=dict)  # nats of each, if there are two; `nats` is their mean
    token_ids: list[NDArray[np.int64]] = field(default_factory=list, repr=False, compare=False)  # per document
    token_nats: list[Nats] = field(default_factory=list, repr=False, compare=False)
    show: Callable[[int], str] = field(default=str, repr=False, compare=False)

    @property
    def bits_per_byte(self) -> float:
        """nats / (ln 2 * bytes of UTF-8): comparable between tokenizers that lose nothing."""
        return bits_per_byte(self.nats, self.bytes) if self.bytes else math.nan

    @property
    def perplexity(self) -> float:
        """exp(nats / tokens): comparable between models with the same tokenizer."""
        return _exp(self.nats / self.tokens) if self.tokens else math.nan

    @property
    def word_perplexity(self) -> float:
        """exp(nats / words): comparable between tokenizers that lose nothing."""
        return _exp(self.nats / self.words) if self.words else math.nan

    @property
    def bits(self) -> float:
        """The surprisal of all the text, in bits."""
        return self.nats / math.log(2)

    @property
    def surprisals(self) -> list[tuple[str, float]]:
        """Each token in readable form, with its surprisal in bits."""
        ids, nats = np.concatenate(self.token_ids), np.concatenate(self.token_nats)
        names = {index: self.show(index) for index in np.unique(ids).tolist()}
        return [(names[index], bits) for index, bits in zip(ids.tolist(), (nats / math.log(2)).tolist(), strict=True)]

    def in_direction(self, name: str) -> Score:
        """The score of one of the two directions."""
        return replace(self, nats=self.directions[name], directions={}, token_ids=[], token_nats=[])

    def _repr_html_(self) -> str:
        """In a notebook: the text in colour."""
        from markupsafe import Markup

        from lmlab.pages.views import show_surprisals

        if not self.token_ids:
            return Markup("<code>{}</code>").format(repr(self))
        pieces = self.surprisals
        summary = f"{self.bits:,.1f} {'pseudo-' * self.pseudo}bits over {self.tokens:,} tokens, {self.bytes:,} bytes"
        return show_surprisals(pieces, caption=summary, spaced=not any(" " in token for token, _ in pieces))

    def as_dict(self) -> dict[str, Any]:
        """What `lmlab score --json` prints; null where a number is not finite."""
        numbers: dict[str, float | int | bool] = {
            "bits_per_byte": self.bits_per_byte,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            "nats": self.nats,
            "tokens": self.tokens,
            "words": self.words,
            "bytes": self.bytes,
            "lossy": self.lossy,
            "unknown": self.unknown,
            "pseudo": self.pseudo,
        }
        found: dict[str, Any] = _finite(numbers)
        each = {name: self.in_direction(name) for name in self.directions}
        found |= {name: _finite({"nats": one.nats, "perplexity": one.perplexity}) for name, one in each.items()}
        return {**found, "approximation": self.approximation} if self.approximation else found


def _finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def add_scores(scores: Sequence[Score]) -> Score:
    """The score of several groups of texts together."""
    return replace(
        scores[0],
        nats=sum(each.nats for each in scores),
        tokens=sum(each.tokens for each in scores),
        words=sum(each.words for each in scores),
        bytes=sum(each.bytes for each in scores),
        lossy=any(each.lossy for each in scores),
        unknown=sum(each.unknown for each in scores),
        directions={name: sum(each.directions[name] for each in scores) for name in scores[0].directions},
        token_ids=[ids for each in scores for ids in each.token_ids],
        token_nats=[nats for each in scores for nats in each.token_nats],
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def describe_unknown(unknown: int, *, what: str = "bits") -> list[str]:
    """The note about unknown tokens in scored texts; empty without any."""
    if not unknown:
        return []
    return [
        f"{unknown:,} unknown token{'s' * (unknown > 1)}: the {what} are those of the unknown token, "
        "not of the original word"
    ]


class Rule(Protocol):
    """A method of scoring: the surprisal in nats of each token of each document."""

    @property
    def pseudo(self) -> bool: ...

    @property
    def model(self) -> object: ...

    def nats(self, documents: Documents, *, batch: int, progress: ReportProgress | None) -> list[Nats]: ...


@dataclass(frozen=True)
class ChainRule:
    """Each token given those before it (chain_rule.py); for a model that reads backwards, given those after it."""

    model: PredictsNext
    frame: Frame
    pseudo = False

    def nats(self, documents: Documents, *, batch: int = 16, progress: ReportProgress | None = None) -> list[Nats]:
        """The surprisals; without a boundary before texts, only their first token is predicted from it."""
        step = -1 if "tokens" in self.frame.backwards else 1
        read = [document[::step] for document in documents]
        score = score_tokens if puts_boundary(self.frame) else score_without_boundary
        found = score(self.model, read, boundary=opening_token(self.frame), batch=batch, progress=progress)
        return [nats[::step] for nats in found]


@dataclass(frozen=True)
class BothDirectionsScorer:
    """Each token given those before it and given those after it: the mean of the chain rule in both directions."""

    model: PredictsBothWays
    frame: Frame
    pseudo = False

    def nats(self, documents: Documents, *, batch: int, progress: ReportProgress | None) -> list[Nats]:
        forward, backward = self.each(documents, batch=batch, progress=progress)
        return [(one + other) / 2 for one, other in zip(forward, backward, strict=True)]

    def each(
        self, documents: Documents, *, batch: int, progress: ReportProgress | None
    ) -> tuple[list[Nats], list[Nats]]:
        """The nats of each direction, those of the backward one in the order of the text too."""
        before, after = self.frame.row(a=[])["tokens"]
        first, second = self.model.directions()
        forward = score_tokens(first, documents, boundary=int(before), batch=batch, progress=progress)
        turned = [document[::-1] for document in documents]
        backward = score_tokens(second, turned, boundary=int(after), batch=batch, progress=progress)
        return forward, [nats[::-1] for nats in backward]


@dataclass(frozen=True)
class PseudoLikelihood:
    """Each token given all others: pseudo_likelihood.py."""

    model: FillsMasks
    frame: Frame
    mask: int
    pseudo = True

    def nats(self, documents: Documents, *, batch: int, progress: ReportProgress | None) -> list[Nats]:
        return pseudo_score_tokens(
            self.model, documents, frame=self.frame, mask=self.mask, batch=batch, progress=progress
        )

    def nats_at(
        self, documents: Documents, chosen: Sequence[Chosen], *, batch: int, progress: ReportProgress | None
    ) -> list[Nats]:
        """The same for chosen tokens only, 0 for the others: each token needs a pass over its text."""
        return pseudo_score_tokens(
            self.model, documents, frame=self.frame, mask=self.mask, only=chosen, batch=batch, progress=progress
        )


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A model that gives texts a probability, or a pseudo-probability, with its tokenizer."""

    rule: Rule
    tokenizer: Tokenizer

    def score(self, texts: Sequence[str], *, batch: int = 16, progress: ReportProgress | None = None) -> Score:
        """The score of several independent texts."""
        return self.score_groups([texts], batch=batch, progress=progress)[0]

    def score_groups(
        self, groups: Sequence[Sequence[str]], *, batch: int = 16, progress: ReportProgress | None = None
    ) -> list[Score]:
        """The scores of several groups of texts, computed together."""
        documents = self._encode([text for group in groups for text in group])
        both: dict[str, list[Nats]] = {}
        if isinstance(self.rule, BothDirectionsScorer):
            both = dict(zip(DIRECTIONS, self.rule.each(documents, batch=batch, progress=progress), strict=True))
            nats = [sum(pair) / len(pair) for pair in zip(*both.values(), strict=True)]
        else:
            nats = self.rule.nats(documents, batch=batch, progress=progress)
        scores, start = [], 0
        for group in groups:
            part = slice(start, start + len(group))
            directions = {name: float(sum(each.sum() for each in found[part])) for name, found in both.items()}
            scores.append(replace(self._score(group, documents[part], nats[part]), directions=directions))
            start += len(group)
        return scores

    def nats_at(
        self,
        texts: Sequence[str],
        chosen: Sequence[Chosen],
        *,
        batch: int = 16,
        progress: ReportProgress | None = None,
    ) -> list[Nats]:
        """The surprisal in nats of the chosen tokens of each text, and 0 for the others.

        A masked model computes only these; other models need all tokens before them in any case.
        """
        documents = self._encode(texts)
        if isinstance(self.rule, PseudoLikelihood):
            return self.rule.nats_at(documents, chosen, batch=batch, progress=progress)
        every = self.rule.nats(documents, batch=batch, progress=progress)
        return [np.where(marks, nats, 0.0) for nats, marks in zip(every, chosen, strict=True)]

    def count_unknown(self, texts: Sequence[str]) -> int:
        """The number of unknown tokens in the texts."""
        return self._count_unknown(self._encode(texts))

    def _count_unknown(self, documents: Documents) -> int:
        return sum(int(np.count_nonzero(self.tokenizer.is_unknown(document))) for document in documents)

    def _score(self, texts: Sequence[str], documents: Documents, nats: list[Nats]) -> Score:
        unknown = self._count_unknown(documents)
        return Score(
            nats=float(sum(part.sum() for part in nats)),
            tokens=sum(map(len, documents)),
            words=sum(len(each.split()) for each in texts),
            bytes=sum(len(each.encode()) for each in texts),
            lossy=unknown > 0 or loses_text(self.tokenizer, texts),
            unknown=unknown,
            pseudo=self.rule.pseudo,
            approximation=getattr(self.rule.model, "approximation", ""),
            token_ids=documents,
            token_nats=nats,
            show=self.tokenizer.show,
        )

    def learn_mixture(
        self, texts: Sequence[str], *, batch: int = 16, progress: ReportProgress | None = None
    ) -> list[float]:
        """The weights of the parts of a mixture that best predict held-out texts."""
        rule = self.rule
        if not isinstance(rule, ChainRule) or not isinstance(rule.model, InterpolatedModel):
            raise ValueError("weights are learnt for a mixture: make one with model.mix([other, …])")
        documents, parts = self._encode(texts), [ChainRule(part, rule.frame) for part in rule.model.models]
        nats = [part.nats(documents, batch=batch, progress=progress) for part in parts]
        return learn_weights([np.concatenate(part) for part in nats])

    def _encode(self, texts: Sequence[str]) -> Documents:
        documents = [np.asarray(ids, dtype=np.int64) for ids in self.tokenizer.encode_batch(list(texts))]
        if not sum(map(len, documents)):
            raise ValueError("there is no text to score: it is empty, or has no token")
        return documents


def scorer_of(model: object, tokenizer: Tokenizer, frame: Frame) -> Scorer:
    """The scorer of a model: in both directions, by the next token or, if it predicts neither, by filling masks."""
    both = ability(model, PredictsBothWays)
    if both is not None:
        return Scorer(rule=BothDirectionsScorer(both, frame), tokenizer=tokenizer)
    fills = frame.has("cls") or ability(model, FillsMasks) is not None
    if fills and ability(model, PredictsNext) is None:
        return pseudo_scorer_of(model, tokenizer, frame)
    return Scorer(rule=ChainRule(require(model, PredictsNext), frame), tokenizer=tokenizer)


def pseudo_scorer_of(model: object, tokenizer: Tokenizer, frame: Frame) -> Scorer:
    """The scorer by pseudo-log-likelihood of a model that fills masks."""
    rule = PseudoLikelihood(require(model, FillsMasks), frame, tokenizer.special("mask"))
    return Scorer(rule=rule, tokenizer=tokenizer)
