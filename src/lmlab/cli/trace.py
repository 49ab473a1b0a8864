"""The tree of a beam search where the user wants it: on the screen, as a page, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lmlab.messages import printable

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from lmlab.pages.search_tree import Candidate, SearchTree

HELP = "Show the whole search tree: out.html is a page to step through, out.json is data, '-' draws it here."
PRUNED_SHOWN = 3
"""Pruned candidates named on one line of the screen; the others are counted."""


def check_trace(where: str | None, *, beams: int | None) -> None:
    """Refuse what cannot be written before any work is done."""
    if where is None:
        return
    if beams is None:
        raise ValueError("--trace shows the tree of a beam search: give --beams too")
    if where != "-" and Path(where).suffix not in (".html", ".json"):
        raise ValueError(f"--trace {where}: end the name with .html (a page) or .json (data), or give - for the screen")


def write_trace(trees: Sequence[SearchTree], where: str, *, model: str) -> None:
    """Draw or write the trees."""
    if where == "-":
        from lmlab.cli.console import Console

        console = Console(highlight=False)
        for tree in trees:
            console.print(draw(tree))
        return
    from lmlab.pages.search_tree import as_document, make_page

    if where.endswith(".json"):
        import json

        content = json.dumps(as_document(trees), ensure_ascii=False, indent=1)
    else:
        content = make_page(trees, model=model)
    Path(where).write_text(content, encoding="utf-8")
    print(printable(f"wrote {where}"), file=sys.stderr)


def draw(tree: SearchTree) -> Tree:
    """The tree for a terminal: it branches only where two candidates went on; a single one stays on the line."""
    from rich.text import Text
    from rich.tree import Tree

    best, results = set(tree.best_path), {result.path[-1]: result for result in tree.results}
    head = Text(tree.prompt or (tree.source or "start"), style="bold")
    head.append(f"   {tree.beams} beams, {tree.steps} steps, {len(tree.candidates)} candidates; ", style="dim")
    head.append("the best path", style="bold green")
    head.append(", ★ the best result, ✓ others, ", style="dim")
    head.append("✗ pruned", style="red dim")
    root = Tree(head, guide_style="dim")

    def grow(branch: Tree, parent: int | None) -> None:
        for node in _going(tree, parent):
            line, chain = Text(), [node]
            while len(_going(tree, chain[-1].id)) == 1:
                chain += _going(tree, chain[-1].id)
            for position, link in enumerate(chain):
                line.append("  " if position else "").append_text(_label(link, on_best=link.id in best))
                if link.id in results:
                    mark = "★" if link.id == tree.best_path[-1] else "✓"
                    line.append(f" {mark} {results[link.id].score:.2f}", style="bold green" if mark == "★" else "green")
            inner = branch.add(line)
            for link in chain[:-1]:
                _add_pruned(inner, tree, link)
            grow(inner, chain[-1].id)
            _add_pruned(inner, tree, chain[-1])
        if parent is None:
            _add_pruned(branch, tree, None)

    grow(root, None)
    return root


def _going(tree: SearchTree, parent: int | None) -> list[Candidate]:
    """The candidates after one that were not pruned."""
    return [child for child in tree.children.get(parent, []) if child.fate != "pruned"]


def _name(node: Candidate) -> str:
    return "end" if node.ends else node.piece.strip() or repr(node.piece)


def _label(node: Candidate, *, on_best: bool) -> Text:
    from rich.text import Text

    text = Text(_name(node), style="bold green" if on_best else "")
    return text.append(f" {node.total:.2f}", style="green" if on_best else "dim")


def _add_pruned(branch: Tree, tree: SearchTree, parent: Candidate | None) -> None:
    from rich.text import Text

    nodes = [n for n in tree.children.get(parent.id if parent else None, []) if n.fate == "pruned"]
    if nodes:
        named = " · ".join(f"{_name(node)} {node.total:.2f}" for node in nodes[:PRUNED_SHOWN])
        more = f" · and {len(nodes) - PRUNED_SHOWN} more" if len(nodes) > PRUNED_SHOWN else ""
        after = f"after {_name(parent)}: " if parent else ""
        branch.add(Text(f"✗ {after}{named}{more}", style="red dim"))
