"""How well a model predicts texts: by the chain rule, from either side, or by guessing each token from all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.decoding.mixture import Mixture, learn_weights
from lmlab.decoding.pseudo import Chosen, pseudo_score_tokens
from lmlab.decoding.scoring import Nats, Score, score_tokens, score_without_boundary
from lmlab.models.abilities import FillsBlanks, PredictsBothWays, PredictsNext, ability, require
from lmlab.progress import ReportProgress
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.boundary import opening_token, puts_boundary
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.inspecting import loses_text

Documents = list[NDArray[np.int64]]
WAYS = ("forward", "backward")


class Rule(Protocol):
    """A way to score: the surprisal in nats of each token of each document."""

    @property
    def pseudo(self) -> bool: ...

    @property
    def model(self) -> object: ...

    def nats(self, documents: Documents, *, batch: int, progress: ReportProgress | None) -> list[Nats]: ...


@dataclass(frozen=True)
class ChainRule:
    """Each token given those before it: scoring.py; by a model that reads backwards, given those after it."""

    model: PredictsNext
    frame: Frame
    pseudo = False

    def nats(self, documents: Documents, *, batch: int = 16, progress: ReportProgress | None = None) -> list[Nats]:
        """The surprisals; where nothing stands before a text, its first token alone is predicted from the boundary."""
        step = -1 if "tokens" in self.frame.backwards else 1
        read = [document[::step] for document in documents]
        score = score_tokens if puts_boundary(self.frame) else score_without_boundary
        found = score(self.model, read, boundary=opening_token(self.frame), batch=batch, progress=progress)
        return [nats[::step] for nats in found]


@dataclass(frozen=True)
class BothDirections:
    """Each token given those before it and given those after it: the chain rule from either side, and the mean."""

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
    """Each token given all others: pseudo.py."""

    model: FillsBlanks
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
        """Those of some tokens of each document alone, 0 for the others: each token is a pass over its text."""
        return pseudo_score_tokens(
            self.model, documents, frame=self.frame, mask=self.mask, only=chosen, batch=batch, progress=progress
        )


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A model that gives texts a probability, or something like it, with its tokenizer."""

    rule: Rule
    tokenizer: Tokenizer

    def score(self, texts: Sequence[str], *, batch: int = 16, progress: ReportProgress | None = None) -> Score:
        """How well the model predicts several texts that have nothing to do with each other."""
        return self.score_groups([texts], batch=batch, progress=progress)[0]

    def score_groups(
        self, groups: Sequence[Sequence[str]], *, batch: int = 16, progress: ReportProgress | None = None
    ) -> list[Score]:
        """The same for several groups of texts, apart; computed side by side."""
        documents = self._encode([text for group in groups for text in group])
        ways: dict[str, list[Nats]] = {}
        if isinstance(self.rule, BothDirections):
            ways = dict(zip(WAYS, self.rule.each(documents, batch=batch, progress=progress), strict=True))
            nats = [sum(pair) / len(pair) for pair in zip(*ways.values(), strict=True)]
        else:
            nats = self.rule.nats(documents, batch=batch, progress=progress)
        scores, start = [], 0
        for group in groups:
            part = slice(start, start + len(group))
            directions = {name: float(sum(each.sum() for each in found[part])) for name, found in ways.items()}
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
        """The surprisal in nats of the tokens that are chosen in each text, and 0 of the others.

        A masked model is asked for these alone; what reads from one side reads all that stands before them anyway.
        """
        documents = self._encode(texts)
        if isinstance(self.rule, PseudoLikelihood):
            return self.rule.nats_at(documents, chosen, batch=batch, progress=progress)
        every = self.rule.nats(documents, batch=batch, progress=progress)
        return [np.where(marks, nats, 0.0) for nats, marks in zip(every, chosen, strict=True)]

    def count_unknown(self, texts: Sequence[str]) -> int:
        """How many tokens of these texts stand for what the vocabulary lacks."""
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
        """The weights with which the parts of a mixture best predict held-out texts."""
        rule = self.rule
        if not isinstance(rule, ChainRule) or not isinstance(rule.model, Mixture):
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
    """The scorer of a model that predicts in both directions, the next token or, failing that, fills blanks."""
    both = ability(model, PredictsBothWays)
    if both is not None:
        return Scorer(rule=BothDirections(both, frame), tokenizer=tokenizer)
    fills = frame.has("cls") or ability(model, FillsBlanks) is not None
    if fills and ability(model, PredictsNext) is None:
        return pseudo_scorer_of(model, tokenizer, frame)
    return Scorer(rule=ChainRule(require(model, PredictsNext), frame), tokenizer=tokenizer)


def pseudo_scorer_of(model: object, tokenizer: Tokenizer, frame: Frame) -> Scorer:
    """The scorer by pseudo-log-likelihood of a model that fills blanks, whatever else it can do."""
    rule = PseudoLikelihood(require(model, FillsBlanks), frame, tokenizer.role("mask"))
    return Scorer(rule=rule, tokenizer=tokenizer)
