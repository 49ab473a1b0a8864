"""The tree of a beam search: every candidate that was considered and what became of it, as JSON, SVG and a page.

As JSON it is `{"format": "lmlab-search", "version": 1, "searches": [...]}`. A search has

- `prompt`, `source` (of a translation, else null), `beams`, `length_penalty`, `steps`;
- `candidates`, step by step and best first: `id`, `parent` (an id; null is the prompt), `step` (from 1), `rank` in its
  step (from 1), `token`, `piece` (the token as people read it), `ends` (it is the boundary), `log_probability` of the
  token after its parent, `total` of the whole continuation, `fate`: `kept` (a beam of the next step), `finished` (a
  result, it ended) or `pruned`;
- `results`, best first: `text`, `tokens`, `log_probability`, `score`, `finished`, `path` (ids from the first token on).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from lmlab.pages.figures.svg import drawing, element, tooltip

ROW, GAP, HIGH = 40, 46, 28
"""Pixels from one candidate to the one below it, between two steps, and of a candidate."""
LEFT, TOP, FOOT = 20, 44, 18
LETTER, NUMBER = 8.0, 54
"""Pixels of a letter, and of the number next to the token."""
LONGEST = 16
"""Letters of a token that are shown; the whole of it is in its tooltip."""
MOST = 24
"""Searches on one page: each is a drawing of its own."""


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


class Box(NamedTuple):
    """The position of a candidate: its left edge, its middle height and its width, in pixels."""

    x: float
    y: float
    width: float


class Layout(NamedTuple):
    """The positions of all candidates, by their ids, and of the start of the text."""

    start: Box
    boxes: dict[int, Box]
    columns: list[float]
    width: float
    height: float


def make_page(trees: Sequence[SearchTree], *, model: str = "") -> Markup:
    """The page of the first `MOST` searches."""
    from lmlab.pages.page import render

    return render("search_tree.html", trees=trees[:MOST], count=len(trees), model=model, draw_tree=draw_tree)


def lay_out(tree: SearchTree) -> Layout:
    """Steps from left to right; in each, the candidates of one parent together, so that no lines cross."""
    levels: list[list[Candidate]] = [[] for _ in range(tree.steps)]
    for candidate in tree.candidates:
        levels[candidate.step - 1].append(candidate)
    letters = [len(_start(tree)), *(max(len(_label(node)) for node in level) for level in levels)]
    widths = [20 + count * LETTER + NUMBER for count in letters]
    columns = [LEFT + sum(widths[:step]) + GAP * step for step in range(len(widths))]
    most = max(map(len, levels), default=1)
    boxes: dict[int, Box] = {}
    for level in levels:
        level.sort(key=lambda node: (boxes[node.parent].y if node.parent is not None else 0.0, node.rank))
        first = TOP + ROW * (most - len(level)) / 2 + ROW / 2
        for number, node in enumerate(level):
            boxes[node.id] = Box(columns[node.step], first + ROW * number, widths[node.step])
    height = TOP + ROW * most + FOOT
    start = Box(LEFT, (height + TOP - FOOT) / 2, widths[0])
    return Layout(start, boxes, columns, columns[-1] + widths[-1] + LEFT, height)


def draw_tree(tree: SearchTree) -> Markup:
    """The tree as SVG, styled by the page."""
    layout = lay_out(tree)
    best, results = set(tree.best_path), {node for result in tree.results for node in result.path}
    parts = []
    for step, x in enumerate(layout.columns[1:], start=1):
        head = element("text", f"step {step}", class_="tick", x=round(x), y=22)
        parts.append(element("g", head, class_="head later-than", data_step=step))
    edges, nodes = [], []
    for node in tree.candidates:
        box, above = layout.boxes[node.id], layout.start if node.parent is None else layout.boxes[node.parent]
        classes = " ".join([*["best"] * (node.id in best), node.fate, *["result"] * (node.id in results)])
        line = _curve((above.x + above.width, above.y), (box.x, box.y))
        edge = element("path", class_=f"edge {classes}", data_step=node.step, data_id=node.id, d=line)
        edges.append((node.id in best, edge))
        nodes.append(_draw_node(node, box, classes))
    parts += [edge for _, edge in sorted(edges, key=lambda each: each[0])]  # the best path is on top
    middle = layout.start.x + layout.start.width / 2
    text = element("text", _start(tree), x=middle, y=layout.start.y + 4.5, text_anchor="middle")
    parts += [element("g", _rectangle(layout.start), text, class_="node root"), *nodes]
    title = f"The search tree of {tree.steps} steps"
    return drawing(parts, width=layout.width, height=layout.height, title=title, class_="tree done")


def _label(node: Candidate) -> str:
    piece = "■ end" if node.ends else node.piece
    return piece if len(piece) <= LONGEST else piece[: LONGEST - 1] + "…"


def _start(tree: SearchTree) -> str:
    text = tree.prompt.strip() or "start"
    return text if len(text) <= LONGEST else "…" + text[1 - LONGEST :]


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    (a, b), (c, d) = start, end
    bend = (c - a) * 0.5
    return f"M{a:.1f},{b:.1f}C{a + bend:.1f},{b:.1f} {c - bend:.1f},{d:.1f} {c:.1f},{d:.1f}"


def _rectangle(box: Box) -> Markup:
    return element("rect", x=float(box.x), y=box.y - HIGH / 2, width=box.width, height=HIGH, rx=8)


def _draw_node(node: Candidate, box: Box, classes: str) -> Markup:
    dot = element("tspan", "·", class_="space")
    shown = [_label(node)] if node.ends else [dot if letter == " " else letter for letter in _label(node)]
    says = (
        f"{node.piece}: log P = {node.log_probability:.3f}, in all {node.total:.3f}, number {node.rank} of step "
        f"{node.step}, {node.fate}"
    )
    right = box.x + box.width - 8
    return element(
        "g",
        tooltip(says),
        _rectangle(box),
        element("text", *shown, class_="piece", x=box.x + 10, y=box.y + 4.5),
        element(
            "text", f"{node.total:.2f}".replace("-", "−"), class_="total", x=right, y=box.y + 4.5, text_anchor="end"
        ),
        class_=f"node {classes}",
        tabindex=0,
        data_id=node.id,
        data_parent="" if node.parent is None else node.parent,
        data_step=node.step,
        data_rank=node.rank,
        data_log=f"{node.log_probability:.4f}",
        data_total=f"{node.total:.4f}",
        data_fate=node.fate,
        data_piece=node.piece,
        data_ends=int(node.ends),
    )
