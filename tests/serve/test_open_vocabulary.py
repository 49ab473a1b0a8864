"""Runs that are served by what the library says of them: those that read letters, both ways, or backwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch
from serving import Running, serving

from lmlab.language_model import LanguageModel
from lmlab.models import load_class
from lmlab.prompting import ask, find_template
from lmlab.prompting.items import PromptItem, PromptItems
from lmlab.serve.token_ids import ClientIds
from lmlab.tokenizers import train
from lmlab.tokenizers.spellings import Spellings
from patience import PATIENCE
from standins import TEXT, random_model

SETTINGS: dict[str, Any] = {"width": 8, "cells": 12, "layers": 1, "filters": [[1, 4], [2, 4]], "highways": 1}


def reads_letters(kind: str) -> LanguageModel:
    tokenizer = train("spelled:20", [TEXT])
    torch.manual_seed(0)
    cls = load_class(kind)
    reported = {"vocabulary": tokenizer.predicted, "letters": 50, "unknown": tokenizer.unknown}
    model = cls(cls.Config(**SETTINGS, **reported)).eval()
    model.spell_by(Spellings(tokenizer))
    return LanguageModel(model=model, tokenizer=tokenizer)


def reads_backwards() -> LanguageModel:
    lm = random_model("lstm", train("bytes", [TEXT]), width=8, layers=1)
    return replace(lm, own_frame=replace(lm.frame, backwards=("tokens",)))


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    kinds = {"lm-1b": reads_letters("lm-1b"), "elmo": reads_letters("elmo"), "backwards": reads_backwards()}
    with serving({**kinds, "none": replace(kinds["backwards"], tokenizer=None, own_frame=None)}) as running:
        yield running


def post(server: Running, path: str, **body: Any) -> httpx.Response:
    return httpx.post(server.address + path, json=body, timeout=PATIENCE)


@pytest.mark.parametrize("kind", ["lm-1b", "elmo"])
def test_words_that_nobody_has_seen(served: Running, kind: str) -> None:
    prompt = "the zyxwv sat on a qwrtp"
    asked = {"model": kind, "prompt": prompt, "max_tokens": 4, "temperature": 0, "repetition_penalty": 1.3}
    answer = post(served, "/v1/completions", **asked)
    assert answer.status_code == 200, answer.text
    expected = served.lm(kind).generate(prompt, tokens=4, temperature=0.0, repetition_penalty=1.3)
    assert answer.json()["choices"][0]["text"] == expected
    echoed = post(served, "/v1/completions", model=kind, prompt=prompt, max_tokens=0, echo=True, logprobs=1)
    assert echoed.status_code == 200, echoed.text
    fields = echoed.json()["choices"][0]["logprobs"]
    assert fields["tokens"][1].strip() == "zyxwv"
    writer = served.lm(kind).writer
    (ids,) = [writer.frame.row(a=writer.tokenizer.encode(prompt))["tokens"]]
    with torch.inference_mode():
        own, _ = writer.model.score(torch.tensor([ids[:-1]]), torch.tensor([ids[1:]]), writer.model.start(1))
    assert fields["token_logprobs"] == pytest.approx((-own[0]).tolist(), abs=1e-5)
    tokens = post(served, "/tokenize", model=kind, prompt=prompt).json()["tokens"]
    again = post(served, "/v1/completions", **{**asked, "prompt": tokens})
    assert again.json()["choices"][0]["text"] == expected
    assert post(served, "/detokenize", model=kind, tokens=tokens).json()["prompt"].strip() == prompt
    assert post(served, "/detokenize", model=kind, tokens=[10**8]).status_code == 400
    reported = post(served, "/v1/completions", **asked, return_token_ids=True, prompt_logprobs=0).json()["choices"][0]
    assert reported["prompt_token_ids"] == tokens
    assert [list(each) for each in reported["prompt_logprobs"]] == [[str(token)] for token in tokens]
    by_text, by_ids = (
        post(served, "/v1/embeddings", model=kind, input=[each]).json()["data"][0]["embedding"]
        for each in (prompt, tokens)
    )
    assert by_ids == pytest.approx(by_text)


@pytest.mark.parametrize("kind", ["lm-1b", "elmo"])
def test_nobody_can_count_on_to_the_words_of_others(served: Running, kind: str) -> None:
    words = [f"secret{number}" for number in range(20)]
    tokens = post(served, "/tokenize", model=kind, prompt=" ".join(words)).json()["tokens"]
    assert post(served, "/tokenize", model=kind, prompt=" ".join(words)).json()["tokens"] == tokens
    known = served.lm(kind).text_tokenizer.vocabulary
    for guess in (*range(known, known + 50), *(token + 1 for token in tokens)):
        if guess not in tokens:
            answer = post(served, "/detokenize", model=kind, tokens=[guess])
            assert answer.status_code == 400, answer.text
            assert f"vocabulary of {known}" in answer.json()["error"]["message"]


def test_hidden_numbers_are_a_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = ClientIds(100)
    reported = [numbers.encode(token) for token in range(5000)]
    assert reported[:100] == list(range(100))
    assert len(set(reported)) == len(reported)
    assert all(100 <= number < 2**53 for number in reported[100:])
    assert sum(number < 2**40 for number in reported[100:]) < 20  # 1.2 of 4,900 are expected
    assert [numbers.decode(number) for number in reported] == list(range(5000))
    assert numbers.decode(2**53 - 1) == 2**53 - 1
    assert reported == [ClientIds(100).encode(token) for token in range(5000)], "the same after loading again"
    monkeypatch.setattr("lmlab.serve.token_ids._KEY", b"of another process")
    assert reported != [numbers.encode(token) for token in range(5000)]


def test_a_model_that_reads_backwards_or_no_text_does_not_write(served: Running) -> None:
    for kind in ("backwards", "none"):
        answer = post(served, "/v1/completions", model=kind, prompt="the")
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] == "unsupported"


def test_a_run_without_a_tokenizer_says_so(served: Running) -> None:
    answers = [
        post(served, "/tokenize", model="none", prompt="the"),
        post(served, "/detokenize", model="none", tokens=[1]),
        post(served, "/v1/embeddings", model="none", input="the"),
        httpx.get(f"{served.address}/tokenizer_info", params={"model": "none"}, timeout=PATIENCE),
    ]
    for answer in answers:
        assert answer.status_code == 400, answer.text
        assert "no tokenizer" in answer.json()["error"]["message"]
        assert answer.json()["error"]["param"] == "model"


def test_offsets_count_the_text_as_it_was_given(served: Running) -> None:
    prompt = "the   cat \n  sat"  # spaces that no token holds
    answer = post(served, "/v1/completions", model="lm-1b", prompt=prompt, max_tokens=0, echo=True, logprobs=0)
    (choice,) = answer.json()["choices"]
    assert choice["text"] == prompt
    assert choice["logprobs"]["text_offset"] == [0, 6, 10, 13]


def test_a_model_that_reads_backwards_is_not_asked() -> None:
    items = [PromptItem({"a": "the cat"}, ("good", "bad"), 0), PromptItem({"a": "a dog"}, ("good", "bad"), 1)]
    with pytest.raises(ValueError, match="reads backwards"):
        ask(reads_backwards(), find_template("sentiment"), PromptItems(items, items))
