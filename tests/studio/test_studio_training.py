"""Training from the browser: the command that it stands for, who may start it, and that stopping it saves."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmlab.cli.verbs import VERBS, load_command
from lmlab.studio.works import TRAINED, Wanted, Works
from patience import PATIENCE, wait_until

KNOWS = {"authorization": "Bearer secret-token"}


def make(tmp_path: Path, **wanted: Any) -> str:
    (tmp_path / "runs").mkdir(exist_ok=True)
    (tmp_path / "a book.txt").write_text("some text")
    return Works(tmp_path / "runs", [tmp_path / "a book.txt"]).command(Wanted(**wanted))


def test_the_command_is_one_that_can_be_typed(tmp_path: Path) -> None:
    for wanted in ({"models": ["gpt2"], "text": 1, "seed": 3}, {"what": "compare", "models": ["ngram", "lstm"]}):
        program, verb, *arguments = shlex.split(make(tmp_path, **wanted))
        assert program == "lmlab"
        load_command(VERBS[verb]).make_context(verb, arguments)  # typer understands it
    assert "'a book.txt'" in make(tmp_path, models=["gpt2"], text=1)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"name": "../out"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": ".hidden"}, "name"),
        ({"name": "-o"}, "name"),
        ({"budget": "30s; rm -r x"}, "budget"),
        ({"tokenizer": "/etc/passwd"}, "tokenizer"),
        ({"models": ["gpt3"]}, "gpt2"),
        ({"models": ["transformer"]}, "pairs of texts"),
        ({"models": []}, "models"),
        ({"models": ["lstm", "gpt2"]}, "train one, or compare several"),
        ({"text": 7}, "text = 7"),
        ({"size": "huge"}, "size"),
    ],
)
def test_what_cannot_be_started_is_told(client_of: Callable[..., Any], wanted: dict[str, Any], told: str) -> None:
    client = client_of()
    for path in ("works", "works/command"):
        response = client.post(f"/studio/api/{path}", json=wanted, headers=KNOWS)
        assert response.status_code == 400
        assert told in response.json()["error"]["message"]
    assert client.get("/studio/api/works").json()["works"] == []


@pytest.mark.parametrize("path", ["works", "works/stop"])
def test_only_who_knows_the_token_changes_something(client_of: Callable[..., Any], path: str) -> None:
    client = client_of()
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer "}):
        assert client.post(f"/studio/api/{path}", json={"number": 1}, headers=headers).status_code == 401
    other = {**KNOWS, "origin": "https://evil.example"}
    assert client.post(f"/studio/api/{path}", json={"number": 1}, headers=other).status_code == 403
    assert client.get("/studio/api/works").json()["models"] == list(TRAINED)


def test_a_name_that_is_taken_is_refused(client_of: Callable[..., Any]) -> None:
    response = client_of().post("/studio/api/works", json={"name": "bert"}, headers=KNOWS)
    assert response.status_code == 400
    assert "there is a bert already" in response.json()["error"]["message"]


def test_a_run_is_started_watched_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("The cat sat on the mat and looked at the dog.\n" * 200)
    works = Works(tmp_path, [tmp_path / "book.txt"])
    work = works.start(Wanted(name="mine", models=["rnn"], text=1, budget="20min", tokenizer="characters"))
    try:
        metrics = tmp_path / "mine" / "metrics.jsonl"
        wait_until(lambda: not work.running or (metrics.exists() and metrics.read_text()), says=work.tail)
        assert work.running, work.tail()
        with pytest.raises(ValueError, match="there is a mine already"):
            works.start(Wanted(name="mine"))
        work.stop()
        work.process.wait(PATIENCE)
    finally:
        works.close()
    assert (tmp_path / "mine" / "last").is_dir()  # it saved, so it can be resumed
    assert works.find(1) is work
    with pytest.raises(ValueError, match="there is no work 2"):
        works.find(2)
