"""Senses: the vectors of one word in many sentences, which lie apart where it means different things.

The picture of every lecture on contextual vectors (Peters et al. 2018, section 5.3; Reif et al. 2019), with a number:
is the nearest occurrence in other sentences one of the same sense? Shapes: N occurrences, D width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from lmlab.analysis.layer_vectors import AT_ONCE, layer_widths, read_sentences
from lmlab.analysis.readers import Occurrence
from lmlab.analysis.view import Viewed
from lmlab.messages import ArgumentError
from lmlab.metrics.statistics import wilson
from lmlab.pages.figures import Dot, Figure, Lines, Scatter
from lmlab.pages.views import Table
from lmlab.progress import ReportProgress

Projection = Literal["pca", "tsne"]
PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
MOST_POINTS = 600


class PlottedOccurrence(NamedTuple):
    """An occurrence in the plane."""

    x: float
    y: float
    sense: str
    text: str


class LayerSenses(NamedTuple):
    """How often the nearest neighbour has the same sense, in all and as the mean over the senses."""

    layer: int
    accuracy: float | None
    low: float | None
    high: float | None
    by_sense: float | None


@dataclass(frozen=True)
class Senses(Viewed):
    """The occurrences of a word, layer by layer."""

    word: str
    layers: list[LayerSenses]
    layer: int
    """That which is drawn."""
    projection: str
    points: list[PlottedOccurrence]
    counts: dict[str, int]
    majority: float | None = None
    left_out: int = 0
    """Occurrences whose word has no piece in the tokenizer."""
    title: str = field(default="Senses of a word", init=False)

    def lead(self) -> str:
        chosen = self.layers[self.layer]
        if chosen.accuracy is None:
            return f"{sum(self.counts.values()):,} occurrences of “{self.word}”, layer {self.layer}."
        return (
            f"“{self.word}”: in layer {self.layer} the nearest occurrence has the same sense in "
            f"{chosen.accuracy:.1%} of cases ({chosen.by_sense:.1%} as the mean over the senses; "
            f"the most frequent sense: {self.majority:.1%})."
        )

    def notes(self) -> list[str]:
        notes = ["distances in the picture are those of the projection; the figures are of cosines in all dimensions"]
        if self.left_out:
            notes.append(f"{self.left_out:,} occurrences left out: the tokenizer has no piece for the word")
        return notes

    def table(self) -> Table:
        return Table(("layer", "accuracy", "low", "high", "by sense"), self.layers, ("d", ".1%", ".1%", ".1%", ".1%"))

    def figures(self) -> list[Figure]:
        dots = [Dot(point.x, point.y, point.sense or self.word, point.text) for point in self.points]
        drawn: list[Figure] = [Scatter(f"“{self.word}” in layer {self.layer} ({self.projection})", dots)]
        if self.layers[0].accuracy is not None and len(self.layers) > 1:
            lines = [("all", [each.accuracy or 0.0 for each in self.layers])]
            lines.append(("mean over senses", [each.by_sense or 0.0 for each in self.layers]))
            drawn.append(Lines("Same sense by layer", [str(each.layer) for each in self.layers], lines, unit=".0%"))
        return drawn


def read_senses_of(
    model: Any,
    word: str,
    occurrences: Sequence[Occurrence],
    against: Sequence[Occurrence] = (),
    *,
    layer: int = -1,
    projection: str = "pca",
    seed: int = 0,
    progress: ReportProgress | None = None,
) -> Senses:
    """Plot the occurrences of a word by a LanguageModel's vectors, and classify them by the nearest of `against`.

    Without senses nothing is classified. Without others each is classified by the rest. Only occurrences in other
    sentences are used, and words that the tokenizer does not have are left out.
    """
    how = next((each for each in PROJECTIONS if each == projection), None)
    if how is None:
        raise ValueError(f"projection {projection!r} is not known; allowed: {', '.join(PROJECTIONS)}")
    given = len(occurrences) + len(against)
    tokenizer = model.source_tokenizer or model.text_tokenizer
    readable = {each: bool(tokenizer.encode(each)) for each in {o.words[o.position] for o in (*occurrences, *against)}}
    occurrences, against = ([o for o in part if readable[o.words[o.position]]] for part in (occurrences, against))
    if len(occurrences) < 3:
        raise ValueError(f"{len(occurrences)} occurrences of {word!r}: at least 3 are needed for a picture")
    total = len(occurrences) + len(against)
    own = occurrence_vectors(model, occurrences, progress=progress, total=total)
    other = occurrence_vectors(model, against, progress=progress, total=total, done=len(own[0])) if against else own
    last = len(own) - 1
    if not -last - 1 <= layer <= last:
        raise ArgumentError("layer", layer, f"this model has the layers 0 (embeddings) to {last}")
    layer %= len(own)
    senses = [each.sense for each in occurrences]
    known = [each.sense for each in against] if against else senses
    apart = _in_other_sentences(occurrences, against or occurrences)
    judged = [_judge(number, a, senses, b, known, apart) for number, (a, b) in enumerate(zip(own, other, strict=True))]
    majority = Counter(senses).most_common(1)[0][1] / len(senses) if all(senses) else None
    some = range(len(occurrences))[:MOST_POINTS]
    at = project(own[layer][list(some)], how, seed=seed)
    points = [PlottedOccurrence(float(at[i, 0]), float(at[i, 1]), senses[i], _in_context(occurrences[i])) for i in some]
    return Senses(word, judged, layer, how, points, dict(Counter(senses)), majority, given - total)


def _in_context(occurrence: Occurrence) -> str:
    words, position = occurrence.words, occurrence.position
    return " ".join(
        [*words[max(0, position - 6) : position], f"[{words[position]}]", *words[position + 1 : position + 7]]
    )


def occurrence_vectors(
    model: Any,
    occurrences: Sequence[Occurrence],
    *,
    progress: ReportProgress | None = None,
    total: int | None = None,
    done: int = 0,
) -> list[Tensor]:
    """For every layer the vectors [N, D] of the words, means over their pieces.

    Of a sentence that the model cannot hold, the pieces around the word are read.
    """
    widths = layer_widths(model)
    found: list[Tensor] = []
    around = [each.position for each in occurrences]
    for position, sentence in zip(
        around, read_sentences(model, [each.words for each in occurrences], around=around), strict=True
    ):
        vector = sentence.of(position)
        assert vector is not None  # `read_words` gives every word a piece
        found.append(vector)
        if progress is not None and (len(found) % AT_ONCE == 0 or len(found) == len(occurrences)):
            progress(done + len(found), total or len(occurrences))
    return list(torch.split(torch.stack(found), widths, dim=1))


def nearest_senses(
    vectors: Tensor, known: Tensor, senses: Sequence[str], *, apart: Tensor | None = None
) -> list[str | None]:
    """The sense of the nearest known vector by cosine, of those that are `apart` [N, M]; None where none is."""
    a, b = (torch.nn.functional.normalize(each, dim=1) for each in (vectors, known))
    similar = a @ b.T
    if apart is not None:
        similar = similar.masked_fill(~apart, -math.inf)
    best = similar.max(1)
    return [
        senses[i] if value > -math.inf else None
        for i, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _in_other_sentences(occurrences: Sequence[Occurrence], others: Sequence[Occurrence]) -> Tensor:
    """[N, M]: whether two occurrences are in different sentences."""
    numbers: dict[tuple[str, ...], int] = {}
    first, second = (
        torch.tensor([numbers.setdefault(tuple(each.words), len(numbers)) for each in part])
        for part in (occurrences, others)
    )
    return first[:, None] != second


def _judge(
    layer: int, vectors: Tensor, senses: Sequence[str], known: Tensor, known_senses: Sequence[str], apart: Tensor
) -> LayerSenses:
    guessed = nearest_senses(vectors, known, known_senses, apart=apart)
    judged = [(a == b, b) for a, b in zip(guessed, senses, strict=True) if a is not None]
    if not judged or not all(senses) or not all(known_senses):
        return LayerSenses(layer, None, None, None, None)
    right = np.array([each for each, _ in judged])
    each = [
        float(np.mean([right for right, own in judged if own == sense]))
        for sense in dict.fromkeys(s for _, s in judged)
    ]
    return LayerSenses(layer, *wilson(int(right.sum()), len(right)), float(np.mean(each)))


def project(vectors: Tensor, how: Projection, *, seed: int = 0) -> Tensor:
    """[N, D] -> [N, 2]: the two main components, or t-SNE (van der Maaten & Hinton 2008), which needs scikit-learn."""
    if how == "pca":
        centred = (vectors - vectors.mean(0)).double()
        u, s, _ = torch.linalg.svd(centred, full_matrices=False)
        positions: Tensor = u[:, :2] * s[:2]
        signs = positions.gather(
            0, positions.abs().argmax(0, keepdim=True)
        ).sign()  # a component has no sign of its own
        return (positions * torch.where(signs == 0, 1.0, signs)).float()
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise ArgumentError(
            "projection", how, "needs scikit-learn: pip install 'lmlab[analysis]'; or use pca"
        ) from None
    perplexity = min(30.0, max(2.0, (len(vectors) - 1) / 3))
    drawn = TSNE(2, perplexity=perplexity, metric="cosine", init="random", random_state=seed)
    found: Tensor = torch.from_numpy(drawn.fit_transform(vectors.numpy()))
    return found
