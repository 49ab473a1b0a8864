"""Lectures in a real Chromium: each slide fills the screen, and a saved lecture is one file that needs nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import lmlab
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.studio.bundle import make_page, make_script, wrap
from patience import PATIENCE
from studio_page import CHROMIUM, NO_CHROMIUM, SHOWN, Studio
from studio_process import open_studio
from studio_texts import HARM, SCRIPT, WEIRD

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
CUT_OFF = """() => {
  const result = document.querySelector("section.result"), foot = document.getElementById("lecture");
  const inside = [...document.querySelectorAll(".stage .scroll")];
  return {
    page: document.documentElement.scrollWidth > innerWidth || document.documentElement.scrollHeight > innerHeight,
    result: result.scrollWidth > result.clientWidth + 1 || result.scrollHeight > result.clientHeight + 1,
    inside: inside.some(each => each.scrollWidth > each.clientWidth + 1),
    foot: foot.getBoundingClientRect().bottom > innerHeight + 1,
  };
}"""
SEEN = "name => document.querySelector(name)?.checkVisibility() ?? false"


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory, studio_runs: Path) -> Path:
    """A folder with the lecture of the guide and runs with the names that it uses."""
    folder = tmp_path_factory.mktemp("guide")
    for name, run in {"ngram": "counts", "lstm": "demo/lstm", "gpt2": "demo/gpt2"}.items():
        shutil.copytree(studio_runs / run, folder / name)
    text = (Path(__file__).parents[2] / "docs/guides/studio.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"^```toml\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    (folder / "lecture.toml").write_text(toml, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def lecture(guide: Path, browser: Any) -> Iterator[Studio]:
    with open_studio(guide) as opened:
        studio = Studio(browser, opened.address)
        yield studio
        studio.page.close()


def begin(studio: Studio) -> Any:
    page = studio.open("lecture")
    page.click("[data-do=begin]")
    page.wait_for_function(SHOWN, arg=1)
    return page


@needs_chromium
@pytest.mark.parametrize("size", [(1280, 720), (1400, 1050), (1920, 1080)])
def test_every_slide_fills_the_screen_and_nothing_is_cut_off(lecture: Studio, size: tuple[int, int]) -> None:
    lecture.page.set_viewport_size({"width": size[0], "height": size[1]})
    page = begin(lecture)
    slides = int(page.locator("#lecture .number").inner_text().split("/")[1])
    assert slides == 12
    for number in range(1, slides + 1):
        page.wait_for_function(SHOWN, arg=number)
        found = page.evaluate(CUT_OFF)
        assert not any(found.values()), (number, found)
        assert not any(page.evaluate(SEEN, each) for each in ("header", "section.controls", ".exports", "article > h1"))
        assert page.locator("#slide-title").inner_text()
        zoom = float(page.evaluate("document.querySelector('.stage').style.zoom"))
        assert 13.5 * zoom > 8.5, f"the type of slide {number} is small"
        page.keyboard.press("PageDown")
    page.keyboard.press("Escape")
    lecture.settle("lecture")
    lecture.check()


@needs_chromium
def test_a_lecture_is_given_by_keys_alone(lecture: Studio) -> None:
    page = begin(lecture)
    note = page.locator("#lecture .notes")
    assert note.inner_text() == ""
    page.keyboard.press("n")
    assert note.inner_text().startswith("Which is best")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(SHOWN, arg=2)
    assert page.locator(".prompt").inner_text() == "Return a new"
    page.keyboard.press("f")
    page.locator("textarea").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.type("fnb")
    page.wait_for_function("() => document.querySelector('.prompt').innerText === 'Return a newfnb'")
    assert "slide=2" in page.url  # in a field, keys are for the text
    page.keyboard.press("PageDown")
    page.wait_for_function(SHOWN, arg=3)
    page.keyboard.press("f")
    assert not page.evaluate(SEEN, "section.controls")
    page.keyboard.press("b")
    assert page.evaluate("getComputedStyle(document.querySelector('main')).visibility") == "hidden"
    page.keyboard.press("b")
    page.keyboard.press("End")
    page.wait_for_function(SHOWN, arg=12)
    page.keyboard.press("Home")
    page.wait_for_function(SHOWN, arg=1)
    page.keyboard.press("ArrowLeft")
    assert "slide=1" in page.url
    page.keyboard.press("n")
    page.keyboard.press("Escape")
    lecture.settle("lecture")
    assert page.evaluate(SEEN, "header")
    assert not page.evaluate(SEEN, "#lecture")
    lecture.check()


@needs_chromium
def test_a_folder_without_a_lecture_gets_one_of_runs_that_can_be_compared(studio: Studio) -> None:
    page = begin(studio)
    page.keyboard.press("ArrowRight")
    page.wait_for_function(SHOWN, arg=2)
    shown = page.locator(".stage figcaption").all_inner_texts()
    assert [each.split("\n")[0] for each in shown] == ["counts", "demo/lstm", "demo/gpt2"]
    studio.check()


class Saved:
    """A saved lecture, opened as a file; everything that it requests is remembered."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.page = browser.new_page(**settings)
        self.page.set_default_timeout(1000 * PATIENCE)
        self.wrong: list[str] = []
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append("dialog"), dialog.dismiss()))
        self.page.on("request", self._hear)
        self.page.goto(path.as_uri())

    def _hear(self, request: Any) -> None:
        if not request.url.startswith(("file:", "blob:", "data:")):
            self.wrong.append(f"outside: {request.url}")

    def go_to(self, number: int) -> Any:
        while True:
            now = int(self.page.locator("#lecture .number").inner_text().split("/")[0])
            self.page.wait_for_function(SHOWN, arg=now)
            if now == number:
                return self.page
            self.page.keyboard.press("PageDown" if now < number else "PageUp")
            self.page.wait_for_function(SHOWN, arg=now + (1 if now < number else -1))


@pytest.fixture(scope="module")
def saved_file(guide: Path, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lecture of the guide, saved; its studio has ended."""
    with open_studio(guide) as opened:
        studio = Studio(browser, opened.address)
        page = studio.open("lecture")
        with page.expect_download() as waiting:
            page.click("[data-do=save]")
        path = tmp_path_factory.mktemp("saved") / "lecture.html"
        waiting.value.save_as(path)
        assert waiting.value.suggested_filename == "From-counting-to-Transformers.html"
        page.wait_for_function("() => document.querySelector('.said').innerText.startsWith('Saved')")
        said = float(re.findall(r"Saved: ([\d.]+) MB", page.locator(".said").inner_text())[0])
        assert said == pytest.approx(path.stat().st_size / 1e6, abs=0.006)
        assert said < 3
        studio.check()
        page.close()
    return path


@needs_chromium
def test_a_saved_lecture_opens_without_lmlab_and_asks_for_nothing(saved_file: Path, browser: Any) -> None:
    saved = Saved(browser, saved_file, viewport={"width": 1280, "height": 720})
    for number in range(1, 13):
        page = saved.go_to(number)
        assert page.locator(".stage").inner_text().strip()
        assert page.locator(".wrong:visible").all_inner_texts() == []
        assert not any(page.evaluate(CUT_OFF).values()), number
    assert not page.evaluate(SEEN, "header")
    page.keyboard.press("Escape")
    page.wait_for_selector("[data-do=begin]")
    assert page.locator("article ol:not(.path) > li").count() == 12
    assert page.locator("[data-do=save]").count() == 0
    assert saved.wrong == []
    page.close()


@needs_chromium
def test_a_saved_lecture_has_the_interactions_that_need_no_model(saved_file: Path, guide: Path, browser: Any) -> None:
    saved = Saved(browser, saved_file, viewport={"width": 1280, "height": 900})
    page = saved.go_to(1)
    page.select_option("select[name=axis]", "tokens")
    page.fill("input[name=smooth]", "0.5")
    assert page.locator(".curves .smooth").count() > 0
    page.click("[data-sort=score]")
    assert page.locator(".runs tr.group").count() == 1
    page = saved.go_to(2)
    page.locator(".stage .mark").first.hover()
    assert "probability" in page.locator(".said").inner_text()
    page.click("details.numbers summary")
    assert page.locator("details.numbers table").count() == 3
    page.locator(".stage .mark[data-pick]").first.click()
    assert "no model" in page.locator(".said").inner_text()
    page = saved.go_to(7)
    nodes = page.locator(".tree .mark:not(.later)")
    before = nodes.count()
    page.click("[data-go='one step on']")
    assert nodes.count() > before
    page = saved.go_to(10)
    before = page.locator("figcaption").first.inner_text()
    page.click("[aria-label='Next unit']")
    page.wait_for_function("before => document.querySelector('figcaption').innerText !== before", arg=before)
    page.click("[aria-label='Previous unit']")
    page.click("[aria-label='Previous unit']")  # its values are not in the file
    page.wait_for_selector(".wrong:visible")
    assert "no models" in page.locator(".wrong").inner_text()
    assert page.locator("figcaption").first.inner_text() == before
    page = saved.go_to(12)
    page.click("[data-do=next]")  # all steps of a forward pass, and all heads, are in the file
    page.click("[data-step='1.weights']")
    page.click("[data-head='1']")
    page.wait_for_function("() => document.querySelector('.step figcaption').innerText.startsWith('scores of head 1')")
    assert saved.wrong == []
    page.close()


@needs_chromium
@pytest.mark.parametrize(("temperature", "top_p"), [(0.5, 1.0), (2.0, 0.3)])
def test_a_saved_lecture_computes_temperature_and_top_p_as_the_library_does(
    saved_file: Path, guide: Path, browser: Any, temperature: float, top_p: float
) -> None:
    saved = Saved(browser, saved_file)
    page = saved.go_to(2)
    page.fill("input[name=temperature]", str(temperature))
    page.fill("input[name=top_p]", str(top_p))
    page.wait_for_function(SHOWN, arg=2)
    page.click("details.numbers summary")
    for place, run in enumerate(("ngram", "lstm", "gpt2")):
        rows = page.locator("details.numbers table").nth(place).locator("tbody tr")
        shown = [float(cell) for cell in rows.locator("td:nth-child(3)").all_inner_texts()]
        every = lmlab.load(guide / run).next("Return a new", top=100_000)
        logits = torch.tensor([[probability for _, probability in every]], dtype=torch.float64).log()
        sampler = Sampler(Sampling(temperature=temperature, top_p=top_p))
        expected = sampler.apply_filters(logits)[0].softmax(-1).tolist()
        assert shown == pytest.approx(expected[: len(shown)], abs=6e-5)
    assert saved.wrong == []
    page.close()


@needs_chromium
def test_what_looks_like_html_is_text_in_a_saved_lecture(studio_runs: Path, browser: Any, tmp_path: Path) -> None:
    shutil.copytree(studio_runs / WEIRD, tmp_path / "runs" / WEIRD)
    text = f"{SCRIPT} {HARM} </script><!-- <script>"
    link = "#/surprisal?run=" + WEIRD.replace("<", "%3C").replace(">", "%3E").replace("=", "%3D").replace(" ", "%20")
    toml = (
        f"title = 'x'\n[[views]]\ntitle = '{SCRIPT}'\nlink = '{link}&text={text.replace('#', '')}'\nnote = '{HARM}'\n"
    )
    (tmp_path / "runs/lecture.toml").write_text(toml)
    with open_studio(tmp_path / "runs") as opened:
        studio = Studio(browser, opened.address)
        page = studio.open("lecture")
        with page.expect_download() as waiting:
            page.click("[data-do=save]")
        waiting.value.save_as(tmp_path / "saved.html")
        studio.check()
        page.close()
    saved = Saved(browser, tmp_path / "saved.html")
    page = saved.go_to(1)
    assert page.locator("#slide-title").inner_text() == SCRIPT
    assert WEIRD in page.locator(".stage").inner_text()
    assert page.evaluate("document.querySelectorAll('img, iframe, script').length") == 2
    assert saved.wrong == []
    page.close()


def test_the_file_may_load_nothing() -> None:
    before, after = make_page()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', before)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not re.findall(r'(?:src|href)="(?!#)', before + after.split("<script>")[0])


def test_the_bundle_is_a_script_without_imports() -> None:
    script = make_script()
    assert not re.findall(r"^(?:import|export) ", script, flags=re.MULTILINE)
    if (node := shutil.which("node")) is not None:
        subprocess.run([node, "--check", "-"], input=script.encode(), check=True)


def test_modules_are_wrapped_with_their_imports_and_exports() -> None:
    source = (
        'import { h, cut as short } from "../dom.js";\nimport view from "./other.js";\n'
        "export const one = 1;\nexport async function* two() {}\nexport default { one };\n"
        "const later = name => import(`./more/${name}.js`);\n"
    )
    wrapped = wrap("views/here.js", source)
    assert 'const { h, cut: short } = load("dom.js");' in wrapped
    assert 'const { default: view } = load("views/other.js");' in wrapped
    assert "exports.default = { one };" in wrapped
    assert "load(`views/more/${name}.js`)" in wrapped
    assert "Object.assign(exports, { one, two });" in wrapped
    with pytest.raises(AssertionError, match="does not know"):
        wrap("x.js", 'import * as all from "./dom.js";\n')
