"""The studio's view of speech: its route, its limits, and words that are highlighted while a recording plays."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmlab.data.readers.sounds import encode_wav
from patience import PATIENCE
from speech_runs import SOUND, write_run
from studio_process import open_studio
from studio_texts import KNOWS, TOKEN

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WAV = encode_wav(SOUND.samples, SOUND.rate)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "voice", multilingual=False)
    return folder


@pytest.fixture(scope="module")
def client(runs: Path) -> Any:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from lmlab.studio.app import make_app

    app: Any = make_app(runs, token=TOKEN)
    return TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False, headers=KNOWS)


def ask(client: Any, content: bytes, **changes: Any) -> Any:
    body = {"run": "voice", "recording": base64.b64encode(content).decode(), "name": "a.wav", **changes}
    return client.post("/studio/api/speech", json=body)


def test_a_recording_is_transcribed(client: Any, runs: Path) -> None:
    import lmlab

    found = ask(client, WAV)
    assert found.status_code == 200
    values = found.json()
    assert values["text"] == lmlab.load(runs / "voice").transcriber.transcribe(SOUND).text
    assert values["seconds"] == 2
    assert all(0 <= word["begin"] <= word["end"] <= 2 for word in values["words"])
    shape = values["spectrogram"]
    assert (shape["bands"], shape["columns"]) == (8, 200)
    assert len(base64.b64decode(shape["values"])) == 1600


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"", {}, "a.wav is empty"),
        (WAV[:200], {}, "it was cut off"),
        (WAV, {"recording": "!!"}, "in base64"),
        (WAV, {"name": "<b>\x1b[0m", "recording": ""}, "is empty"),
        (encode_wav(np.zeros(8000 * 601, np.float32), 8000), {}, "min long, and the studio reads 10"),
    ],
)
def test_bad_recordings(client: Any, content: bytes, changes: dict[str, Any], message: str) -> None:
    found = ask(client, content, **changes)
    assert found.status_code == 400
    text = found.json()["error"]["message"]
    assert message in text
    assert "\x1b" not in text


def test_only_recordings_may_be_large(client: Any) -> None:
    large = "a" * (2**20 + 1)
    assert client.post("/studio/api/attention", json={"run": "voice", "text": large}).status_code == 413
    assert ask(client, b"a" * (2**20 + 1)).status_code == 400
    assert ask(client, b"a" * (17 << 20)).status_code == 413


def test_spectrograms_are_shrunk() -> None:
    from lmlab.studio.views.speech import MOST_BANDS, MOST_COLUMNS, shrink

    values = np.zeros((128, 5000), np.float32)
    values[127, 4999] = 1
    found = shrink(values)
    assert found.shape == (MOST_BANDS, MOST_COLUMNS)
    assert found[-1, -1] == 1
    assert shrink(np.ones((8, 30), np.float32)).shape == (8, 30)


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here (make test-browser installs it)")
    with open_studio(runs) as found:
        yield found.address


def test_words_are_highlighted_while_it_plays(address: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    wrong: list[str] = []
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--autoplay-policy=no-user-gesture-required"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = chromium.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(f"{address}?token={TOKEN}")
        page.goto(f"{address}#/speech")
        page.locator("input[type=file]").set_input_files({"name": "a.wav", "mimeType": "audio/wav", "buffer": WAV})
        page.wait_for_selector(".stage .words button")
        page.wait_for_function("() => document.querySelector('audio').readyState >= 2")
        assert page.evaluate("Math.abs(document.querySelector('audio').duration - 2) < 0.01")
        said = "[...document.querySelectorAll('.words button')].findIndex(each => each.classList.contains('said'))"
        begins = page.evaluate("[...document.querySelectorAll('.words button')].map(each => parseFloat(each.title))")
        ends = page.evaluate(
            "[...document.querySelectorAll('.words button')].map(each => parseFloat(each.title.split('to ')[1]))"
        )
        place = max(range(len(begins)), key=lambda number: ends[number] - begins[number])
        page.evaluate(f"document.querySelector('audio').currentTime = {(begins[place] + ends[place]) / 2}")
        page.wait_for_function(f"() => {said} === {place}")
        page.locator(".words button").nth(place).click()
        page.wait_for_function(f"() => Math.abs(document.querySelector('audio').currentTime - {begins[place]}) < 0.02")
        chromium.close()
    assert wrong == []
