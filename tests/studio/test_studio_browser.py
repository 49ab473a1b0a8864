"""The studio in a real Chromium: every view and interaction; nothing from outside, no error, no dialog."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from studio_page import CHROMIUM, NO_CHROMIUM, Studio, state_of
from studio_texts import ANSI, HARM, SCRIPT, TOKEN, WEIRD

VIEWS = sorted(path.stem for path in (Path(__file__).parents[2] / "src/lmlab/studio/static/views").glob("*.js"))
SHELF = ["bert", "counts", "demo/gpt2", "demo/lstm", "en-de", "labels", WEIRD]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_and_says_nothing_wrong(browser: Any, address: str, scheme: str) -> None:
    studio = Studio(browser, address, color_scheme=scheme, reduced_motion="reduce")
    for view in VIEWS:
        page = studio.open(view)
        assert page.locator("h1:visible").count() == 1
        assert page.locator("nav a[aria-current=page]").count() == 1
        assert page.locator(".stage").inner_text().strip() != ""
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is wider than the window"
    studio.check()
    if scheme == "dark":
        studio.page.close()
        return
    studio.page.set_viewport_size({"width": 390, "height": 800})
    for view in VIEWS:
        page = studio.open(view)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is wider than a telephone"
    studio.check()
    studio.page.close()


def test_what_looks_like_html_is_text_everywhere(studio: Studio) -> None:
    text = f"{SCRIPT} {HARM} {ANSI} <svg onload=alert(2)>"
    for run in (WEIRD, "demo/gpt2"):
        studio.open("next", run=run, text=text)
        studio.open("surprisal", run=[run, "counts"], text=text)
        studio.open("surprisal", run=[run, "counts"], text=text, show="difference")
        studio.open("write", run=run, text=text)
        studio.open("write", run=run, text=text, mode="beams")
        studio.open("cells", run=run, text=text)
        studio.open("minimal-pairs", run=run, pairs=f"{text} a | {text} b")
        studio.open("neighbours", run=run, words=HARM.replace(" ", "")[:60])
        studio.open("errors", run=run, lines=text[:120], provoked=0, tokens=4)
        studio.open("bias", run=run, words="cat", templates=f"{{word}} {HARM} {{group}}")
    studio.open("fill", run="bert", text=text, hidden="2")
    studio.open("attention", run="bert", text=text, head=0)
    studio.open("translate", run="en-de", text=text)
    studio.open("predict", run="labels", text=text)
    assert HARM in studio.page.locator(".stage").inner_text()
    page = studio.open("runs", card=WEIRD)
    assert HARM in page.locator("section.card h2").inner_text()
    assert page.evaluate("document.querySelectorAll('img, iframe, script:not([src])').length") == 0
    studio.check()


def test_runs_curves_grow_and_cards_open(studio: Studio, studio_runs: Path) -> None:
    page = studio.open("runs")
    assert page.locator("table.runs tbody tr").count() == len(SHELF)
    metrics = studio_runs / "counts" / "metrics.jsonl"
    before = metrics.read_bytes()
    dots = page.locator(".curves .mark")
    count = dots.count()
    try:
        line = {"step": 9, "tokens": 9, "valid_bits_per_byte": 2.5, "bits_per_byte": 2.4, "cost": {"seconds": 1.0}}
        metrics.write_bytes(before + json.dumps(line).encode() + b"\n")
        page.wait_for_function("n => document.querySelectorAll('.curves .mark').length > n", arg=count)
    finally:
        metrics.write_bytes(before)
    for axis in ("seconds", "flops", "joules"):
        page.select_option("select[name=axis]", axis)
        assert f"axis={axis}" in page.url
    page.click("button[data-card='demo/gpt2']")
    page.wait_for_selector("section.card h2:has-text('demo/gpt2')")
    assert "card=demo" in page.url
    page.go_back()
    page.wait_for_selector("section.card", state="detached")
    studio.check()


def test_next_word_follows_the_keys_and_a_click_appends(studio: Studio) -> None:
    page = studio.open("next", run=["counts", "demo/gpt2"], text="The cat")
    assert page.locator("figure").count() == 2
    first = page.locator(".stage").inner_text()
    page.fill("textarea[name=text]", "The cat number")
    studio.settle("next")
    page.wait_for_function("before => document.querySelector('.stage').innerText !== before", arg=first)
    assert "text=The cat number" in state_of(page)
    before = page.locator(".stage").inner_text()
    page.locator("input[name=temperature]").fill("0.3")
    page.locator("input[name=top_p]").fill("0.2")
    studio.settle("next")
    page.wait_for_function("before => document.querySelector('.stage').innerText !== before", arg=before)
    mark = page.locator(".mark[data-pick]").first
    added = mark.get_attribute("data-pick")
    mark.click()
    studio.settle("next")
    assert page.input_value("textarea[name=text]") == "The cat number" + added
    studio.check()


def test_marks_are_reached_by_keys_and_say_their_numbers(studio: Studio) -> None:
    page = studio.open("next", run="counts", text="The cat")
    page.locator(".stage .mark[tabindex='0']").first.focus()
    first = page.locator(".said").inner_text()
    assert "probability" in first
    page.keyboard.press("ArrowDown")
    assert page.locator(".said").inner_text() != first
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.locator(".said").inner_text() == first
    page.keyboard.press("Enter")
    studio.settle("next")
    assert page.input_value("textarea[name=text]") != "The cat"
    page.click("details.numbers summary")
    assert page.locator("details.numbers table").count() == 1
    studio.check()


def test_surprise_shows_runs_and_their_difference(studio: Studio) -> None:
    page = studio.open("surprisal", run=["counts", "demo/lstm"], text="The cat sat.")
    assert page.locator("figure").count() == 2
    page.select_option("select[name=show]", "difference")
    assert page.locator("figure figcaption").first.inner_text().startswith("counts minus demo/lstm")
    page.locator(".stage .mark").first.hover()
    assert "bits for counts" in page.locator(".said").inner_text()
    studio.check()


def test_a_search_is_stepped_through_pinned_and_forced(studio: Studio) -> None:
    page = studio.open("write", run="demo/gpt2", text="The cat", mode="beams", steps=4, beams=2)
    nodes = page.locator(".tree .mark:not(.later)")
    whole = nodes.count()
    page.click("[data-go='to the beginning']")
    assert nodes.count() == 0
    page.click("[data-go='one step on']")
    assert 0 < nodes.count() < whole
    assert "step=1" in page.url
    page.click("[data-go='to the end']")
    page.locator(".tree .mark.pruned").first.click()
    page.click("[data-do=pin]")
    studio.settle("write")
    page.wait_for_selector(".tree .mark.forced")
    assert "pin=" in page.url
    assert nodes.count() > whole
    page.fill("input[name=force]", " dog")
    page.click("[data-do=force]")
    page.wait_for_function("() => new URLSearchParams(location.hash.split('?')[1]).getAll('pin').length === 2")
    studio.settle("write")
    page.locator("button[title=Unpin]").first.click()
    studio.settle("write")
    page.select_option("select[name=mode]", "samples")
    studio.settle("write")
    assert page.locator("figure").count() == 3
    studio.check()


def test_texts_are_streamed_from_the_api(studio: Studio) -> None:
    asked: list[Any] = []
    studio.page.on("request", lambda request: asked.append(request) if "/v1/" in request.url else None)
    page = studio.open("write", run="demo/lstm", text="The cat", tokens=30, samples=2, seed=5)
    (request,) = asked
    assert request.post_data_json["stream"]
    whole = {**request.post_data_json, "stream": False}
    shown_text = page.evaluate(
        "async body => (await fetch('/v1/completions', { method: 'POST', body: JSON.stringify(body), headers: {"
        " 'content-type': 'application/json' } })).json()",
        whole,
    )
    page.click("details.numbers summary")
    for place, choice in enumerate(shown_text["choices"]):
        rows = page.locator("details.numbers table").nth(place).locator("tbody tr")
        assert rows.count() == len(choice["logprobs"]["tokens"])
        bits = [float(cell) for cell in rows.locator("td:nth-child(2)").all_inner_texts()]
        assert bits == pytest.approx([-each / math.log(2) for each in choice["logprobs"]["token_logprobs"]], abs=1e-3)
    page = studio.open("write", run="demo/lstm", text="The cat", temperature=7)
    assert "temperature" in page.locator(".wrong").inner_text()
    assert studio.wrong.pop().startswith("error: Failed to load resource")
    assert studio.wrong == []


def test_a_tab_holds_one_stream_of_events(studio: Studio) -> None:
    begun, ended = set[Any](), set[Any]()
    studio.page.on("request", lambda request: begun.add(request) if "/studio/api/live" in request.url else None)
    for event in ("requestfinished", "requestfailed"):
        studio.page.on(event, lambda request: ended.add(request) if request in begun else None)
    for view, state in (("runs", {}), ("next", {}), ("runs", {"run": "counts"}), ("runs", {"run": "bert"})):
        studio.open(view, **state)
    assert len(begun) >= 4
    until = time.monotonic() + 90
    while len(begun - ended) > 1 and time.monotonic() < until:
        studio.page.wait_for_timeout(20)  # the end of the others is reported later
    assert len(begun - ended) == 1
    studio.check()


def test_words_are_hidden_by_a_click(studio: Studio) -> None:
    page = studio.open("fill", run="bert", text="The cat sat on the mat", hidden="")
    assert page.locator(".empty").count() == 1
    page.click(".words button:has-text('cat')")
    studio.settle("fill")
    page.wait_for_selector("figure")
    page.click(".words button:has-text('mat')")
    page.wait_for_function("() => document.querySelectorAll('figure').length === 2")
    page.check("input[name=jointly]")
    studio.settle("fill")
    assert "jointly=1" in page.url
    assert page.locator(".words [aria-pressed=true]").all_inner_texts() == ["cat", "mat"]
    studio.check()


def test_translations_are_aligned_and_texts_classified(studio: Studio) -> None:
    page = studio.open("translate", run="en-de", text="somebody saw day 3", target="jemand sah Tag 3")
    page.locator(".stage svg .mark").nth(3).hover()
    assert "looks at" in page.locator(".said").inner_text()
    page = studio.open("predict", run="labels", text="a good film")
    assert page.locator(".stage .mark").count() == 2
    studio.check()


def test_a_head_is_opened_locked_and_a_token_hidden(studio: Studio) -> None:
    page = studio.open("attention", run="bert", text="The cat sat on the mat")
    assert page.locator("button.head").count() == 4  # two layers of two heads
    page.click("button.head[data-layer='1'][data-head='1']")
    studio.settle("attention")
    assert "layer=1&head=1" in page.url
    assert page.locator("button.head[aria-pressed=true]").get_attribute("data-layer") == "1"
    tokens = page.locator(".mark[data-pick]")
    every = tokens.count()
    shown = (
        "() => [...document.querySelectorAll('svg.lines .from')].filter(g => g.getAttribute('opacity') === '1').length"
    )
    assert page.evaluate(shown) == every
    tokens.nth(2).hover()
    assert page.evaluate(shown) == 1
    weights = page.locator("svg.lines [data-key] .tick").all_text_contents()
    assert sum(map(float, weights)) == pytest.approx(1, abs=0.005 * len(weights))
    page.locator("article h1").hover()
    assert page.evaluate(shown) == every
    tokens.nth(2).click()
    assert "lock=2" in page.url
    assert page.locator(".mark.locked").count() == 1
    page.check("input[name=hide]")
    assert tokens.count() < every
    page.uncheck("input[name=hide]")
    page.click("[data-do=mask]")
    studio.settle("attention")
    page.wait_for_selector("text=Hidden from the model")
    assert "masked=2" in page.url
    page.click("[data-do=unmask]")
    studio.settle("attention")
    assert "masked" not in page.url
    page = studio.open("attention", run="demo/gpt2", text="The cat sat on the mat", masked=3)
    assert "reads the text without" in page.locator(".one-head").inner_text()
    assert page.locator("svg.lines .gone").count() == 2
    page = studio.open("attention", run="en-de", text="somebody saw day 3", target="jemand sah Tag 3")
    assert page.locator("select[name=kind]").input_value() == "cross"
    page.locator("svg.lines [data-key='1']").click()
    studio.settle("attention")
    assert "masked=1" in page.url
    page.select_option("select[name=kind]", "encoder")
    studio.settle("attention")
    assert page.locator("svg.lines .gone").count() == 2
    studio.check()


def test_heads_are_gone_through_by_keys(studio: Studio) -> None:
    page = studio.open("attention", run="demo/gpt2", text="The cat sat on the mat")
    page.locator("button.head[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")  # there is no further head
    assert "Layer 1, head 1: entropy" in page.locator(".said").inner_text()
    page.keyboard.press("Enter")
    studio.settle("attention")
    assert "layer=1&head=1" in page.url
    page.locator("svg.lines .mark").first.focus()
    page.keyboard.press("ArrowDown")
    assert "From “" in page.locator(".said").inner_text()
    page.keyboard.press("Enter")
    studio.settle("attention")
    assert "lock=1" in page.url
    page.select_option("select[name=show]", "matrix")
    page.locator("svg[aria-label='One head'] .mark").nth(3).hover()
    assert "attends to" in page.locator(".said").inner_text()
    studio.check()


def test_long_texts_are_shown_as_pixels(studio: Studio) -> None:
    page = studio.open("attention", run="demo/gpt2", text="a cat " * 20, show="matrix")
    canvas = page.locator(".one-head canvas")
    canvas.hover(position={"x": 30, "y": 60})
    assert "attends to" in page.locator(".said").inner_text()
    studio.check()


def test_cells_fire_in_a_selection(studio: Studio) -> None:
    page = studio.open("cells", run=WEIRD, text="abc (def) ghi")
    page.evaluate("document.querySelector('textarea[name=text]').setSelectionRange(4, 9)")
    page.click("[data-do=spans]")
    page.wait_for_selector("[data-unit]")
    page.locator("[data-unit]").first.click()
    studio.settle("cells")
    assert "unit=" in page.url or "part=" in page.url
    page.select_option("select[name=part]", "forget_gate")
    studio.settle("cells")
    assert "forget_gate" in page.locator("figcaption").first.inner_text()
    studio.check()


def test_bias_errors_and_neighbours_are_shown(studio: Studio) -> None:
    page = studio.open("bias", run=["demo/gpt2", "bert"], words="cat, dog", templates="The {word} said {group} sat.")
    assert page.locator(".stage figure").count() == 2
    assert (
        page.locator(".stage").inner_text().count("Blodgett") == 2
    )  # what it cannot tell, once for each kind of score
    page.select_option("select[name=how]", "translations")
    page.fill("textarea[name=source]", "somebody saw day 3")
    page.fill("textarea[name=targets]", "jemand sah Tag 3\nTag Tag")
    page.wait_for_function("() => document.querySelectorAll('.stage .mark').length === 2")
    assert page.locator("input[value='en-de']").is_checked()
    page = studio.open("errors", run="en-de", lines="somebody saw day 3", tokens=6)
    assert page.locator(".stage table tbody tr").count() == 8
    page.uncheck("input[name=provoked]")
    studio.settle("errors")
    page.wait_for_function("() => document.querySelectorAll('.stage table tbody tr').length === 1")
    page = studio.open("neighbours", run=["demo/gpt2", "demo/lstm"], words="cat", top=3)
    assert page.locator(".stage .mark").count() == 6
    page.locator(".stage .mark").first.hover()
    assert re.search(r": −?\d\.\d{3}$", page.locator(".said").inner_text())
    studio.check()


@pytest.mark.parametrize("view", ["next", "attention"])
def test_a_view_is_saved_in_every_form(studio: Studio, tmp_path: Path, view: str, browser: Any) -> None:
    run = {"next": [WEIRD, "counts"], "attention": ["bert"]}[view]
    page = studio.open(view, run=run, text=f"The {SCRIPT} cat")
    for kind in ("svg", "png", "json", "html"):
        with page.expect_download() as waiting:
            page.click(f"[data-export={kind}]")
        path = tmp_path / f"{view}.{kind}"
        waiting.value.save_as(path)
        content = path.read_bytes()
        assert len(content) > 500
        if kind == "svg":
            assert content.startswith(b"<svg")
            assert b"var(--" not in content
        if kind == "png":
            assert content.startswith(b"\x89PNG")
        if kind == "json":
            assert json.loads(content)["view"] == view
    studio.check()
    alone = browser.new_page()
    heard: list[str] = []
    alone.on("request", lambda request: heard.append(request.url))
    alone.on("dialog", lambda dialog: (heard.append("dialog"), dialog.dismiss()))
    alone.goto((tmp_path / f"{view}.html").as_uri())
    assert [each for each in heard if not each.startswith(("file:", "data:"))] == []
    assert json.loads(alone.locator("script#data").inner_text())
    assert alone.locator("svg").count() >= 1
    alone.close()


def test_a_run_is_started_and_stopped(studio: Studio) -> None:
    wanted = {"name": "begun", "model": "rnn", "tokenizer": "characters", "budget": "10min"}
    page = studio.open("train", **wanted)
    assert page.locator("pre.command").inner_text().startswith("lmlab train rnn builtin -o ")
    page.click("[data-do=start]")
    page.wait_for_selector(".job .pill:has-text('running')")
    page.click("[data-do=stop]")
    page.wait_for_selector(".job .pill:not(.training)")
    studio.check()


def test_a_link_is_a_view(studio: Studio) -> None:
    page = studio.open("next", run=[WEIRD, "counts"], text="a & b = c? #1", temperature=0.5)
    hash_before = page.evaluate("location.hash")
    page.reload()
    studio.settle("next")
    assert page.evaluate("location.hash") == hash_before
    assert page.input_value("textarea[name=text]") == "a & b = c? #1"
    assert page.locator("figcaption").first.inner_text().startswith(WEIRD)
    page.locator("textarea[name=text]").focus()
    page.goto(f"{studio.address}#/next?run=counts&text=other")  # though the field has the focus, it follows the link
    studio.settle("next")
    assert page.input_value("textarea[name=text]") == "other"
    page.goto(f"{studio.address}#/{quote('nowhere')}")
    studio.settle("runs")
    studio.check()


def test_the_printed_link_signs_in_and_leaves_no_token_behind(browser: Any, address: str) -> None:
    with_link, without = browser.new_context(), browser.new_context()
    stranger = without.new_page()
    assert stranger.request.get(address).status == 401
    assert stranger.request.get(f"{address}studio/api/runs").status == 401
    page = with_link.new_page()
    page.goto(f"{address}?token={TOKEN}#/next?text=The cat")
    page.wait_for_selector("article[data-view=next]")
    assert TOKEN not in page.url
    assert TOKEN not in page.evaluate("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])")
    again = with_link.new_page()
    again.goto(address)  # the cookie is enough from now on
    again.wait_for_selector("article[data-view=runs]")
    for context in (with_link, without):
        context.close()


def test_a_link_on_another_site_opens_the_studio(browser: Any, address: str) -> None:
    """A course page on another site: its link opens the studio, its frame and its script do not."""
    context = browser.new_context()
    context.new_page().goto(f"{address}?token={TOKEN}")
    page = context.new_page()
    html = f'<a href="{address}">open</a><iframe src="{address}"></iframe>'
    page.route("http://course.example/", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto("http://course.example/")
    assert page.evaluate(f"fetch('{address}studio/api/runs').then(() => 'read', () => 'refused')") == "refused"
    page.click("a")
    page.wait_for_selector("article[data-view=runs]")
    context.close()


def test_five_groups_are_reached_by_keys(studio: Studio) -> None:
    page = studio.open("next", run="counts", text="The cat")
    assert page.locator("nav .groups a").all_inner_texts() == ["Runs", "Predict", "Look inside", "Test", "Lecture"]
    assert page.locator("nav .groups [aria-current=true]").inner_text() == "Predict"
    page.locator("nav .groups a", has_text="Look inside").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    studio.settle("surprisal")
    assert page.evaluate("document.activeElement.textContent") == "Test"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    studio.settle("next")  # the view of the group that was open last
    reached = set()
    for group in ("Runs", "Predict", "Look inside", "Test", "Lecture"):
        page.locator("nav .groups a", has_text=group).click()
        page.wait_for_selector(f"nav .views[aria-label='{group}']")
        reached |= {str(link.get_attribute("href")).removeprefix("#/") for link in page.locator("nav .views a").all()}
    assert reached == set(VIEWS)
    studio.check()


def test_text_and_runs_are_carried_from_view_to_view(studio: Studio) -> None:
    page = studio.open("next", run=["demo/gpt2", "counts"], text="The cat")
    page.locator("textarea[name=text]").press_sequentially(" sat on")
    page.locator("nav .views a", has_text="Write").click()  # before the typed text is asked for
    studio.settle("write")
    assert page.input_value("textarea[name=text]") == "The cat sat on"
    assert page.locator("input[value='demo/gpt2']").is_checked()
    page.locator("nav .groups a", has_text="Test").click()
    studio.settle("surprisal")
    assert page.input_value("textarea[name=text]") == "The cat sat on"
    assert "text=The cat sat on" in state_of(page)
    page.locator("nav .groups a", has_text="Predict").click()
    studio.settle("write")
    page.locator("textarea[name=text]").press_sequentially(" the")
    page.locator("input[value='counts']").check()  # typing survives choosing a run at once
    studio.settle("write")
    assert page.input_value("textarea[name=text]") == "The cat sat on the"
    assert "text=The cat sat on the" in state_of(page)
    studio.check()


def test_a_forced_word_survives_a_redraw_and_masks_follow_their_words(studio: Studio) -> None:
    page = studio.open("write", run="demo/gpt2", text="The cat", mode="beams", steps=2, beams=2)
    page.fill("input[name=force]", " dog")
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_function("() => document.querySelector('.stage').clientWidth < 980")
    page.click("[data-go='to the beginning']")
    assert page.input_value("input[name=force]") == " dog"
    page = studio.open("fill", run="bert", text="The cat sat on the mat", hidden="4")
    page.fill("textarea[name=text]", "The old cat sat on the mat")
    page.wait_for_function("() => document.querySelector('.words [aria-pressed=true]')?.textContent === 'sat'")
    page.wait_for_function("() => location.hash.includes('old')")
    assert page.locator(".words [aria-pressed=true]").all_inner_texts() == ["sat"]
    studio.check()


def test_an_unfinished_line_has_no_results_below_it(studio: Studio) -> None:
    page = studio.open("minimal-pairs", run="counts", pairs="The cat sat. | The cat sit.")
    assert page.locator(".stage table").count() == 1
    page.fill("textarea[name=pairs]", "The cat sat. | The cat sit.\nThe dog")
    page.wait_for_selector(".wrong:visible")
    assert page.locator(".stage table").count() == 0
    assert "line 2" in page.locator(".wrong").inner_text()
    page = studio.open("neighbours", run="demo/gpt2", words="cat", top=3)
    page.fill("input[name=top]", "0")
    page.keyboard.press("Tab")
    assert page.input_value("input[name=top]") == "1"
    page = studio.open("senses", run="bert", word="cat", layer=-1)
    page.fill("input[name=layer]", "0")
    page.keyboard.press("Tab")
    page.wait_for_function("() => location.hash.includes('layer=0')")


def test_fields_begin_with_the_held_out_text_of_the_run(studio: Studio, studio_runs: Path) -> None:
    from lmlab.runs.held_out import held_out

    text = "\n".join(held_out(studio_runs / "demo/gpt2"))
    page = studio.open("next", run="demo/gpt2")
    prompt = page.input_value("textarea[name=text]")
    assert prompt
    assert prompt in text
    assert prompt != "Return a new"
    page = studio.open("surprisal", run="demo/lstm")
    assert all(line in text for line in page.input_value("textarea[name=text]").splitlines())
    page = studio.open("next", run="demo/gpt2", text="My own")
    assert page.input_value("textarea[name=text]") == "My own"
    studio.check()


def test_a_run_has_one_colour_in_every_view(studio: Studio) -> None:
    colour = "name => getComputedStyle([...document.querySelectorAll('run-picker label')].find(each =>"
    colour += " each.innerText.startsWith(name)).querySelector('.swatch').firstElementChild).fill"
    page = studio.open("next", run=["demo/gpt2", "demo/lstm", "counts"], text="The cat")
    first = [page.evaluate(colour, name) for name in ("demo/gpt2", "demo/lstm", "counts")]
    assert len(set(first)) == 3
    page = studio.open("surprisal", run=["counts", "demo/lstm"], text="The cat")
    assert [page.evaluate(colour, name) for name in ("demo/lstm", "counts")] == first[1:]
    studio.check()
