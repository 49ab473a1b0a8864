"""What stands before a prompt: the boundary, or for an imported model what its own tokenizer puts there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import serving
from serving import Running

from lmlab.language_model import LanguageModel
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.boundary import without_boundary
from lmlab.tokenizers.frames import Frame

PROMPT = "the cat sat"
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def server(models: dict[str, LanguageModel]) -> Iterator[Running]:
    """The small GPT-2 as it is, and as if it had been imported: with nothing before a text, or no token for it."""
    own = models["gpt2"]
    tokenizer = Tokenizer(own.text_tokenizer.splitting_specials.changed(own.text_tokenizer.engine.to_str()).engine,
                          split_special_tokens=False)  # fmt: skip
    imported = replace(own, tokenizer=tokenizer, own_frame=without_boundary(own.frame))
    nameless = replace(imported, own_frame=Frame(templates={"tokens": "a"}))
    with serving.serving({"own": own, "imported": imported, "nameless": nameless}) as running:
        yield running


def complete(server: Running, **body: Any) -> Any:
    asked = {"model": "imported", "prompt": PROMPT, "max_tokens": 8, "temperature": 0, **body}
    return serving.post(f"{server.address}/v1/completions", json=asked)


def text_of(server: Running, **body: Any) -> str:
    answer = complete(server, **body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_a_completion_is_what_the_library_writes(server: Running) -> None:
    for name in ("own", "imported"):
        lm = server.lm(name)
        for prompt in (PROMPT, "", f"a dog{END} the"):
            expected = lm.generate(prompt, tokens=8, temperature=0.0)
            assert text_of(server, model=name, prompt=prompt) == expected, (name, prompt)
        assert text_of(server, model=name, boundary=True) == lm.with_boundary().generate(
            PROMPT, tokens=8, temperature=0.0
        )
        assert text_of(server, model=name, boundary=False) == lm.without_boundary().generate(
            PROMPT, tokens=8, temperature=0.0
        )


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("boundary", [None, True, False])
def test_the_prompt_is_scored_as_the_library_does(server: Running, boundary: bool | None, search: bool) -> None:
    body = {"echo": True, "logprobs": 0, "boundary": boundary, "use_beam_search": search, "max_tokens": 2}
    (choice,) = complete(server, **body).json()["choices"]
    lm = server.lm("imported")
    lm = lm if boundary is None else lm.with_boundary() if boundary else lm.without_boundary()
    expected = lm.score(PROMPT).token_nats[0]
    found = choice["logprobs"]["token_logprobs"][: len(expected)]
    assert found == pytest.approx((-expected).tolist(), abs=1e-4)


def test_special_tokens_in_a_text(server: Running) -> None:
    tokenizer = server.lm("own").text_tokenizer
    text, address = f"the cat{END}", f"{server.address}/tokenize"
    for adds in (False, True):
        asked = {"prompt": text, "add_special_tokens": adds}
        own, imported = (serving.post(address, json={**asked, "model": name}).json() for name in ("own", "imported"))
        ids = [*tokenizer.encode("the cat"), tokenizer.boundary]
        assert imported["tokens"] == ids
        assert own["tokens"] == ([tokenizer.boundary] if adds else []) + ids


def test_what_cannot_be_done_is_reported(server: Running) -> None:
    assert complete(server, model="nameless").status_code == 200
    for body in ({"prompt": ""}, {"boundary": True}, {"echo": True, "logprobs": 0}):
        answer = complete(server, model="nameless", **body)
        assert answer.status_code == 400, answer.text
        assert "no token begins a text" in answer.json()["error"]["message"]
