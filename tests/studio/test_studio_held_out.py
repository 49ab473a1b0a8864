"""Held-out text comes from the cache or from allowed folders, whatever a run's recipe names."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lmlab.runs.held_out import held_out
from lmlab.studio.held_out_access import LETTERS, HeldOutReader
from lmlab.studio.run_store import RunStore

SECRET = "the quick secret word of the test"


def copy_run(studio_runs: Path, target: Path, **data: Any) -> Path:
    """A copy of a run without its manifest, whose recipe names other data; None takes a key away."""
    shutil.copytree(studio_runs / "demo" / "lstm", target)
    (target / "manifest.json").unlink()
    recipe = json.loads((target / "recipe.json").read_text())
    for name, value in data.items():
        group = recipe if name.endswith("_sha256") else recipe["data"]
        group[name] = value
        if value is None:
            del group[name]
    (target / "recipe.json").write_text(json.dumps(recipe))
    return target


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def book_of(studio_runs: Path) -> Path:
    (text,) = json.loads((studio_runs / "demo" / "lstm" / "recipe.json").read_text())["data"]["text"]
    return Path(text)


@pytest.mark.parametrize(
    "kind", ["file", "link", "folder with a link", "linked folder", "glob", "pipe", "device", "home", "variable", "up"]
)
@pytest.mark.parametrize("sha256", ["kept", "missing", "of another type"])
def test_a_recipe_cannot_name_a_file_to_be_read(
    studio_runs: Path, tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sha256: str
) -> None:
    from starlette.testclient import TestClient

    from lmlab.studio.app import make_app

    outside, runs = tmp_path / "outside", tmp_path / "runs"
    outside.mkdir()
    runs.mkdir()
    secret = outside / "secret.txt"
    secret.write_text(f"{SECRET}\n" * 400)
    (runs / "link.txt").symlink_to(secret)
    (runs / "folder").mkdir()
    (runs / "folder" / "link.txt").symlink_to(secret)
    (runs / "linked").mkdir()
    (runs / "linked" / "inner").symlink_to(outside)
    os.mkfifo(runs / "pipe")
    monkeypatch.setenv("HOME", str(outside))
    monkeypatch.setenv("SECRET_PLACE", str(secret))
    named = {
        "file": str(secret),
        "link": str(runs / "link.txt"),
        "folder with a link": str(runs / "folder"),
        "linked folder": str(runs / "linked"),
        "glob": f"{outside}/*.txt",
        "pipe": str(runs / "pipe"),
        "device": "/dev/zero",
        "home": "~/secret.txt",
        "variable": "$SECRET_PLACE",
        "up": f"{runs}/../outside/secret.txt",
    }[kind]
    hashes = {"kept": {}, "missing": {"text_sha256": None}, "of another type": {"text_sha256": ["../x"]}}[sha256]
    copy_run(studio_runs, runs / "copied", text=[named], **hashes)
    app: Any = make_app(runs, token=None)
    client = TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False)
    for route, body in (
        ("senses", {"runs": ["copied"], "word": "secret"}),
        ("cells/property", {"run": "copied", "property": "pattern", "pattern": "secret"}),
    ):
        response = client.post(f"/studio/api/{route}", json=body)
        assert response.status_code == 400, response.text
        assert SECRET not in response.text
        assert str(tmp_path) not in response.text
        assert "held-out text" in response.text or "which text it learnt from" in response.text
    assert not list((empty_cache).rglob("*.txt"))  # nothing was prepared of it either


def test_text_with_another_hash_is_not_shown(studio_runs: Path, tmp_path: Path, empty_cache: Path) -> None:
    (tmp_path / "book.txt").write_text(f"{SECRET}\n" * 400)
    copy_run(studio_runs, tmp_path / "copied", text=[str(tmp_path / "book.txt")])
    with pytest.raises(ValueError, match="another SHA-256"):
        HeldOutReader(RunStore(tmp_path)).text("copied")


def test_held_out_text_is_that_of_the_library(studio_runs: Path) -> None:
    found = HeldOutReader(RunStore(studio_runs)).text("demo/lstm")
    assert found == "\n".join(held_out(studio_runs / "demo" / "lstm"))[:LETTERS]
    assert len(found) > 100


def test_the_cache_has_it_when_the_file_is_gone(studio_runs: Path, tmp_path: Path) -> None:
    expected = "\n".join(held_out(studio_runs / "demo" / "lstm"))[:LETTERS]
    copy_run(studio_runs, tmp_path / "copied", text=[str(tmp_path / "gone.txt")])
    assert HeldOutReader(RunStore(tmp_path)).text("copied") == expected


def test_texts_in_several_languages_are_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmlab.data.corpora.held_out_cache import read_cached
    from lmlab.data.corpora.languages import prepare_languages

    texts = {}
    for name, word in (("en", "day"), ("de", "Tag")):
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(f"{word} number {n} of the year\n" for n in range(400)))
        texts[name] = [str(path)]
    cache = tmp_path / "cache"
    corpus = prepare_languages(texts, tokenizer="characters", alpha=0.7, documents="lines", cache=cache)
    assert corpus.test is not None
    found = read_cached(corpus.text_fingerprint, cache=cache)
    assert found is not None
    assert list(found) == list(corpus.test.texts())
    for wrong in ("0" * 64, "../corpora", "", corpus.text_fingerprint.upper()):
        assert read_cached(wrong, cache=cache) is None


def test_data_in_an_allowed_folder_is_read(studio_runs: Path, tmp_path: Path, empty_cache: Path) -> None:
    book = book_of(studio_runs)
    data, runs = tmp_path / "data", tmp_path / "runs"
    for folder in (data, runs):
        folder.mkdir()
    shutil.copy(book, data)
    copy_run(studio_runs, runs / "copied", text=[str(data / book.name)])
    with pytest.raises(ValueError, match="--allow-data"):
        HeldOutReader(RunStore(runs)).text("copied")
    found = HeldOutReader(RunStore(runs), [data]).text("copied")
    shutil.rmtree(empty_cache)
    assert found == HeldOutReader(RunStore(runs), [data / book.name]).text("copied")
    assert found == "\n".join(held_out(runs / "copied"))[:LETTERS]
    with pytest.raises(ValueError, match="does not exist"):
        HeldOutReader(RunStore(runs), [tmp_path / "nowhere"])


def test_a_glob_and_a_folder_in_an_allowed_folder_are_read(
    studio_runs: Path, tmp_path: Path, empty_cache: Path
) -> None:
    shutil.copytree(book_of(studio_runs).parent, tmp_path / "data", ignore=lambda _, names: set(names) - {"book.txt"})
    for name, text in (("glob", str(tmp_path / "data" / "*.txt")), ("folder", str(tmp_path / "data"))):
        copy_run(studio_runs, tmp_path / name, text=[text])
        assert len(HeldOutReader(RunStore(tmp_path)).text(name)) > 100


def test_the_command_line_does_not_hang_on_a_pipe(studio_runs: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    run = copy_run(studio_runs, tmp_path / "copied", text=[str(tmp_path / "pipe")])
    with pytest.raises(ValueError, match="pipe or a device"):
        held_out(run)
    (run / "recipe.json").unlink()
    os.mkfifo(run / "recipe.json")
    with pytest.raises(ValueError, match="not a regular file"):
        held_out(run)


def test_the_command_line_checks_the_hash(studio_runs: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(f"{SECRET}\n" * 400)
    run = copy_run(studio_runs, tmp_path / "copied", text=[str(tmp_path / "book.txt")])
    with pytest.raises(ValueError, match="SHA-256"):
        held_out(run)


def test_translators_have_no_plain_text(studio_runs: Path) -> None:
    with pytest.raises(ValueError, match="no plain text that was held out"):
        HeldOutReader(RunStore(studio_runs)).text("en-de")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "frame.json", "last"])
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_files_that_lead_out_of_the_folder_are_not_loaded(
    studio_runs: Path, tmp_path: Path, name: str, what: str
) -> None:
    runs, away = tmp_path / "runs", tmp_path / "away"
    runs.mkdir()
    shutil.copytree(studio_runs / "demo" / "lstm", runs / "copied")
    shutil.move(runs / "copied" / name, away)
    if what == "link":
        (runs / "copied" / name).symlink_to(away)
    else:
        os.mkfifo(runs / "copied" / name)
    run_store = RunStore(runs)
    with (
        pytest.raises(ValueError, match=r"leads out of the folder|there is no run|no weights yet") as reported,
        run_store.using("copied"),
    ):
        pass
    assert str(tmp_path) not in str(reported.value)
    if name == "model.safetensors":
        assert not run_store.summaries()[0]["weights"]


def test_links_within_the_folder_are_followed(studio_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(studio_runs / "demo" / "lstm", tmp_path / "copied")
    shutil.move(tmp_path / "copied" / "model.safetensors", tmp_path / "weights")
    (tmp_path / "copied" / "model.safetensors").symlink_to(tmp_path / "weights")
    with RunStore(tmp_path).using("copied") as model:
        assert model.path == tmp_path / "copied"
