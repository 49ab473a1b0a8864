"""The pictures, or the texts, that are nearest to a text or to a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lmlab.analysis.pictures.matching import Matcher, Vectors, is_picture, picture_source, read_rows, unique_sources
from lmlab.analysis.view import Viewed
from lmlab.pages.figures import Figure
from lmlab.pages.figures.pictures import PictureGrid
from lmlab.pages.views import Table
from lmlab.tokenizers.processors.pictures import PixelArray

TEXT_ENDINGS = (".txt", ".txt.gz")


class Hit(NamedTuple):
    """A result of a search."""

    name: str  # the path of a picture, or a text
    cosine: float
    texts: tuple[str, ...]  # of a picture: its captions or class, where the data have them


@dataclass(frozen=True)
class SearchHits(Viewed):
    """The nearest results, best first."""

    query: str
    data: str
    hits: tuple[Hit, ...]
    searched: int
    problems: tuple[str, ...]
    pixels: tuple[PixelArray, ...] = ()
    """Of the results, if they are pictures."""
    shown: tuple[PixelArray, ...] = ()
    """Of the query, if it is a picture."""
    title: str = "Search"

    def lead(self) -> str:
        what = "pictures" if self.hits_are_pictures else "texts"
        return f"nearest to {self.query!r} of {self.searched:,} {what} of {self.data}"

    @property
    def hits_are_pictures(self) -> bool:
        """Whether the results are pictures, not texts."""
        return len(self.pixels) == len(self.hits)

    def table(self) -> Table:
        rows = [(number, hit.cosine, hit.name, "; ".join(hit.texts)) for number, hit in enumerate(self.hits, 1)]
        what = "picture" if self.hits_are_pictures else "text"
        return Table(("rank", "cosine", what, "known as"), rows, ("d", ".3f", "", ""))

    def figures(self) -> Sequence[Figure]:
        names = [f"{hit.cosine:.3f} {'; '.join(hit.texts) or Path(hit.name).name}" for hit in self.hits]
        pictures = [("the query", pixels) for pixels in self.shown] + list(zip(names, self.pixels, strict=False))
        return [PictureGrid(f"Nearest to {self.query}", pictures)] if pictures else []

    def notes(self) -> Sequence[str]:
        return [f"skipped: {problem}" for problem in self.problems]

    def as_json(self) -> dict[str, Any]:
        hits = [{"name": hit.name, "cosine": hit.cosine, "texts": list(hit.texts)} for hit in self.hits]
        return {"query": self.query, "searched": self.searched, "hits": hits, "skipped": list(self.problems)}


def search(matcher: Matcher, query: str, data: str, *, top: int = 5) -> SearchHits:
    """Rank the pictures of a folder, table, zip file or built-in data set, or the lines of a .txt file.

    The query is a text, or the path of a picture.
    """
    if not query.strip():
        raise ValueError("the query is empty: give a few words, or the path of a picture")
    own = picture_source(query) if is_picture(query) else None
    if own is None:
        matcher.warn_of_unknown([query])
    wanted = matcher.embed_texts([query]) if own is None else matcher.embed_sources([own]).vectors
    shown = () if own is None else (matcher.processor.process(own.read()),)
    if data.lower().endswith(TEXT_ENDINGS):
        return _search_texts(matcher, wanted, query, data, top, shown)
    rows = read_rows(data)
    sources, source_numbers = unique_sources(rows)
    known: list[dict[str, None]] = [{} for _ in sources]
    for row, number in zip(rows, source_numbers, strict=True):
        known[number] |= dict.fromkeys(row.texts.values() or ([] if row.label is None else [row.label]))
    read = matcher.embed_sources(sources)
    best, cosines = rank(wanted, read.vectors, top)
    chosen = [read.numbers[number] for number in best]
    hits = [
        Hit(sources[number].name, cosine, tuple(known[number])) for number, cosine in zip(chosen, cosines, strict=True)
    ]
    pixels = tuple(matcher.processor.process(sources[number].read()) for number in chosen)
    return SearchHits(query, data, tuple(hits), len(read.vectors), tuple(read.problems), pixels, shown)


def _search_texts(
    matcher: Matcher, wanted: Vectors, query: str, data: str, top: int, shown: tuple[PixelArray, ...]
) -> SearchHits:
    from lmlab.data.readers.files import read_text

    lines = list(dict.fromkeys(line.strip() for line in read_text(Path(data)).splitlines() if line.strip()))
    if not lines:
        raise ValueError(f"{data} has no line of text")
    best, cosines = rank(wanted, matcher.embed_texts(lines), top)
    hits = tuple(Hit(lines[number], cosine, ()) for number, cosine in zip(best, cosines, strict=True))
    return SearchHits(query, data, hits, len(lines), (), (), shown)


def rank(query: Vectors, candidates: Vectors, top: int) -> tuple[list[int], list[float]]:
    """The numbers of the candidates [N, E] that are nearest to a query [1, E], best first, with their cosines."""
    scores = candidates @ query[0]
    order = np.argsort(-scores, kind="stable")[:top]
    return order.tolist(), scores[order].tolist()
