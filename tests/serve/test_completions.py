"""The completions route by the client that people use, against what the library itself says."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest
from serving import Running

from lmlab.decoding.beam_search import beam_search
from lmlab.decoding.streaming import REPLACEMENT
from lmlab.serve.routes.completions import is_short
from lmlab.serve.schemas import Completion
from patience import PATIENCE

openai = pytest.importorskip("openai")

KINDS = ["ngram", "lstm", "gpt2"]
PROMPT = "the naïve café costs 5 € 😀"


@pytest.fixture
def client(server: Running) -> Any:
    return openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)


def post(server: Running, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.address}/v1/completions", json=body, timeout=PATIENCE)


def choices(server: Running, **body: Any) -> list[dict[str, Any]]:
    answer = post(server, **body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["choices"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_echoed_log_probabilities_add_up_to_the_score(client: Any, server: Running, kind: str) -> None:
    answer = client.completions.create(model=kind, prompt=PROMPT, max_tokens=0, echo=True, logprobs=2)
    (choice,) = answer.choices
    lm = server.lm(kind)
    score = lm.score(PROMPT)
    assert choice.text == PROMPT
    assert -sum(choice.logprobs.token_logprobs) == pytest.approx(score.nats, abs=1e-3)
    assert len(choice.logprobs.tokens) == score.tokens == answer.usage.prompt_tokens
    assert [-each for each in choice.logprobs.token_logprobs] == pytest.approx(list(score.token_nats[0]), abs=1e-3)
    for name, own, top in zip(
        choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True
    ):
        assert top[name] == own
        assert len(top) in (2, 3)
        assert max(top.values()) >= own


@pytest.mark.parametrize("kind", KINDS)
def test_written_and_echoed_tokens_are_scored_alike(server: Running, kind: str) -> None:
    (choice,) = choices(server, model=kind, prompt="the cat", max_tokens=6, echo=True, logprobs=0, seed=3)
    again = server.lm(kind).score(choice["text"])
    reported = choice["logprobs"]
    written = reported["token_logprobs"][: -1 if choice["finish_reason"] == "stop" else None]  # without the boundary
    if again.tokens == len(written):  # where the text is cut into the same tokens again
        assert -sum(written) == pytest.approx(again.nats, abs=1e-3)
    assert all(list(top) == [name] for name, top in zip(reported["tokens"], reported["top_logprobs"], strict=True))


def test_logprobs_0_is_not_off_and_the_first_is_no_null(server: Running) -> None:
    (choice,) = choices(server, model="gpt2", prompt=[], max_tokens=3, logprobs=0, temperature=0)
    assert len(choice["logprobs"]["token_logprobs"]) == 3
    (choice,) = choices(server, model="gpt2", prompt="a", max_tokens=3)
    assert choice["logprobs"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_says_the_same(client: Any, kind: str) -> None:
    asked = {"model": kind, "prompt": PROMPT, "max_tokens": 20, "echo": True, "logprobs": 1, "seed": 5, "n": 2}
    whole = client.completions.create(**asked)
    texts, reported, finish = ["", ""], [{"tokens": [], "token_logprobs": [], "text_offset": []} for _ in range(2)], {}
    usage = None
    for chunk in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            finish[choice.index] = choice.finish_reason
            for name, values in reported[choice.index].items():
                values += getattr(choice.logprobs, name)
    assert texts == [choice.text for choice in whole.choices]
    assert usage == whole.usage
    for number, choice in enumerate(whole.choices):
        assert finish[number] == choice.finish_reason
        for name, values in reported[number].items():
            kept = getattr(choice.logprobs, name)
            assert values[: len(kept)] == kept


def test_offsets_are_those_of_the_characters(server: Running) -> None:
    (choice,) = choices(server, model="gpt2", prompt=PROMPT, max_tokens=12, echo=True, logprobs=0, seed=1)
    reported = choice["logprobs"]
    for name, offset in zip(reported["tokens"], reported["text_offset"], strict=True):
        if not name.startswith(("bytes:", "token_id:")):
            assert choice["text"][offset : offset + len(name)] == name
    assert any(name.startswith("bytes:") for name in reported["tokens"])  # 😀 and € are cut into bytes


def test_the_same_seed_gives_the_same_text_and_no_seed_another(server: Running) -> None:
    first, second = (choices(server, model="gpt2", prompt="the", seed=7, n=3, max_tokens=20) for _ in range(2))
    assert first == second
    assert len({choice["text"] for choice in first}) == 3
    alone = choices(server, model="gpt2", prompt="the", seed=7, max_tokens=20)
    assert alone[0]["text"] == first[0]["text"]
    free = {choices(server, model="gpt2", prompt="the", max_tokens=20)[0]["text"] for _ in range(3)}
    assert len(free) == 3


def test_all_kinds_of_prompts(server: Running) -> None:
    tokenizer = server.lm("gpt2").text_tokenizer
    texts = ["the cat", "a dog"]
    ids = [tokenizer.encode(text) for text in texts]
    asked = {"model": "gpt2", "temperature": 0, "max_tokens": 5}
    by_text = [choice["text"] for choice in choices(server, prompt=texts, **asked)]
    assert [choice["text"] for choice in choices(server, prompt=ids, **asked)] == by_text
    assert choices(server, prompt=texts[1], **asked)[0]["text"] == by_text[1]
    assert choices(server, prompt=ids[1], **asked)[0]["text"] == by_text[1]
    empty = [choices(server, prompt=prompt, **asked)[0]["text"] for prompt in ("", [], None, "<|endoftext|>")]
    assert len(set(empty)) == 1
    listed = choices(server, prompt=texts, n=2, seed=1, model="gpt2")
    assert [choice["index"] for choice in listed] == [0, 1, 2, 3]


def test_a_boundary_that_is_given_is_not_doubled(server: Running) -> None:
    lm = server.lm("gpt2")
    ids = lm.text_tokenizer.encode("the cat sat")
    asked = {"model": "gpt2", "max_tokens": 0, "echo": True, "logprobs": 0}
    (plain,) = choices(server, prompt=ids, **asked)
    (begun,) = choices(server, prompt=[lm.text_tokenizer.boundary, *ids], **asked)
    assert begun["logprobs"]["token_logprobs"][1:] == plain["logprobs"]["token_logprobs"]
    assert math.isfinite(begun["logprobs"]["token_logprobs"][0])


def test_best_of_gives_the_most_probable(server: Running) -> None:
    asked = {"model": "ngram", "prompt": "the", "seed": 3, "max_tokens": 6, "logprobs": 0}
    every = choices(server, n=6, **asked)

    def mean(choice: dict[str, Any]) -> float:
        reported = choice["logprobs"]["token_logprobs"]
        return sum(reported) / len(reported)

    best = choices(server, n=2, best_of=6, **asked)
    expected = sorted(every, key=mean, reverse=True)[:2]
    assert [choice["text"] for choice in best] == [choice["text"] for choice in expected]
    assert [choice["index"] for choice in best] == [0, 1]


def test_beam_search_is_that_of_the_library(server: Running) -> None:
    import torch

    lm = server.lm("gpt2")
    asked = {"model": "gpt2", "prompt": "the cat", "max_tokens": 5, "use_beam_search": True, "n": 3}
    found = choices(server, logprobs=1, length_penalty=0.6, **asked)
    row = torch.tensor([lm.writer.frame.row(a=lm.text_tokenizer.encode("the cat"))["tokens"]])
    (expected,) = beam_search(lm.writer.model, row, tokens=5, beams=3, boundary=lm.writer.end, length_penalty=0.6)
    for choice, hypothesis in zip(found, expected, strict=True):
        assert choice["text"] == lm.text_tokenizer.decode(hypothesis.written)
        assert sum(choice["logprobs"]["token_logprobs"]) == pytest.approx(hypothesis.log_probability, abs=1e-3)


def test_stop_strings_and_their_tokens(server: Running) -> None:
    asked = {"model": "ngram", "prompt": "the cat", "max_tokens": 40, "seed": 2, "logprobs": 0}
    (whole,) = choices(server, **asked)
    stop = whole["text"][6:9]
    (cut,) = choices(server, stop=[stop, "never that"], **asked)
    assert cut["text"] == whole["text"][: whole["text"].index(stop)]
    assert cut["finish_reason"] == "stop"
    assert cut["logprobs"]["tokens"] == whole["logprobs"]["tokens"][: len(cut["logprobs"]["tokens"])]
    assert all(offset < len(cut["text"]) for offset in cut["logprobs"]["text_offset"])


def test_biases_and_penalties_reach_the_sampler(server: Running) -> None:
    tokenizer = server.lm("gpt2").text_tokenizer
    cat = tokenizer.encode(" cat")[0]
    (choice,) = choices(
        server, model="gpt2", prompt="the", max_tokens=4, logit_bias={str(cat): 100}, return_token_ids=True
    )
    assert choice["token_ids"] == [cat] * 4
    assert choice["prompt_token_ids"] == tokenizer.encode("the")
    (choice,) = choices(
        server,
        model="gpt2",
        prompt="the",
        max_tokens=4,
        temperature=0,
        logit_bias={str(cat): 4},
        frequency_penalty=2,
        presence_penalty=2,
        return_token_ids=True,
    )
    assert choice["token_ids"].count(cat) < 4
    (nucleus,) = choices(server, model="gpt2", prompt="the", top_p=0, max_tokens=4)
    (greedy,) = choices(server, model="gpt2", prompt="the", temperature=0, max_tokens=4)
    assert nucleus["text"] == greedy["text"]


def test_prompt_logprobs(server: Running) -> None:
    (choice,) = choices(server, model="gpt2", prompt="the cat", max_tokens=1, prompt_logprobs=1)
    score = server.lm("gpt2").score("the cat")
    ids = score.token_ids[0].tolist()
    for token, reported, nats in zip(ids, choice["prompt_logprobs"], score.token_nats[0], strict=True):
        assert reported[str(token)]["logprob"] == pytest.approx(-nats, abs=1e-3)


def test_tokens_that_decode_alike_keep_their_own_names(server: Running) -> None:
    for kind in ("gpt2", "lstm", "bert"):
        served = server.runs.served[kind]
        names = [served.names[token] for token in range(served.lm.text_tokenizer.vocabulary)]
        assert len(set(names)) == len(names)
        assert all(names)


def test_a_character_in_pieces_is_streamed_whole(server: Running) -> None:
    assert len(server.lm("ngram").text_tokenizer.encode("😀")) > 1
    body = {"model": "ngram", "prompt": "costs 5 €", "max_tokens": 12, "temperature": 0, "stream": True}
    pieces = []
    with httpx.stream("POST", f"{server.address}/v1/completions", json=body, timeout=PATIENCE) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                pieces += [choice["text"] for choice in json.loads(line[6:])["choices"]]
    assert "😀" in pieces or " 😀" in pieces
    assert "" in pieces
    assert REPLACEMENT not in "".join(pieces[:-1])


BAD: list[tuple[dict[str, Any], str | None]] = [
    ({"prompt": "a", "temperature": -1}, "temperature"),
    ({"prompt": "a", "temperature": 2.5}, "temperature"),
    ({"prompt": "a", "top_p": 1.5}, "top_p"),
    ({"prompt": "a", "n": 0}, "n"),
    ({"prompt": "a", "n": 1000}, "n"),
    ({"prompt": "a", "n": 3, "best_of": 2}, "best_of"),
    ({"prompt": "a", "best_of": 2, "stream": True}, "best_of"),
    ({"prompt": "a", "logprobs": 21}, "logprobs"),
    ({"prompt": [1] * 60000, "n": 128, "logprobs": 20, "echo": True}, "logprobs"),
    ({"prompt": [1] * 60000, "prompt_logprobs": 20}, "prompt_logprobs"),
    ({"prompt": "a", "logprobs": -1}, "logprobs"),
    ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
    ({"prompt": "a", "max_tokens": 10**7}, "max_tokens"),
    ({"prompt": "a", "max_tokens": 5000}, "max_tokens"),
    ({"prompt": "a", "stop": ""}, "stop"),
    ({"prompt": "a", "stop": ["x"] * 17}, "stop"),
    ({"prompt": "a", "suffix": "b"}, "suffix"),
    ({"prompt": "a", "seed": 2**63}, "seed"),
    ({"prompt": "a", "presence_penalty": 3}, "presence_penalty"),
    ({"prompt": "a", "logit_bias": {"foo": 1}}, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"99999": 1}}, "logit_bias"),
    ({"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias"),
    ({"prompt": "a", "min_p": 2}, "min_p"),
    ({"prompt": "a", "repetition_penalty": 0}, "repetition_penalty"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
    ({"prompt": [10**6]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": 3}, "prompt"),
    ({"prompt": ["a"] * 129}, "prompt"),
    ({"prompt": ["a"] * 60, "n": 3}, "prompt"),
    ({"prompt": "\ud800"}, "prompt"),
    ({"promt": "a"}, "promt"),
    ({"prompt": "a", "use_beam_search": True, "stream": True}, "use_beam_search"),
    ({"prompt": "a", "echo": "perhaps"}, "echo"),
]


@pytest.mark.parametrize(("body", "param"), BAD, ids=lambda value: str(value)[:40])
def test_what_is_out_of_range_is_a_400_that_names_the_field(server: Running, body: Any, param: str) -> None:
    content = json.dumps({"model": "gpt2", **body})
    answer = httpx.post(
        f"{server.address}/v1/completions",
        content=content,
        headers={"Content-Type": "application/json"},
        timeout=PATIENCE,
    )
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"]


def test_errors_reach_the_client_as_its_own(client: Any) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="../../etc/passwd", prompt="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as cannot:
        client.completions.create(model="bert", prompt="a")
    assert "masks" in str(cannot.value)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="gpt2", prompt="a", temperature=9)


@pytest.mark.parametrize("way", [{}, {"n": 2, "stream": True}, {"use_beam_search": True, "best_of": 2}])
def test_a_prompt_that_is_cut_to_the_window_is_reported(client: Any, server: Running, way: dict[str, Any]) -> None:
    window = server.lm("gpt2").model.window  # type: ignore[attr-defined]
    asked = {"model": "gpt2", "max_tokens": 2, "seed": 1, **way}
    extra = {"extra_body": {"use_beam_search": asked.pop("use_beam_search")}} if "use_beam_search" in asked else {}

    def reported(length: int) -> tuple[list[Any], list[Any]]:
        answer = client.completions.create(prompt=[[5], [5] * length], **asked, **extra)
        events = list(answer) if asked.get("stream") else [answer]
        return events, [each.warnings for each in events if getattr(each, "warnings", None)]

    assert reported(window - 1)[1] == []
    events, (found,) = reported(window)
    assert found == [f"prompt 1: {window + 1} tokens with the boundary; only the last {window} were read"]
    assert events[0].warnings == found


def test_a_prompt_that_is_only_scored_is_not_cut(client: Any, server: Running) -> None:
    window = server.lm("gpt2").model.window  # type: ignore[attr-defined]
    asked = {"model": "gpt2", "prompt": [5] * 3 * window, "max_tokens": 0, "echo": True, "logprobs": 0}
    answer = client.completions.create(**asked)
    assert not hasattr(answer, "warnings")
    assert len(answer.choices[0].logprobs.token_logprobs) == 3 * window


CUT = [("ngram", "the café"), ("ngram", "a 😀"), ("gpt2", "naï"), ("gpt2", "5 €")]


@pytest.mark.parametrize(("kind", "text"), CUT)
def test_a_character_that_ids_begin_is_finished_by_the_completion(server: Running, kind: str, text: str) -> None:
    tokenizer = server.lm(kind).text_tokenizer
    ids = tokenizer.encode(text)
    while len(ids) > 1 and not tokenizer.decode(ids).endswith(REPLACEMENT):
        ids, rest = ids[:-1], ids[-1]
    assert tokenizer.decode(ids).endswith(REPLACEMENT)
    before = tokenizer.decode(ids).rstrip(REPLACEMENT)
    asked = {"model": kind, "prompt": ids, "max_tokens": 1, "logit_bias": {str(rest): 100}, "logprobs": 0}
    for more in ({}, {"echo": True}, {"use_beam_search": True}):
        (choice,) = choices(server, **asked, **more, return_token_ids=True)
        assert choice["token_ids"] == [rest] or "use_beam_search" in more
        whole = tokenizer.decode([*ids, *choice["token_ids"]])
        assert choice["text"] == (whole if "echo" in more else whole.removeprefix(before))
        if choice["token_ids"] == [rest]:
            assert choice["logprobs"]["text_offset"][-1] == (len(before) if "echo" in more else 0)
    events = post(server, **asked, stream=True, echo=True).text
    pieces = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == tokenizer.decode([*ids, rest])


def test_a_character_that_is_never_finished_is_marked(server: Running) -> None:
    tokenizer = server.lm("ngram").text_tokenizer
    ids, letter = tokenizer.encode("5 €")[:-1], tokenizer.encode("x")[0]
    (choice,) = choices(server, model="ngram", prompt=ids, max_tokens=1, logit_bias={str(letter): 100})
    assert choice["text"] == REPLACEMENT + "x"
    (choice,) = choices(server, model="ngram", prompt=ids, max_tokens=0, echo=True)
    assert choice["text"] == "5 " + REPLACEMENT


def test_completions_of_ids_join_whatever_they_end_with(server: Running) -> None:
    tokenizer = server.lm("ngram").text_tokenizer
    ids, whole = tokenizer.encode("😀 é"), ""
    bias = {str(token): 30 for token in ids}  # bytes in any order: many of them are no characters
    asked = {"model": "ngram", "max_tokens": 5, "echo": True, "logit_bias": bias, "return_token_ids": True}
    for seed in range(12):
        (choice,) = choices(server, prompt=ids, seed=seed, **asked)
        ids = [*ids, *(token for token in choice["token_ids"] if token != tokenizer.boundary)]
        whole = choice["text"]
        assert whole == tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("prompt", "short"),
    [
        ("a text", True),
        (list(range(1000)), True),  # one text of a thousand ids
        (list(range(1950)), False),
        (["a"] * 19, True),
        (["a"] * 20, False),
        ([[1, 2]] * 20, False),
        ([], True),
        (None, True),
    ],
)
def test_short_requests_are_planned_in_the_event_loop(prompt: Any, short: bool) -> None:
    assert is_short(Completion.model_construct(prompt=prompt, n=1)) == short
