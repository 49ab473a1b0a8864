"""The page of a search: all of the tree is in it, each line goes from a candidate to its parent, none cross."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
import torch

from lmlab.decoding.beam_search import beam_search
from lmlab.decoding.search_recorder import Recorder
from lmlab.pages.search_tree import MOST, SearchTree, draw_tree, make_page
from standins import Table

SVG = "{http://www.w3.org/2000/svg}"


def make_tree(*, beams: int = 3, tokens: int = 6, seed: int = 0, piece: str = " w{}", prompt: str = "") -> SearchTree:
    recorder = Recorder()
    (found,) = beam_search(
        Table(9, seed=seed), torch.tensor([[1]]), tokens=tokens, beams=beams, boundary=1, watch=recorder
    )
    decode = lambda tokens: "".join(piece.format(token) for token in tokens)  # noqa: E731
    return recorder.tree(found, show=piece.format, decode=decode, boundary=1, beams=beams, prompt=prompt)


def nodes_and_edges(tree: SearchTree):
    drawing = ElementTree.fromstring(draw_tree(tree))
    nodes = {int(g.get("data-id")): g for g in drawing.iter(f"{SVG}g") if g.get("data-id")}
    edges = {int(path.get("data-id")): path for path in drawing.iter(f"{SVG}path")}
    return nodes, edges


@pytest.mark.parametrize("seed", range(4))
def test_every_candidate_is_drawn_with_its_fate(seed):
    tree = make_tree(seed=seed)
    nodes, edges = nodes_and_edges(tree)
    assert sorted(nodes) == sorted(edges) == [node.id for node in tree.candidates]
    for node in tree.candidates:
        classes = nodes[node.id].get("class").split()
        assert node.fate in classes
        assert ("best" in classes) == (node.id in tree.best_path)
        assert classes[1:] == edges[node.id].get("class").split()[1:]
        (total,) = [text.text for text in nodes[node.id].iter(f"{SVG}text") if text.get("class") == "total"]
        assert float(total.replace("−", "-")) == pytest.approx(node.total, abs=0.0051)


@pytest.mark.parametrize("seed", range(4))
def test_lines_lead_to_the_parent_and_do_not_cross(seed):
    tree = make_tree(seed=seed, beams=4, tokens=8)
    nodes, edges = nodes_and_edges(tree)

    def box(node):
        rect = nodes[node].find(f"{SVG}rect")
        return [float(rect.get(name)) for name in ("x", "y", "width", "height")]

    ends: dict[int, list[tuple[float, float]]] = {}
    for node in tree.candidates:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", edges[node.id].get("d"))]
        x, y, _, high = box(node.id)
        assert numbers[-2:] == pytest.approx([x, y + high / 2], abs=0.11)
        if node.parent is not None:
            x, y, wide, high = box(node.parent)
            assert numbers[:2] == pytest.approx([x + wide, y + high / 2], abs=0.11)
        ends.setdefault(node.step, []).append((numbers[1], numbers[-1]))
    for lines in ends.values():
        lines.sort()
        assert [end for _, end in lines] == sorted(end for _, end in lines)
        places = sorted(end for _, end in lines)
        assert all(below - above >= 30 for above, below in pairwise(places))


def test_the_page_stands_alone_and_steers_nothing():
    page = make_page([make_tree(piece="</script><b>{}", prompt="<i>")], model="<run>")
    assert "</script><b>" not in page
    assert "<run>" not in page
    assert "&lt;/script&gt;" in page
    assert "<i>" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=", page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "$" not in re.sub(r"/\^.*?\$/", "", page)


def test_many_searches_can_be_chosen_from_and_the_rest_is_counted():
    page = make_page([make_tree(tokens=2, prompt=f"p{n}") for n in range(MOST + 2)])
    assert page.count("<svg") == page.count("<option") == MOST
    assert page.count(" hidden>") == MOST - 1
    assert f"first {MOST} of {MOST + 2}" in page
    assert "<select" not in make_page([make_tree(tokens=2)])
