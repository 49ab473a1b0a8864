"""Nothing is lost in the studio: typing, drags, notes and the choice of runs survive what else happens on the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from studio_page import CHROMIUM, NO_CHROMIUM, Studio
from studio_process import open_studio

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
TEXT_VIEWS = {
    "next": "text",
    "write": "text",
    "fill": "text",
    "attention": "text",
    "cells": "text",
    "attribution": "text",
    "surprisal": "text",
    "translate": "text",
    "predict": "text",
    "senses": "word",
    "neighbours": "words",
    "minimal-pairs": "pairs",
    "errors": "lines",
    "probes": "lines",
    "bias": "words",
}


@pytest.fixture(scope="module")
def folder(studio_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("kept")
    for name in ("counts", "demo/lstm", "demo/gpt2", "bert", "en-de", "labels"):
        shutil.copytree(studio_runs / name, runs / name)
    return runs


@pytest.fixture(scope="module")
def own(folder: Path, browser: Any) -> Iterator[Studio]:
    with open_studio(folder) as opened:
        studio = Studio(browser, opened.address)
        yield studio
        studio.page.close()


@pytest.mark.parametrize("view", TEXT_VIEWS)
def test_typing_survives_a_redraw_a_choice_of_runs_and_another_view(own: Studio, view: str) -> None:
    page, name = own.open(view), TEXT_VIEWS[view]
    field = page.locator(f"textarea[name={name}], input[name={name}]").first
    field.focus()
    page.keyboard.press("End")
    page.keyboard.type(" dog")
    typed = field.input_value()
    page.set_viewport_size({"width": 1180, "height": 900})  # everything is drawn again
    page.evaluate("document.querySelector('run-picker:not([hidden]) input:not(:checked)')?.click()")
    assert field.input_value() == typed
    page.locator("nav .groups a", has_text="Lecture").click()
    own.settle("lecture")
    page.go_back()
    page.wait_for_selector(f"article[data-view={view}]")
    page.wait_for_function(
        "([name, typed]) => document.querySelector(`textarea[name=${name}], input[name=${name}]`)?.value === typed",
        arg=[name, typed],
    )
    page.set_viewport_size({"width": 1200, "height": 900})
    own.wrong.clear()  # an unfinished line is an error of the server


def test_the_slider_of_a_search_can_be_dragged(own: Studio) -> None:
    page = own.open("write", run="demo/gpt2", text="The cat", mode="beams", steps=6, beams=2)
    slider = page.locator("input[name=step]")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    seen = set()
    for step in range(20, -1, -1):
        page.mouse.move(box["x"] + 8 + (box["width"] - 16) * step / 20, box["y"] + box["height"] / 2)
        seen.add(page.locator("input[name=step]").input_value())
    page.mouse.up()
    assert {"0", "3", "6"} <= seen
    assert page.locator(".tree .mark:not(.later)").count() == 0
    own.check()


def test_runs_are_sorted_filtered_and_ranked_by_text(own: Studio) -> None:
    page = own.open("runs")
    names = page.locator("tr[data-run]")
    assert [row.get_attribute("data-run") for row in names.all()] == sorted(
        ["bert", "counts", "demo/gpt2", "demo/lstm", "en-de", "labels"]
    )
    page.click("[data-sort=name]")
    assert names.first.get_attribute("data-run") == "labels"
    page.click("[data-sort=score]")
    groups = page.locator("tr.group").all_inner_texts()
    assert len(groups) == len(set(groups)) >= 3
    assert sum("book.txt" in each and "bits per byte" in each for each in groups) == 1
    page.fill("input[name=find]", "demo lstm")
    page.wait_for_function("() => document.querySelectorAll('tr[data-run]').length === 1")
    page.fill("input[name=find]", "")
    page.wait_for_function("() => document.querySelectorAll('tr[data-run]').length === 6")
    page.fill("input[name=smooth]", "0.8")
    page.wait_for_selector(".curves .smooth", state="attached")
    own.check()


def test_a_note_is_typed_while_curves_grow_and_is_saved(own: Studio, folder: Path) -> None:
    page = own.open("runs", card="demo/lstm", run="demo/lstm")
    page.locator("textarea[name=note]").focus()
    page.keyboard.type("half of ")
    metrics = folder / "demo/lstm/metrics.jsonl"
    before = page.locator(".curves .mark").count()
    with metrics.open("a") as file:
        file.write('{"step": 9, "tokens": 99999, "valid_bits_per_byte": 2.5, "cost": {"seconds": 9.0}}\n')
    page.wait_for_function("n => document.querySelectorAll('.curves .mark').length > n", arg=before)
    assert page.evaluate("document.activeElement.name") == "note"
    page.keyboard.type("the data")
    page.locator("h1:visible").click()
    page.wait_for_function("() => document.querySelector('.note small').innerText === 'saved'")
    assert (folder / "demo/lstm/notes.md").read_text() == "half of the data\n"
    page.wait_for_selector("tr[data-run='demo/lstm'] .note")
    page.reload()
    own.settle("runs")
    assert page.input_value("textarea[name=note]") == "half of the data"
    own.check()
