"""The tree of a beam search as data: every candidate that was considered, and what became of it.

As JSON it is `{"format": "lmlab-search", "version": 1, "searches": [...]}`. A search has

- `prompt`, `source` (of a translation, else null), `beams`, `length_penalty`, `steps`;
- `candidates`, step by step and best first: `id`, `parent` (an id; null is the prompt), `step` (from 1), `rank` in its
  step (from 1), `token`, `piece` (the token as people read it), `ends` (it is the boundary), `log_probability` of the
  token after its parent, `total` of the whole continuation, `fate`: `kept` (a beam of the next step), `finished` (a
  result, it ended) or `pruned`;
- `results`, best first: `text`, `tokens`, `log_probability`, `score`, `finished`, `path` (ids from the first token on).

Up to 2K candidates are considered in each step with K beams: enough that K remain even if K of them end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from lmlab.decoding.beam_search import Expansion, Hypothesis

Fate = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True)
class Candidate:
    """One node of the tree: a token that may continue a beam."""

    id: int
    parent: int | None
    step: int
    rank: int
    token: int
    piece: str
    ends: bool
    log_probability: float
    total: float
    fate: Fate


@dataclass(frozen=True)
class Result:
    """A hypothesis with its way through the tree."""

    text: str
    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
    path: list[int]


@dataclass(frozen=True)
class SearchTree:
    """One search from its prompt to its results."""

    prompt: str
    source: str | None
    beams: int
    length_penalty: float
    candidates: list[Candidate]
    results: list[Result]

    @property
    def steps(self) -> int:
        """How many tokens deep the tree is."""
        return max((candidate.step for candidate in self.candidates), default=0)

    @property
    def best_path(self) -> list[int]:
        """The candidates of the best result, found by going back from its last token."""
        return self.results[0].path if self.results else []

    @cached_property
    def children(self) -> dict[int | None, list[Candidate]]:
        """The candidates that continue each, best first."""
        found: dict[int | None, list[Candidate]] = {}
        for candidate in self.candidates:
            found.setdefault(candidate.parent, []).append(candidate)
        return found

    def _repr_html_(self) -> str:
        """In a notebook: the page to step through the search."""
        from lmlab.pages.beam_search import make_page
        from lmlab.pages.views import show_page

        return show_page(make_page([self]), height=640)

    def as_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "source": self.source,
            "beams": self.beams,
            "length_penalty": self.length_penalty,
            "steps": self.steps,
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "results": [asdict(result) for result in self.results],
        }


def as_document(trees: Sequence[SearchTree]) -> dict[str, Any]:
    """Searches as one JSON document."""
    return {"format": "lmlab-search", "version": 1, "searches": [tree.as_dict() for tree in trees]}


class Recorder:
    """Watches a beam search and keeps what it sees: pass it as `watch`."""

    def __init__(self) -> None:
        self._levels: dict[int, list[_Level]] = {}

    def __call__(self, expansion: Expansion) -> None:
        parts = (part.tolist() for part in expansion)
        for text, *level in zip(*parts, strict=True):
            self._levels.setdefault(text, []).append(_Level(*level))

    def tree(
        self,
        results: Sequence[Hypothesis],
        *,
        text: int = 0,
        show: Callable[[int], str],
        decode: Callable[[list[int]], str],
        boundary: int | None,
        beams: int,
        length_penalty: float = 0.0,
        prompt: str = "",
        source: str | None = None,
    ) -> SearchTree:
        """The tree of one text of the batch, with the results that the search gave for it."""
        candidates: list[Candidate] = []
        position: dict[tuple[int | None, int], int] = {}  # of the candidate that continues another by a token
        alive: list[int | None] = [None]  # the candidates that are the beams
        for step, level in enumerate(self._levels.get(text, []), start=1):
            ids: dict[int, int] = {}
            for column, (beam, token, total) in enumerate(zip(level.parent, level.token, level.total, strict=True)):
                if total == -float("inf"):
                    continue
                parent = alive[beam]
                before = 0.0 if parent is None else candidates[parent].total
                fate: Fate = "pruned"
                if level.finished[column]:
                    fate = "finished"
                elif column in level.kept:
                    fate = "kept"
                ids[column] = position[parent, token] = len(candidates)
                candidates.append(
                    Candidate(
                        len(candidates),
                        parent,
                        step,
                        column + 1,
                        token,
                        show(token),
                        token == boundary,
                        total - before,
                        total,
                        fate,
                    )
                )
            alive = [ids.get(column) for column in level.kept]
        found = []
        for hypothesis in results:
            path: list[int] = []
            for token in hypothesis.tokens:
                path.append(position[path[-1] if path else None, token])
            found.append(Result(decode(hypothesis.written), *hypothesis, path=path))
        return SearchTree(prompt, source, beams, length_penalty, candidates, found)


@dataclass(frozen=True)
class _Level:
    """One step of one text: lists over its candidates, and which of them continue."""

    parent: list[int]
    token: list[int]
    total: list[float]
    finished: list[bool]
    kept: list[int]
