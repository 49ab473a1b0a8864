"""Errors of ours are 500 with a traceback in the log, those of clients 400; JSON is valid whatever a model computes."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import serving
import torch
from serving import Running

from lmlab.decoding.filler import MaskFiller
from lmlab.language_model import LanguageModel
from lmlab.messages import printable
from lmlab.models import load_class
from lmlab.serve.engine.engine import Engine
from lmlab.tasks.predicting import Predictor
from patience import wait_until
from toy_tasks import toy_heads, toy_model, toy_task, toy_tokenizer

KINDS = ["lstm", "gpt2"]


def poison(model: Any) -> Any:
    """A copy in which every weight is NaN."""
    broken = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    return broken


def poisoned_run(lm: Any) -> Any:
    return replace(lm, model=poison(lm.model))


def broken_classifier() -> LanguageModel:
    tokenizer = toy_tokenizer()
    model, task = toy_model("gpt2", tokenizer), toy_task("classification", load_class("gpt2"), tokenizer=tokenizer)
    heads = toy_heads(task, model)
    predictor = Predictor(task=task, model=poison(model), heads=heads)  # type: ignore[arg-type]
    return LanguageModel(model=poison(model), tokenizer=tokenizer, own_predictor=predictor)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def poisoned(models: Any) -> Iterator[Running]:
    """A server over runs whose weights are NaN, and one that is well."""
    runs: dict[str, Any] = {name: poisoned_run(models[name]) for name in (*KINDS, "bert", "translator")}
    runs["stars"] = broken_classifier()
    runs["ngram"] = models["ngram"]
    with serving.serving(runs) as running:
        yield running


def strictly(text: str) -> Any:
    """JSON without NaN and Infinity, which Python's reader takes."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def ask(server: Running, path: str, **body: Any) -> httpx.Response:
    return serving.post(server.address + path, json=body)


REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0},
    "cut": {"top_p": 0.5, "top_k": 3, "min_p": 0.1},
    "penalties": {"repetition_penalty": 1.2, "frequency_penalty": 1},
    "logprobs": {"logprobs": 2},
    "echo": {"echo": True, "logprobs": 2, "max_tokens": 0},
    "prompt": {"prompt_logprobs": 1},
    "several": {"n": 2, "best_of": 3},
    "beams": {"use_beam_search": True, "n": 2},
    "beams with logprobs": {"use_beam_search": True, "n": 2, "logprobs": 1},
}


def check_500(answer: httpx.Response, caplog: pytest.LogCaptureFixture, says: str = "not numbers") -> None:
    error = strictly(answer.text)["error"]
    assert (answer.status_code, error["type"]) == (500, "server_error"), answer.text
    assert says in error["message"]
    wait_until(lambda: any("Traceback" in record.getMessage() for record in caplog.records))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", REQUESTS)
def test_nan_weights_are_our_error(poisoned: Running, caplog: Any, kind: str, body: str) -> None:
    asked = {"model": kind, "prompt": "the cat", "max_tokens": 4, **REQUESTS[body]}
    check_500(ask(poisoned, "/v1/completions", **asked), caplog)
    assert ask(poisoned, "/v1/completions", model="ngram", prompt="the").status_code == 200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [name for name in REQUESTS if "beams" not in name and name != "several"])
def test_a_stream_of_nan_weights_is_one_error_event(poisoned: Running, caplog: Any, kind: str, body: str) -> None:
    asked = {"model": kind, "prompt": "the cat", "max_tokens": 4, "stream": True, **REQUESTS[body]}
    lines = ask(poisoned, "/v1/completions", **asked).text.split("\n\n")
    events = [strictly(line.removeprefix("data: ")) for line in lines if line]
    assert "not numbers" in events[-1]["error"]["message"]
    assert events[-1]["error"]["type"] == "server_error"
    wait_until(lambda: any("Traceback" in record.getMessage() for record in caplog.records))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "gpt2", "input": ["the cat"]}),
        ("/v1/embeddings", {"model": "lstm", "input": "the cat", "encoding_format": "base64"}),
        ("/v1/fill", {"model": "bert", "text": "the [MASK] sat"}),
        ("/v1/fill", {"model": "bert", "text": "the [MASK] [MASK]", "jointly": True}),
        ("/v1/translate", {"model": "translator", "input": "the cat"}),
        ("/v1/predict", {"model": "stars", "input": "the cat"}),
    ],
)
def test_nan_weights_are_our_error_in_other_routes(poisoned: Running, caplog: Any, path: str, body: Any) -> None:
    check_500(ask(poisoned, path, **body), caplog)


def test_internal_value_errors_are_500_with_a_traceback(
    models: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **settings: Any) -> Any:
        raise ValueError("internal, with /secret/path and \x1b[31m red")

    with serving.serving({"gpt2": models["gpt2"], "bert": models["bert"]}) as server:
        monkeypatch.setattr(Engine, "reserve", broken)
        answer = ask(server, "/v1/completions", model="gpt2", prompt="the")
        check_500(answer, caplog, says="unexpected ValueError")
        assert "secret" not in answer.text, "what it says may tell of the machine"
        caplog.clear()
        monkeypatch.setattr(MaskFiller, "fill", broken)
        check_500(ask(server, "/v1/fill", model="bert", text="a [MASK]"), caplog, says="unexpected ValueError")
        (logged,) = [record.getMessage() for record in caplog.records if "Traceback" in record.getMessage()]
        assert "/secret/path and \\x1b[31m red" in logged
        assert "\x1b" not in logged


def test_a_step_that_fails_is_logged_and_answered_as_500(
    models: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving.serving({"gpt2": models["gpt2"]}) as server:

        def broken() -> None:
            raise ValueError("a step")

        monkeypatch.setattr(server.runs.served["gpt2"].engine._batch, "_step", broken)
        check_500(ask(server, "/v1/completions", prompt="the", max_tokens=9), caplog, says="unexpected ValueError")
        assert serving.get(f"{server.address}/health").status_code == 503


WRONG = [
    ("/v1/fill", {"model": "bert", "text": "no blank"}, "text"),
    ("/v1/fill", {"model": "bert", "text": "[MASK]" + " the cat" * 100}, "text"),
    ("/v1/embeddings", {"model": "bert", "input": "the cat " * 100}, "input"),
    ("/v1/embeddings", {"model": "gpt2", "input": "a", "layers": "seventh heaven"}, "layers"),
    ("/v1/embeddings", {"model": "gpt2", "input": "a", "layers": 77}, "layers"),
    ("/v1/embeddings", {"model": "lstm", "input": "a", "layers": "mix:0.5,0.1,0.2,0.2"}, "layers"),
    ("/v1/embeddings", {"model": "gpt2", "input": "a", "pool": "cls"}, "pool"),
    ("/v1/translate", {"model": "translator", "input": "the cat " * 2000}, "input"),
    ("/tokenize", {"model": "gpt2", "prompt": "\ud800"}, "prompt"),
    ("/detokenize", {"model": "gpt2", "tokens": [10**9]}, "tokens"),
    ("/v1/completions", {"model": "gpt2", "prompt": [10**9]}, "prompt"),
]


@pytest.mark.parametrize(("path", "body", "param"), WRONG)
def test_errors_of_clients_are_400_and_name_the_field(
    server: Running, caplog: Any, path: str, body: Any, param: str
) -> None:
    content = json.dumps(body)
    answer = serving.post(server.address + path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("sign", [*map(chr, range(32)), "\x7f", *map(chr, range(0x80, 0xA0)), "\u202e", "\ud800"])
def test_no_control_character_reaches_a_terminal(sign: str) -> None:
    shown = printable(f"run {sign}[31m name")
    assert (sign in shown) == (sign in "\n\t")
    assert printable("naïve café 😀 – 日本") == "naïve café 😀 – 日本"


def test_errors_of_requests_wait_for_nobody(poisoned: Running) -> None:
    """After all of these errors the engines take texts still, and no row is held."""
    for name in KINDS:
        engine = poisoned.runs.served[name].engine
        serving.settle(engine)
        assert engine.failed is None
        assert engine.load == 0
