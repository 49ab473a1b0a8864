"""How fast the studio is: the first paint, a keystroke, and attention of 512 tokens browsed layer by layer.

    python benchmarks/studio.py RUNS [--repeats 7] [--attention 512x12x12]

RUNS is a folder with a few tiny runs (lmlab demo makes one). A GPT-2 with random weights of the given tokens, layers
and heads is added in a temporary folder. Printed are medians over the repetitions, each in a fresh page: milliseconds
from opening the address to the first contentful paint, of a studio that was started just then (torch is still being
imported) and of one that is warm; from a key to the bars that answer it, for one run, three and ten side by side; and
for each further layer of attention, from the choice to all heads drawn, with the longest stand-still of the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
STILL = """() => { window.longest = 0; let last = performance.now();
  const beat = () => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now;
    requestAnimationFrame(beat) }; requestAnimationFrame(beat) }"""


@contextmanager
def studio(folder: Path) -> Iterator[str]:
    """The address of a studio that has just been started."""
    command = [sys.executable, "-m", "lmlab", "studio", str(folder), "--port", "0", "--no-token"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        found = re.search(r"http://\S+/", server.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        server.terminate()
        server.wait()


def large_model(folder: Path, tokens: int, layers: int, heads: int) -> None:
    """A GPT-2 with random weights as a run, over characters."""
    from lmlab.models import create
    from lmlab.runs.model_files import model_tensors, write_config
    from lmlab.runs.storage import write_tensors
    from lmlab.tokenizers import train

    tokenizer = train("characters", ["abcdefghijklmnopqrstuvwxyz .,"])
    settings = {"width": 64 * heads, "heads": heads, "layers": layers, "window": tokens + 1}
    model = create("gpt2", {**settings, "vocabulary": tokenizer.vocabulary})
    folder.mkdir(parents=True)
    tokenizer.save(folder / "tokenizer.json")
    write_config(folder, "gpt2", model.config.model_dump())
    write_tensors(folder / "model.safetensors", model_tensors(model))


def first_paint(browser: Any, address: str) -> float:
    page = browser.new_page()
    page.goto(address)
    page.wait_for_selector("article")
    found = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.close()
    return float(found)


def keystroke(browser: Any, address: str, runs: list[str]) -> float:
    page = browser.new_page()
    query = "&".join(f"run={run}" for run in runs)
    page.goto(f"{address}#/next?{query}&text=Return a")
    page.wait_for_selector("article:not(.busy) .bar")
    times = []
    for letter in " new lis":
        page.evaluate(
            "() => { window.drawn = 0; new MutationObserver(() => { window.drawn = performance.now() })"
            ".observe(document.querySelector('.stage'), { childList: true }) }"
        )
        page.locator("textarea[name=text]").press("End")
        before = page.evaluate("() => performance.now()")
        page.keyboard.type(letter)
        page.wait_for_function("() => window.drawn > 0")
        times.append(page.evaluate("() => window.drawn") - before)
        page.wait_for_timeout(100)
    page.close()
    return statistics.median(times)


def copy_run(run_store: Path, name: str, place: int) -> str:
    """A copy of a run under another name, which the studio loads and lists as a run of its own."""
    shutil.copytree(run_store / name, run_store / f"copy{place}")
    return f"copy{place}"


def layers_of(browser: Any, address: str, run: str, tokens: int, layers: int) -> tuple[float, float]:
    """The median of a further layer, and the longest stand-still of all, in milliseconds."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    text = ("the cat sat on the mat. " * (tokens // 24 + 1))[: tokens - 1]
    page.goto(f"{address}#/attention?run={run}&text={text}")
    page.wait_for_selector("article:not(.busy) button.head", timeout=120_000)
    page.evaluate(STILL)
    times = []
    for layer in range(1, layers):
        began = time.perf_counter()
        page.select_option("select[name=layer]", str(layer))
        page.wait_for_selector("article.busy", state="detached", timeout=60_000)
        times.append(1000 * (time.perf_counter() - began))
    longest = page.evaluate("() => window.longest")
    page.close()
    return statistics.median(times), float(longest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--attention", default="512x12x12", help="tokens x layers x heads")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    tokens, layers, heads = map(int, options.attention.split("x"))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run_store = Path(folder) / "runs"
        shutil.copytree(options.runs, run_store)
        large_model(run_store / "large", tokens, layers, heads)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        cold = []
        for _ in range(options.repeats):
            with studio(run_store) as address:
                cold.append(first_paint(browser, address))
        print(f"first paint, just started: {statistics.median(cold):.0f} ms")
        with studio(run_store) as address:
            named = [path.parent.relative_to(run_store).as_posix() for path in sorted(run_store.rglob("config.json"))]
            words = [
                name
                for name in named
                if json.loads((run_store / name / "config.json").read_text())["kind"] in ("ngram", "lstm", "gpt2")
                and name != "large"
            ]
            keystroke(browser, address, words[:3])
            warm = [first_paint(browser, address) for _ in range(options.repeats)]
            print(f"first paint, warm: {statistics.median(warm):.0f} ms")
            ten = [*words[:3], *(copy_run(run_store, words[place % len(words)], place) for place in range(7))]
            keystroke(browser, address, ten)
            for chosen in (words[:1], words[:3], ten):
                times = [keystroke(browser, address, chosen) for _ in range(options.repeats)]
                print(f"keystroke, {len(chosen)} runs: {statistics.median(times):.0f} ms")
            found, longest = layers_of(browser, address, "large", tokens, layers)
            print(f"attention {options.attention}: {found:.0f} ms a layer, longest stand-still {longest:.0f} ms")
        browser.close()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
