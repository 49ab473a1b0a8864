"""A beam search as a page to step through: one file that needs nothing else, the tree drawn as SVG by our own hand."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol

from lmlab.pages.page import fill_page

ROW, GAP, HIGH = 40, 46, 28
"""Pixels from one candidate to the one below it, between two steps, and of a candidate."""
LEFT, TOP, FOOT = 20, 44, 18
LETTER, NUMBER = 8.0, 54
"""Pixels of a letter, and of the number beside the token."""
LONGEST = 16
"""Letters of a token that are shown; the whole of it is in its tooltip."""
MOST = 24
"""Searches on one page: each is a drawing of its own."""


class Candidate(Protocol):
    """A token that may continue a beam, as it is drawn (see `decoding.tracing`)."""

    @property
    def id(self) -> int: ...
    @property
    def parent(self) -> int | None: ...
    @property
    def step(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def piece(self) -> str: ...
    @property
    def ends(self) -> bool: ...
    @property
    def log_probability(self) -> float: ...
    @property
    def total(self) -> float: ...
    @property
    def fate(self) -> str: ...


class Result(Protocol):
    """A text that was found, with its way through the tree."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def log_probability(self) -> float: ...
    @property
    def score(self) -> float: ...
    @property
    def finished(self) -> bool: ...
    @property
    def path(self) -> Sequence[int]: ...


class SearchTree(Protocol):
    """One search, as it is drawn."""

    @property
    def prompt(self) -> str: ...
    @property
    def source(self) -> str | None: ...
    @property
    def beams(self) -> int: ...
    @property
    def length_penalty(self) -> float: ...
    @property
    def steps(self) -> int: ...
    @property
    def best_path(self) -> Sequence[int]: ...
    @property
    def candidates(self) -> Sequence[Candidate]: ...
    @property
    def results(self) -> Sequence[Result]: ...


def make_page(trees: Sequence[SearchTree], *, model: str = "") -> str:
    """The whole page; of many searches the first `MOST`."""
    shown = trees[:MOST]
    left_out = f" The first {MOST} of {len(trees)} searches are drawn." if len(trees) > MOST else ""
    return fill_page(
        "beam_search.html",
        title="Beam search" + (f" · {escape(model)}" if model else ""),
        kind=f"lmlab · beam search{' · ' + escape(model) if model else ''}",
        left_out=left_out,
        choice=_choice(shown),
        searches="".join(_search(tree, number, hidden=number > 0) for number, tree in enumerate(shown)),
    )


def _choice(trees: Sequence[SearchTree]) -> str:
    if len(trees) < 2:
        return ""
    options = "".join(f'<option value="{n}">{n + 1}. {escape(_title(tree))}</option>' for n, tree in enumerate(trees))
    return f'<p class="choice"><label>Search <select id="choice">{options}</select></label></p>'


def _title(tree: SearchTree) -> str:
    text = tree.prompt if tree.source is None else tree.source
    return text if len(text) <= 90 else text[:89] + "…"


def _search(tree: SearchTree, number: int, *, hidden: bool) -> str:
    given = "source" if tree.source is not None else "prompt"
    text = tree.source if tree.source is not None else tree.prompt
    best = tree.results[0].text.strip() if tree.results else "nothing was found"
    width = f"{tree.beams} beam{'s' * (tree.beams > 1)}"
    penalty = f", length penalty {tree.length_penalty:g}" if tree.length_penalty else ""
    return (
        f'<div class="search" data-beams="{tree.beams}" data-steps="{tree.steps}" data-number="{number}"'
        f"{' hidden' if hidden else ''}>"
        f"<section><dl><dt>{given}</dt><dd>{escape(text) or '<i>nothing</i>'}</dd>"
        f'<dt>best</dt><dd class="best">{escape(best)}</dd><dt>search</dt><dd>{width}{penalty}, {tree.steps} steps, '
        f"{len(tree.candidates)} candidates considered</dd></dl></section>"
        f'<section class="stage">{_CONTROLS}<div class="scroll" tabindex="-1">{draw_tree(tree)}</div>'
        f'<p class="detail" aria-live="polite">Point at a candidate to see its text and its numbers.</p></section>'
        f"<section><h2>Results</h2>{_results(tree)}</section></div>"
    )


_CONTROLS = (
    '<div class="controls" role="group" aria-label="Step through the search">'
    '<button data-go="first" title="To the beginning (Home)" aria-label="To the beginning">❙◀</button>'
    '<button data-go="back" title="One step back (←)" aria-label="One step back">◀</button>'
    '<button data-go="play" title="Play and pause (space)" aria-label="Play and pause" class="play">▶ play</button>'
    '<button data-go="on" title="One step on (→)" aria-label="One step on">▶</button>'
    '<button data-go="last" title="To the end (End)" aria-label="To the end">▶❙</button>'
    '<input type="range" min="0" step="1" aria-label="Place in the search">'
    '<p class="caption" aria-live="polite"></p></div>'
)


def draw_tree(tree: SearchTree) -> str:
    """The tree as SVG: steps from left to right, and in each the candidates under those of better parents."""
    widths = [_width(label) for label in _columns(tree)]
    x = [LEFT + sum(widths[:step]) + GAP * step for step in range(len(widths))]
    y = _heights(tree)
    high = TOP + ROW * max((len(level) for level in _levels(tree)), default=1) + FOOT
    wide = x[-1] + widths[-1] + LEFT
    best = set(tree.best_path)
    alive = {node for result in tree.results for node in result.path}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tree done" width="{wide:.0f}" height="{high}" '
        f'viewBox="0 0 {wide:.0f} {high}" role="img" aria-label="The search tree of {tree.steps} steps">'
    ]
    for step in range(1, len(x)):
        parts.append(
            f'<g class="head later-than" data-step="{step}"><text class="tick" x="{x[step]:.0f}" y="22">step {step}'
            f"</text></g>"
        )
    middle = (high + TOP - FOOT) / 2
    edges, nodes = [], []
    for node in tree.candidates:
        start = x[node.step - 1] + widths[node.step - 1], middle if node.parent is None else y[node.parent]
        classes = _classes(node, best, alive)
        edges.append(
            f'<path class="edge {classes}" data-step="{node.step}" data-id="{node.id}" '
            f'd="{_curve(start, (x[node.step], y[node.id]))}"/>'
        )
        nodes.append(_node(node, x[node.step], y[node.id], widths[node.step], classes, tree))
    on_top = [edge for edge in edges if "edge best" in edge]
    parts += [edge for edge in edges if "edge best" not in edge] + on_top + [_root(tree, widths[0], middle)] + nodes
    return "".join(parts) + "</svg>"


def _levels(tree: SearchTree) -> list[list[Candidate]]:
    levels: list[list[Candidate]] = [[] for _ in range(tree.steps)]
    for candidate in tree.candidates:
        levels[candidate.step - 1].append(candidate)
    return levels


def _heights(tree: SearchTree) -> dict[int, float]:
    """Where each candidate stands: those of one parent together, parents in their order, so that no lines cross."""
    levels = _levels(tree)
    most = max(map(len, levels), default=1)
    y: dict[int, float] = {}
    for level in levels:
        level.sort(key=lambda node: (y[node.parent] if node.parent is not None else 0.0, node.rank))
        first = TOP + ROW * (most - len(level)) / 2 + ROW / 2
        y.update({node.id: first + ROW * place for place, node in enumerate(level)})
    return y


def _columns(tree: SearchTree) -> list[int]:
    """The letters of the longest token in each step, the prompt first."""
    levels = _levels(tree)
    return [len(_start(tree)), *(max(len(_label(node)) for node in level) for level in levels)]


def _width(letters: int) -> float:
    return 20 + letters * LETTER + NUMBER


def _label(node: Candidate) -> str:
    piece = "■ end" if node.ends else node.piece
    return piece if len(piece) <= LONGEST else piece[: LONGEST - 1] + "…"


def _start(tree: SearchTree) -> str:
    text = tree.prompt.strip() or "start"
    return text if len(text) <= LONGEST else "…" + text[1 - LONGEST :]


def _classes(node: Candidate, best: set[int], alive: set[int]) -> str:
    return f"{'best ' if node.id in best else ''}{node.fate}{' result' if node.id in alive else ''}"


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    (a, b), (c, d) = start, end
    bend = (c - a) * 0.5
    return f"M{a:.1f},{b:.1f}C{a + bend:.1f},{b:.1f} {c - bend:.1f},{d:.1f} {c:.1f},{d:.1f}"


def _root(tree: SearchTree, width: float, y: float) -> str:
    return (
        f'<g class="node root"><rect x="{LEFT}" y="{y - HIGH / 2:.1f}" width="{width:.1f}" height="{HIGH}" rx="8"/>'
        f'<text x="{LEFT + width / 2:.1f}" y="{y + 4.5:.1f}" text-anchor="middle">{escape(_start(tree))}</text></g>'
    )


def _node(node: Candidate, x: float, y: float, width: float, classes: str, tree: SearchTree) -> str:
    label = escape(_label(node)).replace(" ", '<tspan class="space">·</tspan>') if not node.ends else "■ end"
    told = (
        f"{escape(node.piece, quote=True)}: log P = {node.log_probability:.3f}, in all {node.total:.3f}, "
        f"number {node.rank} of step {node.step}, {node.fate}"
    )
    above = node.parent if node.parent is not None else ""
    return (
        f'<g class="node {classes}" tabindex="0" data-id="{node.id}" data-parent="{above}" data-step="{node.step}" '
        f'data-rank="{node.rank}" data-log="{node.log_probability:.4f}" data-total="{node.total:.4f}" '
        f'data-fate="{node.fate}" data-piece="{escape(node.piece, quote=True)}" data-ends="{int(node.ends)}">'
        f"<title>{told}</title>"
        f'<rect x="{x:.1f}" y="{y - HIGH / 2:.1f}" width="{width:.1f}" height="{HIGH}" rx="8"/>'
        f'<text class="piece" x="{x + 10:.1f}" y="{y + 4.5:.1f}">{label}</text>'
        f'<text class="total" x="{x + width - 8:.1f}" y="{y + 4.5:.1f}" text-anchor="end">{_short(node.total)}</text>'
        f"</g>"
    )


def _short(total: float) -> str:
    return f"{total:.2f}".replace("-", "−")


def _results(tree: SearchTree) -> str:
    rows = "".join(_result(result, place) for place, result in enumerate(tree.results, start=1))
    divided = "log P divided by the length penalty" if tree.length_penalty else "log P, as there is no length penalty"
    return (
        f'<p class="how">The final texts, ranked by their score: {divided}. Point at one to see '
        f"its path through the tree.</p>"
        f'<div class="scroll"><table><thead><tr><th></th><th>text</th><th class="n">log P</th><th class="n">tokens</th>'
        f'<th class="n">score</th><th>ended</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _result(result: Result, place: int) -> str:
    ended = "with the end of the text" if result.finished else "at the maximum length"
    path = " ".join(map(str, result.path))
    return (
        f'<tr tabindex="0" data-path="{path}"{" class=lead" if place == 1 else ""}><td class="rank">{place}</td>'
        f'<td class="what">{escape(result.text.strip())}</td><td class="n">{_short(result.log_probability)}</td>'
        f'<td class="n">{len(result.tokens)}</td><td class="n"><b>{_short(result.score)}</b></td><td>{ended}</td></tr>'
    )
