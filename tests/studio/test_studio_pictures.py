"""The studio's view of pictures: its route, its limits, and attention over a picture in the browser."""

from __future__ import annotations

import base64
import io
import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmlab
from lmlab.analysis.pictures.attention import look
from lmlab.runs.held_out import held_out_pictures
from patience import PATIENCE
from studio_process import open_studio
from studio_texts import KNOWS, TOKEN

Image = pytest.importorskip("PIL.Image")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PIXELS = np.random.default_rng(0).integers(0, 256, (8, 12, 3)).astype(np.uint8)


def encode(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


PNG = encode(PIXELS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    for number in range(20):
        path = home / "pictures" / ("odd" if number % 2 else "even") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(np.random.default_rng(number).integers(0, 256, (8, 12, 3)).astype(np.uint8)))
    settings = {"model.width": 8, "model.heads": 2, "model.layers": 2, "model.patch": 4, "train.batch": 4}
    lmlab.train("vit", home / "pictures", output=home / "runs" / "eye", budget="2steps", settings=settings)
    names = [path.relative_to(home) for path in sorted((home / "pictures").rglob("*.png"))]
    rows = [f"{name}\ta picture of {name.parent.name} number {name.stem}" for name in names]
    (home / "captions.tsv").write_text("\n".join(["picture\tcaption", *rows]))
    both = {**settings, "model.text_width": 8, "model.text_heads": 2, "model.text_layers": 1, "model.space": 8}
    lmlab.train(
        "clip", home / "captions.tsv", output=home / "runs" / "both", tokenizer="words", budget="2steps", settings=both
    )
    return home / "runs"


@pytest.fixture(scope="module")
def client(runs: Path) -> Any:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from lmlab.studio.app import make_app

    app: Any = make_app(runs, token=TOKEN, allowed=[runs.parent])
    return TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False, headers=KNOWS)


def ask(client: Any, content: bytes, **changes: Any) -> Any:
    body = {"run": "eye", "picture": base64.b64encode(content).decode(), "name": "a.png", **changes}
    return client.post("/studio/api/pictures", json=body)


@pytest.mark.parametrize("patch", [-1, 4])
def test_a_picture_is_classified_and_its_attention_sent(client: Any, runs: Path, patch: int) -> None:
    found = ask(client, PNG, patch=patch).json()
    expected = look(lmlab.load(runs / "eye"), PIXELS)
    assert found["grid"] == [2, 3]
    np.testing.assert_allclose(found["weights"], expected.weights[:, :, 1 + patch, 1:], atol=1e-6)
    np.testing.assert_allclose(found["rollout"], expected.rollout()[1 + patch, 1:], atol=1e-6)
    assert {each["label"] for each in found["classes"]} == {"even", "odd"}
    assert found["picture"].startswith("data:image/png;base64,")
    assert client.get("/studio/api/runs").json()["runs"][0]["pictures"] is True


def test_held_out_pictures_are_offered_and_looked_at(client: Any, runs: Path) -> None:
    found = client.post("/studio/api/pictures/examples", json={"run": "eye"}).json()
    split = held_out_pictures(runs / "eye")
    assert found["pictures"] == len(found["examples"]) == split.size == 2
    assert [each["text"] for each in found["examples"]] == list(split.labels)
    shown = client.post("/studio/api/pictures", json={"run": "eye", "example": 1}).json()
    expected = look(lmlab.load(runs / "eye"), split.picture(1).pixels)
    np.testing.assert_allclose(shown["rollout"], expected.rollout()[0, 1:], atol=1e-6)
    refused = client.post("/studio/api/pictures", json={"run": "eye", "example": 2})
    assert refused.status_code == 400
    assert "there are 2 held-out pictures" in refused.json()["error"]["message"]


def test_labels_and_search_of_a_model_of_pictures_and_texts(client: Any, runs: Path) -> None:
    model, split = lmlab.load(runs / "both"), held_out_pictures(runs / "both")
    body = {"run": "both", "example": 0, "labels": ["odd", "even", "mouse"], "template": "a picture of {}"}
    found = client.post("/studio/api/pictures", json=body).json()
    vectors = model.matcher.embed_pixels([split.picture(0).pixels])
    expected = model.matcher.classify(vectors, body["labels"], [body["template"]])
    assert [each["label"] for each in found["classes"]] == [label for label, _ in expected.ranked(0)]
    assert found["unknown"] == ["mouse"]
    found = client.post("/studio/api/pictures/find", json={"run": "both", "text": "a picture of odd"}).json()
    cosines = model.matcher.embed_pixels(split.pixels) @ model.matcher.embed_texts(["a picture of odd"])[0]
    assert [each["cosine"] for each in found["hits"]] == pytest.approx(sorted(cosines.tolist(), reverse=True), abs=1e-5)
    assert found["searched"] == len(split.pixels)
    assert client.post("/studio/api/pictures/find", json={"run": "both", "text": " "}).status_code == 400
    assert client.post("/studio/api/pictures/find", json={"run": "eye", "text": "a"}).status_code == 400


def test_pictures_outside_of_the_allowed_folders_are_not_shown(runs: Path, tmp_path: Path) -> None:
    """Neither where the recipe names a folder elsewhere, nor where a table in the folder names a file elsewhere."""
    from lmlab.studio.held_out_access import HeldOutReader
    from lmlab.studio.run_store import RunStore

    with pytest.raises(ValueError, match="--allow-data"):
        HeldOutReader(RunStore(runs)).pictures("eye")
    shutil.copytree(runs / "both", tmp_path / "runs" / "both")
    (tmp_path / "runs" / "both" / "manifest.json").unlink()
    table = tmp_path / "runs" / "captions.tsv"
    rows = [f"{path}\ta picture" for path in sorted((runs.parent / "pictures").rglob("*.png"))]
    table.write_text("\n".join(["picture\tcaption", *rows]))
    recipe = json.loads((tmp_path / "runs" / "both" / "recipe.json").read_text())
    recipe["data"]["captions"] = [str(table)]
    (tmp_path / "runs" / "both" / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(ValueError, match="outside of the folders"):
        HeldOutReader(RunStore(tmp_path / "runs")).pictures("both")


def bomb() -> bytes:
    """A PNG file of a few bytes whose header promises a picture of 100,000 × 100,000 pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99)))


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"", {}, "a.png is empty"),
        (PNG[:60], {}, "a.png cannot be read"),
        (b"<svg/>", {"name": "<b>\x1b[0m"}, "is not a picture"),
        (bomb(), {}, "pixels"),
        (PNG, {"picture": "!!"}, "in base64"),
        (PNG, {"labels": ["cat", "dog"]}, "cannot compare pictures with texts"),
        (PNG, {"patch": 6}, "there are 6, from 0 on"),
        (PNG, {"run": "none"}, "none"),
    ],
)
def test_bad_pictures(client: Any, content: bytes, changes: dict[str, Any], message: str) -> None:
    found = ask(client, content, **changes)
    assert found.status_code in (400, 404)
    text = found.json()["error"]["message"]
    assert message in text
    assert "\x1b" not in text


def test_a_picture_that_is_too_large_is_refused(client: Any) -> None:
    assert ask(client, bytes(9 << 20)).status_code == 413


def test_attention_is_drawn_over_the_picture(runs: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here (make test-browser installs it)")
    sync_api = pytest.importorskip("playwright.sync_api")
    wrong: list[str] = []
    with open_studio(runs, "--allow-data", str(runs.parent)) as studio, sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(f"{studio.address}?token={TOKEN}")
        page.goto(f"{studio.address}#/pictures")
        page.locator("input[type=file]").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": PNG})
        page.wait_for_selector(".stage .heads svg")
        assert page.locator(".stage .heads svg").count() == 2 + 2 * 2
        page.locator(".stage .heads svg").nth(1).locator("rect").nth(4).click()
        page.wait_for_selector("text=Rollout from patch 4")
        page.goto(f"{studio.address}#/pictures?run=eye&example=0")
        page.wait_for_selector("text=Rollout from [CLS]")
        assert page.locator(".controls .thumbnails, .controls .empty").count() >= 1
        chromium.close()
    assert wrong == []
