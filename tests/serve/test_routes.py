"""The other routes, each against what the library itself says."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import serving
from prometheus_client.parser import text_string_to_metric_families
from serving import Running

import lmlab
from lmlab.language_model import LanguageModel
from lmlab.models import load_class
from lmlab.runs.model_files import model_tensors, write_config
from lmlab.runs.storage import write_tensors
from lmlab.tasks.predicting import Predictor
from lmlab.tokenizers import train
from patience import PATIENCE, wait_until
from standins import TEXT
from toy_tasks import EXAMPLES, toy_heads, toy_model, toy_task, toy_tokenizer

openai = pytest.importorskip("openai")


def post(server: Running, path: str, **body: Any) -> Any:
    answer = serving.post(server.address + path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_models(server: Running) -> None:
    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == list(server.runs.served)
    assert client.models.retrieve("gpt2").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_embeddings(server: Running) -> None:
    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)
    for kind in ("gpt2", "lstm", "bert"):
        lm = server.lm(kind)
        texts = ["the cat sat", "", "a dog"]
        expected = lm.embed(texts, pool="mean")
        answer = client.embeddings.create(model=kind, input=texts)  # base64 by default
        np.testing.assert_allclose([each.embedding for each in answer.data], expected, atol=1e-5)
        numbers = client.embeddings.create(model=kind, input=texts, encoding_format="float", dimensions=3)
        np.testing.assert_allclose([each.embedding for each in numbers.data], expected[:, :3], atol=1e-5)
        ids = [lm.text_tokenizer.encode(text) for text in texts]
        by_ids = post(server, "/v1/embeddings", model=kind, input=ids, encoding_format="base64")
        raw = np.frombuffer(base64.b64decode(by_ids["data"][2]["embedding"]), "<f4")
        np.testing.assert_allclose(raw, expected[2], atol=1e-5)
        assert by_ids["usage"]["prompt_tokens"] == sum(map(len, ids))
    with pytest.raises(openai.BadRequestError, match="have 16"):
        client.embeddings.create(model="gpt2", input="a", dimensions=1000)
    with pytest.raises(openai.BadRequestError, match="no vectors"):
        client.embeddings.create(model="ngram", input="a")
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="bert", input="the cat " * 100)


def test_no_embeddings_of_an_empty_list(server: Running) -> None:
    answer = serving.post(f"{server.address}/v1/embeddings", json={"model": "gpt2", "input": []})
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (error["type"], error["param"]) == ("invalid_request_error", "input")
    assert "the list is empty" in error["message"]
    found = post(server, "/v1/embeddings", model="gpt2", input="")
    assert len(found["data"]) == 1


def test_fill(server: Running) -> None:
    found = post(server, "/v1/fill", model="bert", text="the [MASK] sat on the [MASK]", top=3)
    expected = server.lm("bert").fill("the [MASK] sat on the [MASK]", top=3)
    assert [each["text"] for each in found["fillings"]] == [each.text for each in expected.fillings]
    assert found["candidates"][0][0]["probability"] == pytest.approx(expected.candidates[0][0].probability)
    readings: list[tuple[int, int]] = []  # after each of them others have their turn
    filler = replace(server.lm("bert").filler, progress=lambda done, total: readings.append((done, total)))
    filler.fill("the [MASK] sat on the [MASK]", top=3, jointly=True)
    assert readings == [(number, 5) for number in range(1, 6)]
    answer = serving.post(f"{server.address}/v1/fill", json={"model": "bert", "text": "no blank"})
    assert answer.status_code == 400


def test_the_number_of_masks_is_limited(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmlab.serve.routes.fill.MOST_MASKS", 3)
    assert len(post(server, "/v1/fill", model="bert", text="[MASK] " * 3)["candidates"]) == 3
    answer = serving.post(f"{server.address}/v1/fill", json={"model": "bert", "text": "[MASK] " * 4})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "text")
    assert "4 masks; this server fills at most 3" in error["message"]


def test_the_kind_of_a_run_is_the_system_that_it_was_trained_as(tmp_path: Path) -> None:
    tokenizer = train("wordpiece:120", [TEXT])
    model = toy_model("bert", tokenizer)
    write_config(tmp_path, "mbert", model.config.model_dump())
    write_tensors(tmp_path / "model.safetensors", model_tensors(model))
    tokenizer.save(tmp_path / "tokenizer.json")
    lm = lmlab.load(tmp_path)
    assert (lm.kind, replace(lm, path=None).kind) == ("mbert", "bert")
    with serving.serving({"multilingual": lm}) as server:
        assert serving.get(f"{server.address}/v1/models/multilingual").json()["kind"] == "mbert"


def test_translate(server: Running) -> None:
    texts = ["the cat sat", "", "a dog"]
    found = post(server, "/v1/translate", model="translator", input=texts, beams=2, max_tokens=8)
    expected = server.lm("translator").translate(texts, beams=2, tokens=8)
    assert [each["text"] for each in found["data"]] == expected
    answer = serving.post(f"{server.address}/v1/translate", json={"model": "gpt2", "input": "a"})
    assert answer.json()["error"]["code"] == "unsupported"


def test_predict() -> None:
    tokenizer = toy_tokenizer()
    model = toy_model("gpt2", tokenizer)
    task = toy_task("classification", load_class("gpt2"), tokenizer=tokenizer, window=48)
    predictor = Predictor(task=task, model=model, heads=toy_heads(task, model))  # type: ignore[arg-type]
    lm = LanguageModel(model=model, tokenizer=tokenizer, own_predictor=predictor)
    with serving.serving({"stars": lm}) as server:
        texts = [example.a for example in EXAMPLES["classification"]]
        found = post(server, "/v1/predict", model="stars", input=[{"text": text} for text in texts])
        assert [each["value"] for each in found["data"]] == [each.value for each in lm.classify(texts)]
        assert set(found["data"][0]["scores"]) == {"pos", "neg"}
        wrong = serving.post(f"{server.address}/v1/predict", json={"input": {"text": ["a", "b"]}})
        assert wrong.status_code == 400
        assert "warnings" not in found
        long = post(server, "/v1/predict", model="stars", input=[texts[0], f"{texts[0]} " * 2000])
        assert "left_out" not in long["data"][0]
        window, length = task.frame.window, len(tokenizer.encode(f"{texts[0]} " * 2000))
        around = task.frame.overhead(task.frame.reads, "a")
        assert window is not None
        assert long["data"][1]["left_out"] == length + around - window
        (note,) = long["warnings"]
        assert note.startswith(f"1 of 2 texts were truncated: they are longer than the {window} tokens")


def test_sentences_are_tagged() -> None:
    tokenizer = toy_tokenizer()
    model, task = toy_model("bert", tokenizer), toy_task("tagging", load_class("bert"), tokenizer=tokenizer)
    predictor = Predictor(task=task, model=model, heads=toy_heads(task, model))
    lm = LanguageModel(model=model, tokenizer=tokenizer, own_predictor=predictor)
    with serving.serving({"ner": lm}) as server:
        (found,) = post(server, "/v1/predict", model="ner", input="Ada ran in London.")["data"]
        words = ["Ada", "ran", "in", "London", "."]
        assert found["words"] == words
        assert found["value"] == list(predictor.tag(words).value) == list(predictor.tag("Ada ran in London.").value)
        own = {"text": ["Ada", "ran", "in", "London."]}
        given = post(server, "/v1/predict", model="ner", input=[own, "Ada ran"])["data"]
        assert [each["words"] for each in given] == [own["text"], ["Ada", "ran"]]
        assert [len(each["value"]) for each in given] == [4, 2]


def test_tokens(server: Running) -> None:
    tokenizer = server.lm("gpt2").text_tokenizer
    text = "the naïve café 😀"
    ids = post(server, "/tokenize", model="gpt2", prompt=text)["tokens"]
    assert ids == tokenizer.encode(text)
    assert post(server, "/detokenize", model="gpt2", tokens=ids)["prompt"] == text
    info = serving.get(f"{server.address}/tokenizer_info", params={"model": "gpt2"}).json()
    assert post(server, "/tokenize", model="gpt2", prompt=info["eos_token"])["tokens"] == [tokenizer.boundary]
    whole = post(server, "/tokenize", model="gpt2", prompt="a", add_special_tokens=True)["tokens"]
    assert whole == [tokenizer.boundary, *tokenizer.encode("a")]


NAMES = """num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_bytes
prompt_tokens_total generation_tokens_total request_success_total prefix_cache_queries_total prefix_cache_hits_total
time_to_first_token_seconds_bucket inter_token_latency_seconds_bucket e2e_request_latency_seconds_bucket
request_queue_time_seconds_bucket request_prompt_tokens_bucket request_generation_tokens_bucket"""


def test_metrics_count_what_was_done(server: Running) -> None:
    def metrics() -> dict[tuple[str, ...], float]:
        answer = serving.get(f"{server.address}/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = list(text_string_to_metric_families(answer.text))
        assert len({family.name for family in families}) == len(families), "a name occurs once, for all runs"
        found = {
            (each.name, *sorted(each.labels.values())): each.value for family in families for each in family.samples
        }
        assert len(found) == sum(len(family.samples) for family in families)
        return found

    engine = server.runs.served["lstm"].engine
    serving.settle(engine)
    before = metrics()
    post(server, "/v1/completions", model="lstm", prompt="the cat", max_tokens=5, temperature=0, logit_bias={"0": -100})
    serving.settle(engine)
    after = metrics()
    grown = {name: after[name] - before[name] for name in after}
    assert grown["lmlab:generation_tokens_total", "lstm"] == 5
    assert grown["lmlab:prompt_tokens_total", "lstm"] == 3
    assert grown["lmlab:prefix_cache_queries_total", "lstm"] == 3
    assert grown["lmlab:time_to_first_token_seconds_count", "lstm"] == 1
    assert grown["lmlab:inter_token_latency_seconds_count", "lstm"] == 4
    assert grown["lmlab:request_success_total", "length", "lstm"] == 1
    assert after["lmlab:num_requests_running", "lstm"] == 0
    reported = {(name, each) for name, *labels in after for each in labels}
    assert {(f"lmlab:{name}", run) for name in NAMES.split() for run in server.runs.served} <= reported


def cancelled(engine: Any) -> float:
    return float(engine.metrics.value("request_success_total", finished_reason="cancelled"))


def test_a_client_that_hangs_up_frees_its_row(models: Any) -> None:
    """Who is streamed to hangs up after the first event, who waits for the whole as soon as the engine has the text."""
    with serving.serving({"gpt2": models["gpt2"]}, rows=4, tokens=10**6) as server:
        engine = server.runs.served["gpt2"].engine
        for number in range(15):
            asked = {"prompt": "the", "max_tokens": 10**6, "logit_bias": {"0": -100}, "stream": number % 4 > 0}
            body = json.dumps(asked).encode()
            head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            with serving.connect(server) as connection:
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                if asked["stream"]:
                    serving.read_until(connection, b"data: ")
                else:
                    wait_until(lambda: engine.load)
            if number % 4 in (0, 3):
                wait_until(
                    lambda count=number + 1: (
                        engine.metrics.value("request_success_total", finished_reason="cancelled") == count
                    )
                )
        wait_until(lambda: cancelled(engine) == 15)
        serving.settle(engine)
        assert engine.load == 0


def test_too_many_get_429_and_when_to_try_again(models: Any) -> None:
    """The engine is held by a job, so that what is submitted waits however fast texts are written."""
    with serving.serving({"gpt2": models["gpt2"]}, rows=2, queue=2) as server:
        url, body = f"{server.address}/v1/completions", {"prompt": "the", "max_tokens": 2}
        engine = server.runs.served["gpt2"].engine
        held, go_on, statuses = threading.Event(), threading.Event(), []

        def hold(pause: Any) -> None:
            held.set()
            go_on.wait(PATIENCE)

        job = engine.call(hold)
        assert held.wait(PATIENCE)
        askers = [
            threading.Thread(target=lambda: statuses.append(serving.post(url, json=body).status_code)) for _ in range(2)
        ]
        for asker in askers:
            asker.start()
        wait_until(lambda: engine.load == 2)
        answer = serving.post(url, json=body)
        unread = serving.post(url, content=b"{", headers={"Content-Type": "application/json"})
        go_on.set()
        assert unread.status_code == 429, "who is refused is not read"
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "rate_limit_error"
        for asker in askers:
            asker.join(PATIENCE)
        assert statuses == [200, 200]
        job.result(PATIENCE)
        engine.close()
        assert serving.post(url, json=body).status_code == 503


def test_the_same_text_in_a_batch_over_the_network(server: Running) -> None:
    url = f"{server.address}/v1/completions"
    asked = [
        {"model": kind, "prompt": prompt, "seed": seed, "max_tokens": 12, "logprobs": 1}
        for kind in ("ngram", "lstm", "gpt2")
        for seed, prompt in enumerate(("the", "the cat sat on the", "a", "the dog and a cat", ""))
    ]
    alone = [serving.post(url, json=body).json()["choices"] for body in asked]
    together: list[Any] = [None] * len(asked)

    def ask(number: int) -> None:
        together[number] = serving.post(url, json=asked[number]).json()["choices"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_a_lenient_server_passes_over_what_test_suites_send(models: Any) -> None:
    with serving.serving({"ngram": models["ngram"]}, lenient=True) as server:
        client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=0)
        answer = client.completions.create(
            model="gpt-3.5-turbo-instruct",
            prompt="This is a test.",
            best_of=0,
            echo=True,
            frequency_penalty=-2,
            logit_bias={"foo": 0},
            logprobs=0,
            max_tokens=16,
            n=1,
            presence_penalty=-2,
            seed=0,
            stop="\n",
            stream_options={"include_obfuscation": True, "include_usage": True},
            suffix="test.",
            temperature=1,
            top_p=1,
            user="user-1234",
            extra_body={"unheard_of": 1},
        )
        assert answer.choices[0].text.startswith("This is a test.")


def test_the_index_lists_models_and_routes(server: Running) -> None:
    found, listed = (serving.get(server.address + path).json() for path in ("/", "/openapi.json"))
    assert found["models"] == list(server.runs.served)
    routes = {f"{method.upper()} {path}" for path, methods in listed["paths"].items() for method in methods}
    assert set(found["routes"]) == routes
    assert found["routes"]["POST /v1/completions"] == "Continue texts"
