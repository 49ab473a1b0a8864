"""One damaged run, or one hostile set, is refused alone; all else goes on."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lmlab.studio import sets
from lmlab.studio.app import make_app
from lmlab.studio.sets import check_size
from studio_texts import KNOWS, TOKEN

DEEP = "[" * 200_000 + "]" * 200_000
DAMAGES = {
    "deep config": ("config.json", '{"kind": "lstm", "model": ' + DEEP + "}"),
    "deep task": ("task.json", '{"kind": ' + DEEP + "}"),
    "deep recipe": ("recipe.json", DEEP),
    "less deep": ("config.json", '{"kind": "lstm", "model": ' + "[" * 600 + "]" * 600 + "}"),
    "no name": ("task.json", '{"kind": [["x"]]}'),
    "list": ("config.json", "[1, 2]"),
    "cut off": ("config.json", '{"kind": "lst'),
    "bytes": ("config.json", "\x00\x01\x02"),
    "long number": ("config.json", '{"kind": "lstm", "model": ' + "9" * 5000 + "}"),
    "cut off frame": ("frame.json", '{"text": ['),
    "large": ("config.json", '{"kind": "lstm", "model": "' + "x" * 2**22 + '"}'),
}
ODD = {
    "deep metrics": ("metrics.jsonl", DEEP + '\n{"valid_bits_per_byte": ' + "[" * 400 + "]" * 400 + "}\n"),
    "odd metrics": ("metrics.jsonl", '{"loss": [1], "cost": [], "parameters": [], "step": {}}\n{"loss": 1e999}\n'),
    "odd model": ("config.json", '{"kind": "lstm", "model": [], "version": {}}'),
    "odd lock": (".lock", '{"host": [], "pid": "x"}'),
}


@pytest.fixture
def runs(studio_runs: Path, tmp_path: Path) -> Path:
    for name in ("counts", "demo/lstm"):
        shutil.copytree(studio_runs / name, tmp_path / Path(name).name)
    return tmp_path


def client_for(folder: Path, **settings: Any) -> Any:
    from starlette.testclient import TestClient

    app: Any = make_app(folder, token=TOKEN, **settings)
    return TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False, headers=KNOWS)


@pytest.mark.parametrize("damage", [*DAMAGES, *ODD])
def test_a_damaged_run_is_listed_alone_as_unreadable(runs: Path, damage: str) -> None:
    name, content = {**DAMAGES, **ODD}[damage]
    (runs / "lstm" / name).write_text(content)
    client = client_for(runs)
    reported = client.get("/studio/api/runs")
    assert reported.status_code == 200
    listed = {run["name"]: run for run in reported.json()["runs"]}
    assert list(listed) == ["counts", "lstm"]
    assert listed["counts"]["status"] == "ready"
    assert (listed["lstm"]["status"] == "unreadable") == (damage in DAMAGES)
    assert damage not in DAMAGES or name in listed["lstm"]["why"]
    assert client.get("/studio/api/run", params={"run": "lstm"}).status_code == 200
    assert client.get("/studio/api/curves", params={"run": ["lstm", "counts"]}).status_code == 200
    assert client.get("/studio/api/task", params={"run": "lstm"}).status_code == 200
    assert "counts" in [card["id"] for card in client.get("/v1/models").json()["data"]]
    assert client.post("/studio/api/next", json={"runs": ["counts"], "text": "a"}).status_code == 200
    assert client.post("/studio/api/next", json={"runs": ["lstm"], "text": "a"}).status_code in (200, 400)
    with client.stream("GET", "/studio/api/runs") as response:
        json.loads(response.read())


@pytest.mark.parametrize("name", ["config.json", "frame.json", "tokenizer.json", "manifest.json", "task.json"])
def test_no_value_in_a_file_of_a_run_is_an_error_of_ours(studio_runs: Path, tmp_path: Path, name: str) -> None:
    """Each value in turn is something else: the run is loaded, or refused as its user's error."""
    shutil.copytree(studio_runs / "labels", tmp_path / "labels")
    if name != "manifest.json":
        (tmp_path / "labels" / "manifest.json").unlink()
    path = tmp_path / "labels" / name
    whole = json.loads(path.read_text())
    client = client_for(tmp_path)
    allowed = (200, 400, 404) if name == "config.json" else (200, 400)  # without a configuration it is no run
    for odd in (None, [], {"a": {}}, "../x", -1):
        for key in [None, *list(whole)[:8]]:
            path.write_text(json.dumps(odd if key is None else {**whole, key: odd}))
            os.utime(tmp_path / "labels" / "model.safetensors")  # so that it is loaded again
            response = client.post("/v1/predict", json={"model": "labels", "input": "a good film"})
            assert response.status_code in allowed, response.text
            assert str(tmp_path) not in response.text


def test_a_folder_with_another_config_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(DEEP)
    assert client_for(tmp_path).get("/studio/api/runs").json()["runs"] == []


def test_a_small_zip_that_unpacks_to_gigabytes_is_refused(runs: Path) -> None:
    (runs / "sets").mkdir()
    with zipfile.ZipFile(runs / "sets" / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", bytes(100 << 20))
    assert (runs / "sets" / "bomb.zip").stat().st_size < 300_000
    for body in ({"runs": ["counts"], "set": "bomb.zip"}, {"runs": ["counts"], "set": "bomb.zip", "limit": 10}):
        response = client_for(runs).post("/studio/api/minimal-pairs", json=body)
        assert response.status_code == 400
        assert "bomb.zip unpacks to more than" in response.text or "bomb.zip has more than" in response.text
        assert str(runs) not in response.text


@pytest.mark.parametrize("kind", ["lines", "packed lines", "link", "pipe"])
def test_sets_that_no_view_could_read_are_refused(runs: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(sets, "MOST_LINES", 1000)
    folder = runs / "sets" / "set"
    folder.mkdir(parents=True)
    many = b"a\tb\n" * 1001
    if kind == "lines":
        (folder / "pairs.tsv").write_bytes(many)
    elif kind == "packed lines":
        (folder / "pairs.tsv").write_bytes(gzip.compress(many))
    elif kind == "link":
        (folder / "pairs.tsv").symlink_to("/etc/passwd")
    else:
        os.mkfifo(folder / "pairs.tsv")
    for route in ("minimal-pairs", "bias/set"):
        response = client_for(runs).post(f"/studio/api/{route}", json={"runs": ["counts"], "set": "set"})
        assert response.status_code == 400, response.text
        assert "too many for a view" in response.text or "is a link or a pipe" in response.text


def test_ready_sets_of_the_literature_are_small_enough(shared_data: Any) -> None:
    check_size(shared_data("blimp") / "BLiMP.zip")
    check_size(shared_data("winogender"))
