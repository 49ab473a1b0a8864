"""How well a run predicts held-out music, pixels or episodes, or each of several kinds of data in one model.

Each item is scored by the chain rule after its boundary, in the unit of its kind: bits per byte of text, bits per
dimension of pictures, nats per event or note of music, nats per action of episodes. Boundaries do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.analysis.view import Viewed
from lmlab.data.corpora.corpus import Dataset
from lmlab.data.corpora.mixture import MixtureSplit
from lmlab.data.corpora.sequences import SequenceSplit
from lmlab.decoding.chain_rule import score_tokens
from lmlab.decoding.kind_view import KindView
from lmlab.metrics.statistics import RatioOfSums, estimate
from lmlab.models.abilities import LearnsNext, PredictsNext, require
from lmlab.pages.views import Table
from lmlab.progress import ReportProgress
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors.joined import JoinedTokenizer, text_totals
from lmlab.tokenizers.processors.sequences import SequenceTokenizer


class KindScore(NamedTuple):
    """One score of one kind of data, with its 95% interval over items."""

    kind: str
    score: str  # its name and unit
    value: float
    low: float | None
    high: float | None
    items: int
    tokens: int


@dataclass(frozen=True)
class KindScores(Viewed):
    """The scores of a run on held-out items, by kind."""

    run: str
    split: str
    rows: list[KindScore]

    @property
    def title(self) -> str:  # type: ignore[override]
        return "Scores on held-out data"

    def lead(self) -> str:
        firsts = {row.kind: row for row in reversed(self.rows)}
        found = [f"{name} {row.value:.4f} {row.score}" for name, row in reversed(firsts.items())]
        return f"{self.run} on its {self.split} data: {', '.join(found)}"

    def table(self) -> Table:
        columns = ("kind", "score", "value", "from (95%)", "to", "items", "tokens")
        return Table(columns, [tuple(row) for row in self.rows], formats=("", "", ".4f", ".4f", ".4f", ",d", ",d"))

    def notes(self) -> Sequence[str]:
        return ["Lower is better. Each item is predicted token by token from its beginning; boundaries do not count."]


class _Items(NamedTuple):
    model: PredictsNext
    tokenizer: Tokenizer | SequenceTokenizer
    items: list[NDArray[np.int64]]
    texts: list[str]


def measure_kinds(
    model: PredictsNext,
    tokenizer: SequenceTokenizer,
    split: Dataset,
    *,
    run: str,
    name: str,
    limit: int | None = None,
    progress: ReportProgress | None = None,
) -> KindScores:
    """Return the scores of a model on the items of a split, all or the first `limit` of each kind.

    `model` reads the ids of `tokenizer`, of one kind or of several (`JoinedTokenizer`).
    """
    rows = []
    for kind, own in _find_kinds(model, tokenizer, split, limit).items():
        nats = score_tokens(own.model, own.items, boundary=own.tokenizer.boundary, progress=progress)
        for score, totals in _sum(own, nats).items():
            found = estimate(RatioOfSums("lower"), [each[0] for each in totals], [each[1] for each in totals])
            counts = len(own.items), sum(map(len, own.items))
            rows.append(KindScore(kind, score.replace("_", " "), *found[:3], *counts))
    return KindScores(run, name, rows)


def _find_kinds(
    model: PredictsNext, tokenizer: SequenceTokenizer, split: Dataset, limit: int | None
) -> Mapping[str, _Items]:
    """The items of each kind with the model that reads them, and the texts of those that are text."""

    def take(items: Iterator[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        return list(islice((item for item in items if len(item)), limit))

    if isinstance(tokenizer, JoinedTokenizer) and isinstance(split, MixtureSplit):
        found = {}
        for name, own in split.kinds.items():
            part, items, texts = tokenizer.parts[name], own.items(), list[str]()
            if isinstance(part, Tokenizer):  # a text may have no tokens
                kept = list(islice((pair for pair in zip(items, own.texts(), strict=True) if len(pair[0])), limit))
                items, texts = iter([ids for ids, _ in kept]), [text for _, text in kept]
            found[name] = _Items(KindView(require(model, LearnsNext), tokenizer.ids[name]), part, take(items), texts)
        return found
    if not isinstance(split, SequenceSplit):
        raise ValueError("these data are not sequences of tokens, as music, pixels and episodes are")
    return {tokenizer.reads: _Items(model, tokenizer, take(split.items()), [])}


def _sum(own: _Items, nats: Sequence[NDArray[np.float64]]) -> dict[str, list[tuple[float, float]]]:
    """The sums of each score over each item, and what they are divided by."""
    if isinstance(own.tokenizer, Tokenizer):
        each = [text_totals(one, len(text.encode())) for one, text in zip(nats, own.texts, strict=True)]
    else:
        each = [own.tokenizer.totals(ids, one) for ids, one in zip(own.items, nats, strict=True)]
    return {name: [totals[name] for totals in each] for name in each[0]}
