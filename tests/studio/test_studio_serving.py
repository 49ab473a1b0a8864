"""The studio's port speaks the API of `lmlab serve` for every run of the folder, each loaded when it is asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import lmlab
import lmlab.studio.run_store
from lmlab.serve.engine.engine import ClosedError
from lmlab.serve.errors import NotANumberError
from lmlab.serve.served import Limits, serve_run
from lmlab.studio.app import make_app
from lmlab.studio.run_store import RunStore
from lmlab.studio.serving import StoredRuns
from lmlab.studio.workers import Workers
from studio_texts import KNOWS, WEIRD
from tolerances import of_blocks

TEXT = "The cat number 7 sat"


@pytest.fixture(scope="module")
def client(client_of: Callable[..., Any]) -> Any:
    return client_of()


def complete(client: Any, **body: Any) -> Any:
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response


def test_every_run_with_weights_is_listed_and_none_is_loaded(studio_runs: Path) -> None:
    run_store = RunStore(studio_runs)
    runs = StoredRuns(run_store=run_store, limits=Limits())
    cards = {card["id"]: card for card in runs.cards()}
    assert set(cards) == set(run_store.paths())
    assert runs.served == {}
    for name, card in cards.items():
        loaded = serve_run(name, lmlab.load(studio_runs / name), limits=Limits())
        reported = loaded.card()
        loaded.engine.close()
        assert {key: card[key] for key in ("kind", "max_model_len", "object")} == {
            key: reported[key] for key in ("kind", "max_model_len", "object")
        }
        assert set(card["abilities"]) <= set(reported["abilities"])


def test_the_studio_begins_without_torch() -> None:
    code = "import sys, lmlab.studio.app; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize("run", ["counts", "demo/lstm", "demo/gpt2", WEIRD])
def test_what_it_says_of_a_text_is_the_score(client: Any, studio_runs: Path, run: str) -> None:
    found = complete(client, model=run, prompt=TEXT, max_tokens=0, echo=True, logprobs=0).json()
    assert found["model"] == run
    nats = lmlab.load(studio_runs / run).score(TEXT).token_nats[0]
    reported = [-each for each in found["choices"][0]["logprobs"]["token_logprobs"]]
    assert reported == pytest.approx(nats.tolist(), abs=10 * of_blocks(2, width=32))


def test_a_stream_tells_what_the_whole_answer_tells(client: Any) -> None:
    body = {"model": "demo/gpt2", "prompt": TEXT, "max_tokens": 9, "n": 3, "seed": 4, "logprobs": 5}
    whole = complete(client, **body).json()["choices"]
    lines = [line for line in complete(client, **body, stream=True).text.split("\n") if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    texts = ["", "", ""]
    for line in lines:
        for choice in json.loads(line[len("data: ") :])["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in whole]


def test_other_roles_are_there(client: Any) -> None:
    filled = client.post("/v1/fill", json={"model": "bert", "text": "The cat [MASK] here."}).json()
    assert len(filled["candidates"]) == 1
    assert client.get("/v1/models/demo/lstm").json()["id"] == "demo/lstm"
    assert client.post("/tokenize", json={"model": "counts", "prompt": TEXT}).json()["count"] > 0
    assert "lmlab:generation_tokens_total" in client.get("/metrics").text
    assert "/v1/completions" in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    ("body", "status", "reported"),
    [
        ({"model": "../secret", "prompt": "a"}, 404, "does not exist; there is: bert, counts"),
        ({"model": "demo", "prompt": "a"}, 404, "does not exist"),
        ({"model": "bert", "prompt": "a"}, 400, "does not continue texts"),
        ({"model": "counts", "promt": "a"}, 400, "promt is not a known field"),
        ({"model": "counts", "temperature": 9}, 400, "temperature"),
    ],
)
def test_errors_are_those_of_the_server(client: Any, body: dict[str, Any], status: int, reported: str) -> None:
    response = client.post("/v1/completions", json=body)
    assert response.status_code == status
    assert reported in response.json()["error"]["message"]
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_both_parts_say_the_same_of_what_is_not_there(client: Any) -> None:
    for path in ("/nowhere", "/v1/nowhere", "/studio/api/nowhere"):
        response = client.get(path)
        assert response.status_code == 404
        assert path in response.json()["error"]["message"]
    unknown = client.post("/studio/api/next", json={"runs": ["counts"], "txt": "a"}).json()["error"]
    assert unknown["param"] == "txt"


def test_the_same_guard_stands_before_it(client_of: Callable[..., Any]) -> None:
    body = {"model": "counts", "prompt": "a"}
    away = client_of(knows={})
    assert away.post("/v1/completions", json=body).status_code == 401
    assert away.post("/v1/completions", json=body, headers={"authorization": "Bearer secret-token"}).status_code == 200
    here = client_of()
    assert here.post("/v1/completions", json=body, headers={"origin": "https://evil.example"}).status_code == 403
    assert here.get("/v1/models", headers={"host": "evil.example"}).status_code == 403


def test_engines_go_with_their_models(studio_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmlab.studio.run_store, "MOST_OPEN", 1)
    run_store = RunStore(studio_runs)
    runs = StoredRuns(run_store=run_store, limits=Limits())
    first = runs.find("counts")
    assert runs.find("counts") is first
    with run_store.using("counts") as model:
        assert first.lm is model  # one model in memory for the views and the engine
    other = runs.find("demo/lstm")
    assert list(runs.served) == ["demo/lstm"]
    first.engine.close()
    assert runs.find("counts") is not first
    assert list(runs.served) == ["counts"]
    for served in (other, *runs.served.values()):
        served.engine.close()


def test_an_engine_that_was_made_for_newer_weights_stays(studio_runs: Path) -> None:
    runs = StoredRuns(run_store=RunStore(studio_runs), limits=Limits())
    served = runs.find("counts")
    runs.end("counts", lmlab.load(studio_runs / "counts"))  # the model before it has left
    assert runs.find("counts") is served
    runs.end("counts", served.lm)
    assert runs.served == {}
    with pytest.raises(ClosedError, match="ask again"):
        served.engine.submit([])
    served.engine.close()


def test_without_a_name_it_is_the_first_run_and_without_runs_an_error(client: Any, tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    assert client.post("/tokenize", json={"prompt": "a"}).status_code == 200
    empty: Any = TestClient(make_app(tmp_path, token=None), base_url="http://127.0.0.1:8080")  # type: ignore[arg-type]
    response = empty.post("/v1/completions", json={"prompt": "a"})
    assert response.status_code == 404
    assert "no run with weights yet" in response.json()["error"]["message"]
    assert empty.get("/v1/models").json()["data"] == []


def test_views_and_the_engine_use_one_model_at_once(client_of: Callable[..., Any]) -> None:
    client, done, wrong = client_of(), threading.Event(), list[str]()
    other = type(client)(client.app, base_url="http://127.0.0.1:8080", headers=KNOWS)
    body = {"model": "demo/gpt2", "prompt": TEXT, "max_tokens": 50, "n": 4, "seed": 1}
    alone = [choice["text"] for choice in complete(client, **body).json()["choices"]]
    looked = threading.Event()

    def look() -> None:
        while not done.is_set():
            for view in ("attention", "cells"):
                response = other.post(f"/studio/api/{view}", json={"run": "demo/gpt2", "text": TEXT})
                wrong.extend([response.text] * (response.status_code != 200))
            response = other.post("/studio/api/attribution", json={"runs": ["demo/gpt2"], "text": TEXT})
            wrong.extend([response.text] * (response.status_code != 200))
            looked.set()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        while not looked.is_set() and thread.is_alive():
            complete(client, **body)
        assert [choice["text"] for choice in complete(client, **body).json()["choices"]] == alone
    finally:
        done.set()
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/tokenize", {"model": "demo/gpt2", "prompt": TEXT}),
        ("POST", "/detokenize", {"model": "demo/gpt2", "tokens": [1]}),
        ("GET", "/tokenizer_info?model=demo/gpt2", None),
        ("POST", "/v1/completions", {"model": "demo/gpt2", "prompt": TEXT}),
    ],
)
def test_a_model_that_must_be_loaded_passes_the_limit(
    client_of: Callable[..., Any], method: str, path: str, body: Any
) -> None:
    answer = client_of(workers=Workers(working=0, waiting=0)).request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")


def test_weights_that_are_not_numbers_are_named(studio_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(studio_runs / "demo" / "gpt2", tmp_path / "nan")
    weights = tmp_path / "nan" / "model.safetensors"
    save_file({name: tensor.fill_(float("nan")) for name, tensor in load_file(weights).items()}, weights)
    (tmp_path / "nan" / "manifest.json").unlink()
    with pytest.raises(NotANumberError, match="the weights of nan are not numbers"):
        RunStore(tmp_path).open("nan")
    with pytest.raises(ValueError, match="its weights are not numbers"):
        lmlab.load(tmp_path / "nan")
