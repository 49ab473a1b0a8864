"""Records the tree of a beam search (pages/search_tree.py), step by step.

Up to 2K candidates are considered in each step with K beams: enough that K remain even if K of them end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmlab.decoding.beam_search import Expansion, Hypothesis
from lmlab.pages.search_tree import Candidate, Fate, Result, SearchTree


class Recorder:
    """Records each step of a beam search: pass it as `watch`."""

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
