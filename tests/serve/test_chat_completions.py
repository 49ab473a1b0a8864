"""The chat route by the client that people use, against what the library itself and `transformers` say."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from serving import Running, post, serving

import lmlab
from chat_models import CONVERSATIONS, PLANETS, QUESTION, TEMPLATES, make_tokenizer, write_chat_folder
from lmlab.decoding.chat_writer import ChatWriter
from lmlab.interop.huggingface import import_run
from lmlab.tokenizers.chat_template import EndedTemplateError
from patience import wait_until

openai = pytest.importorskip("openai")

GREEDY: dict[str, Any] = {"model": "chatml", "temperature": 0}


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Any]) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("chats")
    for style in ("chatml", "llama-2", "plain"):
        source = write_chat_folder(folder / f"{style}-hf", style, trained=style == "chatml", window=128)
        import_run(source, folder / style)
    found = {style: lmlab.load(folder / style) for style in ("chatml", "llama-2", "plain")}
    with serving({**found, "gpt2": models["gpt2"], "bert": models["bert"]}) as running:
        yield running


@pytest.fixture
def client(chats: Running) -> Any:
    return openai.OpenAI(base_url=f"{chats.address}/v1", api_key="none", max_retries=0)


def ask(chats: Running, **body: Any) -> Any:
    return post(f"{chats.address}/v1/chat/completions", json=body)


@pytest.mark.parametrize(("question", "known"), PLANETS)
def test_messages_are_answered(client: Any, chats: Running, question: str, known: str) -> None:
    messages = [{"role": "user", "content": question}]
    answer = client.chat.completions.create(messages=messages, **GREEDY)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", known, "stop")
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    tokenizer = make_tokenizer("chatml")
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    written = len(tokenizer(known)["input_ids"]) + 1  # with the token that ends the message
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), written)
    assert answer.usage.total_tokens == len(prompt) + written


def test_a_stream_says_the_same(client: Any) -> None:
    messages = [{"role": "user", "content": PLANETS[1][0]}]
    options = {"stream": True, "stream_options": {"include_usage": True}, "n": 2}
    chunks = list(client.chat.completions.create(messages=messages, **GREEDY, **options))
    texts, roles, finish = ["", ""], [[], []], {}
    for chunk in chunks[:-1]:
        assert chunk.object == "chat.completion.chunk"
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        roles[choice.index].append(choice.delta.role)
        finish |= {choice.index: choice.finish_reason} if choice.finish_reason else {}
    assert texts == [PLANETS[1][1]] * 2
    assert all(each[0] == "assistant" and set(each[1:]) == {None} for each in roles)
    assert finish == {0: "stop", 1: "stop"}
    whole = client.chat.completions.create(messages=messages, **GREEDY, n=2)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


@pytest.mark.parametrize("style", ["chatml", "llama-2"])
@pytest.mark.parametrize("conversation", ["system", "history"])
def test_conversations_are_read_as_transformers_renders_them(chats: Running, style: str, conversation: str) -> None:
    messages = CONVERSATIONS[conversation]
    theirs = make_tokenizer(style)
    ids = theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    mine = ask(chats, model=style, messages=messages, seed=7, max_tokens=20).json()
    assert mine["usage"]["prompt_tokens"] == len(ids)
    found = chats.lm(style).chat(messages, seed=7, tokens=20)
    assert mine["choices"][0]["message"]["content"] == found


def test_parts_of_text_and_what_developers_say(chats: Running) -> None:
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "little, naïve 😀 one."}]
    messages = [{"role": "developer", "content": parts}, *QUESTION]
    asked = {"model": "chatml", "seed": 3, "max_tokens": 8}
    first = ask(chats, messages=messages, **asked).json()
    second = ask(chats, messages=CONVERSATIONS["system"], **asked).json()
    assert first["choices"] == second["choices"]
    assert first["usage"] == second["usage"]


def test_length_and_stop_strings_end_a_message(chats: Running) -> None:
    messages = [{"role": "user", "content": PLANETS[0][0]}]
    (choice,) = ask(chats, messages=messages, **GREEDY, max_completion_tokens=1).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert PLANETS[0][1].startswith(choice["message"]["content"])
    (choice,) = ask(chats, messages=messages, **GREEDY, stop="rs").json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Ma", "stop")


def test_a_template_without_tokens_ends_before_the_next_message(chats: Running) -> None:
    tokenizer = chats.lm("plain").text_tokenizer
    forced = {str(token): 100 for token in set(tokenizer.encode("\nUser:"))}
    found = ask(chats, model="plain", messages=QUESTION, logit_bias=forced, max_tokens=80, seed=1).json()["choices"][0]
    assert "\nUser:" not in found["message"]["content"]


def test_log_probabilities_are_reported_as_openai_does(client: Any) -> None:
    messages = [{"role": "user", "content": PLANETS[1][0]}]
    answer = client.chat.completions.create(messages=messages, **GREEDY, logprobs=True, top_logprobs=2)
    reported = answer.choices[0].logprobs.content
    assert len(reported) == answer.usage.completion_tokens
    written = b"".join(bytes(each.bytes) for each in reported[:-1])
    assert written.decode() == PLANETS[1][1]
    for each in reported:
        assert each.logprob <= 0
        assert each.top_logprobs[0].token == each.token  # greedy: the best one
        assert len(each.top_logprobs) == 2
    none = client.chat.completions.create(messages=messages, **GREEDY)
    assert none.choices[0].logprobs is None


def test_a_run_without_a_template_points_to_completions(client: Any, chats: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="send it a text to /v1/completions") as error:
        client.chat.completions.create(model="gpt2", messages=QUESTION)
    assert error.value.body["code"] == "unsupported"
    assert ask(chats, model="bert", messages=QUESTION).status_code == 400
    assert ask(chats, model="nobody", messages=QUESTION).status_code == 404
    cards = {each.id: each.model_extra["abilities"] for each in client.models.list()}
    assert "chat" in cards["chatml"]
    assert "chat" not in cards["gpt2"]


@pytest.mark.parametrize(
    ("body", "param", "why"),
    [
        ({"messages": []}, "messages", "at least 1"),
        ({}, "messages", "required"),
        ({"messages": [{"role": "user"}]}, "messages", "required"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages", "'system', 'developer', 'user' or 'assistant'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "only texts are read"),
        ({"messages": [*QUESTION, *QUESTION], "model": "llama-2"}, "messages", "user and assistant must take turns"),
        ({"messages": [{"role": "user", "content": "goes " * 200}]}, "messages", "reads at most 128 with its answer"),
        ({"messages": QUESTION, "max_tokens": 5000}, "max_tokens", "at most 4096"),
        ({"messages": QUESTION, "tools": []}, "tools", "not a known field"),
        ({"messages": QUESTION, "n": 0}, "n", "greater than or equal to 1"),
    ],
)
def test_wrong_requests_are_named(chats: Running, body: dict[str, Any], param: str, why: str) -> None:
    answer = ask(chats, **{"model": "chatml", **body})
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert why in error["message"]


def test_half_of_a_character_is_named(chats: Running) -> None:
    body = json.dumps({"model": "chatml", "messages": [{"role": "user", "content": "a \ud83d b"}]})  # as \\ud83d
    headers = {"Content-Type": "application/json"}
    answer = post(f"{chats.address}/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages"


def test_the_template_is_given_to_harnesses(chats: Running) -> None:
    from serving import get

    found = get(f"{chats.address}/tokenizer_info", params={"model": "chatml"}).json()
    assert found["chat_template"] == TEMPLATES["chatml"]


def test_every_event_is_json_and_the_last_is_done(chats: Running) -> None:
    body = {"model": "llama-2", "messages": QUESTION, "max_tokens": 5, "stream": True, "logprobs": True}
    lines = [line for line in ask(chats, **body).text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert events[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    assert sum(len(event["choices"][0]["logprobs"]["content"]) for event in events) == len(events)


SLOW = "{{ lipsum(n=1000000) }}"
"""Takes more than the ten seconds that a template may compute."""
BROKEN = "{{ messages + 1 }}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Any]) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("hostile")
    runs = {"gpt2": models["gpt2"]}
    for name, template in (("good", TEMPLATES["chatml"]), ("slow", SLOW), ("broken", BROKEN)):
        source = write_chat_folder(folder / f"{name}-hf", "chatml", trained=False, window=128)
        import_run(source, folder / name)
        lm = lmlab.load(folder / name)
        runs[name] = replace(lm, chat_template=replace(lm.chat_template, text=template))
    with serving(runs) as running:
        yield running


def test_a_slow_template_holds_up_no_other_run(hostile: Running) -> None:
    """Thirty clients ask for a template that never ends, then hang up: others are answered at once, and it ends."""
    hello = {"messages": [{"role": "user", "content": "Hello"}]}
    body = json.dumps({"model": "slow", **hello}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    port = int(hostile.address.rpartition(":")[2])
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
    for each in clients:
        each.sendall(request)
    slow = hostile.runs.served["slow"].engine
    wait_until(lambda: slow._reserved == 30)
    assert post(f"{hostile.address}/v1/completions", json={"model": "gpt2", "prompt": "the"}).status_code == 200
    assert ask(hostile, model="good", max_tokens=2, **hello).status_code == 200
    assert slow._reserved > 1, "others were answered while the template was being rendered"
    for each in clients:
        each.close()
    wait_until(lambda: slow._reserved == 0)


def test_clients_that_wait_for_a_slow_template_get_its_error_at_once(
    hostile: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, calls = hostile.runs.served["slow"], list[object]()

    def encode(writer: ChatWriter, messages: object) -> list[int]:
        calls.append(messages)
        wait_until(lambda: slow.engine._reserved == 3)
        raise EndedTemplateError("the chat template was ended")

    monkeypatch.setattr(ChatWriter, "encode", encode)
    hello = {"model": "slow", "messages": [{"role": "user", "content": "Hello"}]}
    with ThreadPoolExecutor(3) as clients:
        answers = [each.result() for each in [clients.submit(ask, hostile, **hello) for _ in range(3)]]
    assert [answer.status_code for answer in answers] == [500] * 3
    assert all("was ended" in answer.json()["error"]["message"] for answer in answers)
    assert len(calls) == 1
    monkeypatch.undo()
    monkeypatch.setattr(ChatWriter, "encode", lambda writer, messages: [1])
    assert ask(hostile, **hello, max_tokens=1).status_code == 200, "a later client tries the template again"


def test_a_broken_template_is_the_fault_of_the_run(hostile: Running) -> None:
    answer = ask(hostile, model="broken", messages=[{"role": "user", "content": "Hello"}])
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "broken: the chat template fails" in answer.json()["error"]["message"]
