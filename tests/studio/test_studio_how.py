"""How it works, by its route and in a real Chromium: steps, heads, positions, numbers that open, by mouse and keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lmlab
from lmlab.analysis.forward_pass.read import read_forward
from studio_page import CHROMIUM, NO_CHROMIUM, Studio, state_of
from studio_texts import HARM, WEIRD

TEXT = "The cat number 7 sat on the"
in_browser = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)


def ask(client: Any, **body: Any) -> Any:
    response = client.post("/studio/api/how", json=body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture(scope="module")
def client(client_of: Callable[..., Any]) -> Any:
    return client_of()


@pytest.mark.parametrize("run", ["counts", "demo/gpt2", "demo/lstm", "bert", WEIRD])
def test_every_step_and_number_of_a_run_is_shown(client: Any, studio_runs: Path, run: str) -> None:
    first = ask(client, run=run, text=TEXT)
    expected = read_forward(lmlab.load(studio_runs / run), TEXT)
    assert [each["key"] for each in first["outline"]] == [each.key for each in expected.steps]
    assert len({each["key"] for each in first["outline"]}) == len(first["outline"])
    assert [each["probability"] for each in first["candidates"]] == pytest.approx(
        [each.probability for each in expected.candidates()]
    )
    for step in first["outline"]:
        found = ask(client, run=run, text=TEXT, step=step["key"], head=1, whole=True)["step"]
        for grid in found["grids"]:
            if grid["kind"] == "facts":
                continue
            row, column = len(grid["rows"]) - 1, len(grid["values"][0]) - 1
            last = grid["indices"][column] if grid["indices"] else column
            at = f"{grid['name']}:{','.join(map(str, [*grid['rows'][row]['prefix'], last]))}"
            number = ask(client, run=run, text=TEXT, number=at)["number"]
            assert number["value"] == pytest.approx(grid["values"][row][column], rel=1e-5, abs=1e-9)
            assert number["result"] == pytest.approx(number["value"], rel=1e-4, abs=1e-5)


def test_the_temperature_is_that_of_the_softmax(client: Any) -> None:
    plain, cold = (ask(client, run="demo/lstm", text=TEXT, temperature=t)["candidates"] for t in (1, 0.5))
    squares = {each["token"]: each["probability"] ** 2 for each in plain}
    ratio = {each["token"]: each["probability"] / squares[each["token"]] for each in cold}
    assert max(ratio.values()) == pytest.approx(min(ratio.values()), rel=1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"run": "en-de"}, "is not shown step by step yet; it is for ngram"),
        ({"number": "nothing:1"}, "there is no number"),
        ({"number": "x:1,99999"}, "has the shape"),
        ({"number": "x:1"}, "has the shape"),
        ({"position": 99}, "position = 99: there are"),
        ({"candidate": 2**30}, "the vocabulary has"),
    ],
)
def test_what_there_is_not_is_an_error_that_says_what_there_is(client: Any, wrong: Any, message: str) -> None:
    response = client.post("/studio/api/how", json={"run": "demo/gpt2", "text": TEXT, **wrong})
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


def test_long_texts_are_cut_and_say_so(client: Any) -> None:
    found = ask(client, run="demo/lstm", text="The cat sat. " * 60)
    assert len(found["tokens"]) == 64
    assert found["cut"] > 0
    assert ask(client, run="demo/lstm", text="")["position"] == 0


@in_browser
def test_a_forward_pass_is_stepped_through_and_numbers_are_opened(studio: Studio) -> None:
    page = studio.open("how", run="demo/gpt2", text=TEXT)
    count = page.locator(".path button").count()
    assert f"Step 1 of {count}" in page.locator(".steps").first.inner_text()
    page.click("[data-do=next]")
    studio.settle("how")
    assert "step=embeddings" in page.url
    page.keyboard.press("ArrowRight")  # the button has the focus; so has nothing after a click into the page
    studio.settle("how")
    page.locator("article h1").click()
    page.keyboard.press("ArrowLeft")
    studio.settle("how")
    assert "step=embeddings" in page.url
    page.click(".path [data-step='1.weights']")
    studio.settle("how")
    assert page.locator(".step math msqrt").count() == 1
    page.click("[data-head='1']")
    studio.settle("how")
    assert "head=1" in page.url
    grid = page.locator("svg.cells").nth(1)
    size = grid.bounding_box()
    where = {"x": size["width"] / 2, "y": size["height"] - 8}
    grid.hover(position=where)
    shown = page.locator(".tip:visible").inner_text()
    assert re.search(r"weights of all heads, “head1”, “.*: \d", shown)
    grid.click(position=where)
    studio.settle("how")
    assert "number=1.weights:1," in state_of(page)
    value = page.locator(".origin .big").inner_text()
    assert shown.endswith(value)
    assert page.locator(".origin .result").inner_text().endswith(value)
    page.locator(".origin button.number").first.click()
    studio.settle("how")
    assert "number=1.scores:1," in state_of(page)
    page.locator(".origin button.number").first.click()
    studio.settle("how")
    assert re.search(r"number=1\.(query|key):1,", state_of(page))
    page.click("[data-do=undo]")
    studio.settle("how")
    assert "number=1.scores:1," in state_of(page)
    page.click("[data-do=close]")
    studio.settle("how")
    assert "number=" not in page.url
    studio.check()


@in_browser
def test_the_way_to_the_prediction_by_keys_alone(studio: Studio) -> None:
    page = studio.open("how", run="demo/lstm", text=TEXT, step="0.gates")
    page.locator("svg.cells").nth(1).focus()
    said = page.locator(".said").inner_text()
    assert "number 0" in said
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.locator(".said").inner_text() != said
    page.keyboard.press("Home")
    assert page.locator(".said").inner_text() == said
    page.keyboard.press("Enter")
    studio.settle("how")
    assert re.search(r"number=0\.input_gate:\d+,0$", state_of(page))
    assert page.evaluate("document.activeElement.classList.contains('cells')")
    page.locator("[data-do=next]").focus()
    for _ in range(20):
        if page.locator("[data-do=next]").is_disabled():
            break
        page.keyboard.press("Enter")
        studio.settle("how")
    assert "step=softmax" in page.url
    before = page.locator(".stage .mark").first.get_attribute("aria-label")
    page.locator("input[name=temperature]").focus()
    page.keyboard.press("End")
    studio.settle("how")
    page.wait_for_function(
        "before => document.querySelector('.stage .mark').getAttribute('aria-label') !== before", arg=before
    )
    page.locator(".stage .mark[tabindex='0']").first.focus()
    page.keyboard.press("Enter")
    studio.settle("how")
    assert "number=probability:" in state_of(page)
    studio.check()


@in_browser
def test_a_token_is_chosen_a_mask_is_moved_and_counts_are_shown(studio: Studio) -> None:
    page = studio.open("how", run="bert", text=TEXT)
    page.click("[data-token='3']")
    studio.settle("how")
    assert page.locator(".tokens [aria-pressed=true]").inner_text() == "[MASK]"
    assert "position=3" in page.url
    page.check("input[value='counts']")
    studio.settle("how")
    assert "position" not in page.url  # the tokens are others
    page.click(".path [data-step='order2']")
    studio.settle("how")
    assert "total" in page.locator(".facts thead").inner_text()
    page.locator(".facts tbody tr").first.locator("button.number").last.click()
    studio.settle("how")
    assert "number=order2:" in state_of(page)
    assert "γ" in page.locator(".origin .terms").inner_text()
    page.locator("textarea[name=text]").fill(f"cat {HARM}")
    page.wait_for_function("() => !location.hash.includes('number')")
    studio.settle("how")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    studio.check()


@in_browser
@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("run", ["counts", "demo/gpt2", "demo/lstm", "bert"])
def test_nothing_is_wider_than_the_window(studio: Studio, run: str, width: int) -> None:
    studio.page.set_viewport_size({"width": width, "height": 900})
    page = studio.open("how", run=run, text=TEXT)
    for number in range(page.locator(".path button").count()):
        if number:
            page.click("[data-do=next]")
            studio.settle("how")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, page.url
    studio.check()
