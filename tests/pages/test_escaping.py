"""Whatever is put into a page is shown as text: markup is escaped, control characters become visible."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lmlab import pages
from lmlab.pages import run, samples, search_tree, views
from lmlab.pages.figures import Chart, ColouredText, Heatmap, Point, Series
from lmlab.pages.figures.svg import standalone
from lmlab.pages.page import TEMPLATES, render_macro

HOSTILE = '<script>alert(\'x\')</script> " onload="y" & \x00\x1b[31m\x08\u202e{{ 7 * 7 }}'
CONTROL = re.compile(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]|[\u202a-\u202e]")


class Alignment(NamedTuple):
    source: list[str]
    target: list[str]
    weights: list[list[float]]
    texts: tuple[str, str]


class View:
    title = HOSTILE

    def lead(self) -> str:
        return HOSTILE

    def notes(self) -> list[str]:
        return [HOSTILE]

    def table(self) -> views.Table:
        return views.Table((HOSTILE,), [(HOSTILE,)], ("",))

    def figures(self) -> list[ColouredText]:
        return [ColouredText(HOSTILE, [(HOSTILE, 1.0)], 2.0)]


CANDIDATE = search_tree.Candidate(
    id=0,
    parent=None,
    step=1,
    rank=1,
    token=1,
    piece=HOSTILE,
    ends=False,
    log_probability=-1.0,
    total=-1.0,
    fate="kept",
)
RESULT = search_tree.Result(HOSTILE, [1], log_probability=-1.0, score=-1.0, finished=True, path=[0])
TREE = search_tree.SearchTree(HOSTILE, HOSTILE, beams=2, length_penalty=0.0, candidates=[CANDIDATE], results=[RESULT])


def make_facts() -> dict[str, Any]:
    """The facts of a report in which every text is hostile."""
    alignment = {"source": [HOSTILE, "e"], "target": [HOSTILE, "e"], "weights": [[1.0, 0.0], [0.5, 0.5]]}
    return {
        "run": HOSTILE,
        "text": HOSTILE,
        "kind": HOSTILE,
        "summary": HOSTILE,
        "paper": HOSTILE,
        "parameters": {"total": 9, "embedding": 3},
        "validation": {"step": 1, "loss": 2.0, f"{HOSTILE}_accuracy": 0.5},
        "held_out": None,
        "curve": {
            "unit": HOSTILE,
            "counted": HOSTILE,
            "train": [{HOSTILE: number, "seconds": number, "value": 1 / number} for number in (1, 2)],
            "valid": [],
        },
        "cost": {
            "counted": HOSTILE,
            HOSTILE: 4,
            "steps": 2,
            "seconds": 1.0,
            "cpu_seconds": 1.0,
            "flops": None,
            "joules": 1.0,
            "grams": 1.0,
            "energy_method": HOSTILE,
            "country": HOSTILE,
            "grams_per_kwh": 1.0,
            "finished": True,
        },
        "samples": {
            "translations": [{"source": HOSTILE, "text": HOSTILE, "reference": HOSTILE, "alignment": alignment}]
        },
        "surprisal": [{"source": HOSTILE, "pieces": [(HOSTILE, 1.0), ("\n", 0.5)]}],
        "tokenizer": {
            "spec": HOSTILE,
            "vocabulary": 3,
            "lossy": True,
            "source": {"spec": HOSTILE, "vocabulary": 2},
            "bytes_per_token": 1.0,
            "tokens_per_word": 1.0,
            "unknown_share": 0.0,
            "pieces": [(HOSTILE, True)],
        },
        "changes": [{HOSTILE: HOSTILE}],
        "settings": {"data": {"text": HOSTILE}, HOSTILE: {HOSTILE: HOSTILE}},
        "left_out": {HOSTILE: HOSTILE},
    }


def make_samples(**samples_of: Any) -> str:
    return run.make_page({**make_facts(), "samples": samples_of})


CLOZE = {"text": f"{HOSTILE} [MASK] {HOSTILE}", "answers": [HOSTILE], "filled": [[(HOSTILE, 0.5)]], "sample": HOSTILE}
PAGES = {
    "run": lambda: run.make_page(make_facts()),
    "run that continues": lambda: make_samples(
        continuations=[{"prompt": HOSTILE, "text": HOSTILE, "temperature": 1.0}]
    ),
    "run that fills": lambda: make_samples(blanks=[CLOZE]),
    "inspection": lambda: views.to_page(View(), subtitle=HOSTILE),
    "alignments": lambda: views.to_alignments_page(
        [Alignment([HOSTILE, "e"], ["e"], [[0.5, 0.5]], (HOSTILE, HOSTILE))], model=HOSTILE, what=HOSTILE
    ),
    "beam search": lambda: search_tree.make_page([TREE, dataclasses.replace(TREE, source=None)], model=HOSTILE),
}
PARTS = {
    "view": lambda: views.to_fragment(View()),
    "card": lambda: views.show_card(HOSTILE, {HOSTILE: HOSTILE}),
    "surprisals": lambda: views.show_surprisals([(HOSTILE, 3.0)], caption=HOSTILE, spaced=False),
    "frame": lambda: views.show_page(HOSTILE),
    "table": lambda: views.show_table(HOSTILE, View().table()),
    "continued": lambda: samples.continued(HOSTILE, HOSTILE),
    "nothing filled": lambda: samples.filled(CLOZE, [], HOSTILE),
    "heat": lambda: render_macro("heat", [(HOSTILE, 3.0)]),
    "chart": lambda: Chart(
        HOSTILE, HOSTILE, HOSTILE, HOSTILE, [Series(HOSTILE, "#123456", [Point(1, 2), Point(2, 3, 1, 4, (2, 3))])]
    ).html(),
    "heatmap": lambda: standalone(Heatmap(HOSTILE, [HOSTILE], [HOSTILE], [[0.5]]).html()),
}


@pytest.mark.parametrize("name", [*PAGES, *PARTS])
def test_text_stays_text(name: str) -> None:
    shown = {**PAGES, **PARTS}[name]()
    assert "&lt;script&gt;" in shown
    assert "<script>alert" not in shown
    assert '" onload="' not in shown
    assert "{{ 7 * 7 }}" in shown, "a text is never a template"
    assert not CONTROL.search(shown)
    assert r"\x00\x1b[31m\x08\u202e" in shown
    shown.encode()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_allows_nothing_from_elsewhere(name: str) -> None:
    page = PAGES[name]()
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=", page)
    assert ("script-src" in page) == (name == "beam search")


def test_every_template_escapes() -> None:
    """Only figures and parts that are escaped already are Markup, and nothing in a template is marked as safe."""
    for path in TEMPLATES.glob("*.html"):
        assert not re.search(r"\|\s*safe|autoescape", path.read_text(encoding="utf-8")), path.name


def test_no_page_repeats_a_directive_of_its_policy() -> None:
    """A browser ignores a repeated directive, and warns about it."""
    files = list((Path(pages.__file__).parent / "templates").glob("*.html"))
    (shared,) = re.findall(r'Content-Security-Policy" content="(.*?)\{%', (files[0].parent / "page.html").read_text())
    used = {each.split()[0] for each in shared.split(";")}
    added = {file.name: re.findall(r"block policy %}(.*?){% endblock", file.read_text()) for file in files}
    assert any(map(any, added.values()))
    for name, blocks in added.items():
        for directive in "".join(blocks).split(";"):
            assert not directive.strip() or directive.split()[0] not in used, name
