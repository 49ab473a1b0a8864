"""A folder of tiny runs of every family, with names, texts and labels that a page must not take for HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from studio_page import CHROMIUM, Studio
from studio_process import open_studio
from studio_texts import HARM, KNOWS, TOKEN, WEIRD, book


@pytest.fixture(scope="session")
def studio_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: counts, demo/lstm, demo/gpt2, bert, en-de, labels, and one with a harmful name."""
    from lmlab.runs.recipe import make_recipe
    from lmlab.runs.run import start
    from lmlab.transfer.finetune import finetune

    data = tmp_path_factory.mktemp("texts")
    (data / "book.txt").write_text(book(), encoding="utf-8")
    (data / "en").write_text("".join(f"somebody saw day {n}\n" for n in range(60)))
    (data / "de").write_text("".join(f"jemand sah Tag {n}\n" for n in range(60)))
    rows = [f"a {word} film {n}\t{label}" for word, label in (("good", HARM), ("bad", "bad")) for n in range(12)]
    (data / "films.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    runs = tmp_path_factory.mktemp("runs")

    def train(name: str, kind: str, tokenizer: str, *, data_: dict[str, Any] | None = None, **model: Any) -> None:
        settings = {"budget": "6steps", "batch": 4, "log_every": 2, "evaluations": 2}
        values: dict[str, Any] = {
            "data": data_ or {"text": [str(data / "book.txt")], "documents": "lines"},
            "tokenizer": {"spec": tokenizer},
            "model": {"kind": kind, "size": "tiny" if kind != "ngram" else None, **model},
            "train": settings if kind != "ngram" else {},
        }
        if kind == "ngram":
            del values["model"]["size"]
        start(make_recipe(values), runs / name)

    small = {"width": 32, "heads": 2, "layers": 2, "window": 64}
    train("counts", "ngram", "bpe:300")
    train("demo/lstm", "lstm", "bpe:300", width=32, hidden=32)
    train("demo/gpt2", "gpt2", "bpe:300", **small)
    train(WEIRD, "lstm", "characters", width=16, hidden=16)
    train("bert", "bert", "bpe:300", **small)
    pairs = {"kind": "pairs", "source": [str(data / "en")], "target": [str(data / "de")]}
    train("en-de", "transformer", "bpe:300", data_=pairs, width=32, heads=2, layers=1)
    finetune(runs / "bert", data / "films.tsv", output=runs / "labels", controls=False, epochs=1)
    return runs


@pytest.fixture(scope="session")
def client_of(studio_runs: Path) -> Callable[..., Any]:
    """A client of the studio, which has its token unless it is made with `knows={}`."""
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from lmlab.studio.app import make_app

    def make(*, knows: dict[str, str] = KNOWS, token: str | None = TOKEN, **settings: Any) -> Any:
        app: Any = make_app(studio_runs, token=token, **settings)
        return TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False, headers=knows)

    return make


@pytest.fixture(scope="module")
def address(studio_runs: Path) -> Iterator[str]:
    """Where a studio over the tiny runs answers."""
    with open_studio(studio_runs) as found:
        yield found.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def studio(browser: Any, address: str) -> Iterator[Studio]:
    opened = Studio(browser, address)
    yield opened
    opened.page.close()
