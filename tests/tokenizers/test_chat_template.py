"""Chat templates render as `transformers` renders them, and can do no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chat_models import CONVERSATIONS, QUESTION, TEMPLATES, make_tokenizer
from lmlab.tokenizers import chat_template
from lmlab.tokenizers.chat_template import ChatTemplate, ChatTemplateError


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("style", TEMPLATES)
def test_the_text_is_that_of_transformers(style: str, conversation: str) -> None:
    theirs = make_tokenizer(style)
    ours = ChatTemplate(text=TEMPLATES[style], special_tokens=theirs.special_tokens_map)
    messages = CONVERSATIONS[conversation]
    for add in (True, False):
        expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=add)
        assert ours.render(messages, add_generation_prompt=add) == expected
    assert "goes" in expected or "special" in conversation


def test_what_a_template_says_cannot_steer_a_terminal() -> None:
    with pytest.raises(ChatTemplateError) as error:
        ChatTemplate(text="{{ raise_exception('a\x1b[2Jb\nc' ~ 'x' * 10000) }}").render(QUESTION)
    assert str(error.value).startswith("the chat template says: a[2Jb cxxx")
    assert len(str(error.value)) < 1100


def test_a_template_may_refuse_messages() -> None:
    template = ChatTemplate(text=TEMPLATES["llama-2"], special_tokens={"bos_token": "<s>"})
    with pytest.raises(ChatTemplateError, match="user and assistant must take turns"):
        template.render([*QUESTION, *QUESTION])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{% if %}", "line 1: Expected an expression"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ namespace(__class__=1) }}", "underscore"),
        ("{% set n = namespace() %}{% set n.__init__ = 1 %}", "underscore"),
        ("{{ dict.mro() }}", "no attribute"),
        ("{% include '/etc/hostname' %}", "no loader"),
        ("{{ 'x' * 10 ** 11 }}", "MemoryError"),
        ("{% for _ in range(90000) %}{{ 'x' * 1000 }}{% endfor %}", "more than 16,777,216 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "was ended"),
    ],
)
def test_a_template_that_does_harm_is_an_error(text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate(text=text)
    if why == "was ended":
        monkeypatch.setattr(chat_template, "SECONDS", 2.0)
    for _ in range(2):  # the second time, with a process that may have been ended
        with pytest.raises(ChatTemplateError, match=why):
            template.render(QUESTION)


def test_after_it_was_ended_a_template_renders_other_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    template = ChatTemplate(text="{% if messages | length > 1 %}" + long + "{% endif %}{{ messages[0].content }}")
    monkeypatch.setattr(chat_template, "SECONDS", 2.0)
    with pytest.raises(ChatTemplateError, match="was ended"):
        template.render([*QUESTION, *QUESTION])
    monkeypatch.undo()
    assert template.render(QUESTION) == QUESTION[0]["content"]


def test_after_an_interrupt_answers_belong_to_their_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate(text="{{ messages[0].content }}")
    ask = chat_template._ask

    def interrupt(running: Any, request: Any) -> Any:
        running.stdin.write(json.dumps(request) + "\n")
        running.stdin.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr(chat_template, "_ask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        template.render(QUESTION)
    monkeypatch.setattr(chat_template, "_ask", ask)
    assert template.render([{"role": "user", "content": "other"}]) == "other"


@pytest.mark.parametrize(
    "messages", ["Hello", [], None, [{"role": "user"}], [{"content": "a"}], [{"role": "user", "content": 3}], ["a"]]
)
def test_what_are_no_messages_is_an_error(messages: object) -> None:
    with pytest.raises(ValueError, match="role"):
        ChatTemplate(text="").render(messages)  # type: ignore[arg-type]


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    template = ChatTemplate(text=TEMPLATES["chatml"] + "é", special_tokens={"bos_token": "<s>"})
    template.save(tmp_path)
    assert ChatTemplate.load(tmp_path) == template
    for content in ("[]", "{", '{"template": 3, "special_tokens": {}}', '{"template": ""}'):
        (tmp_path / chat_template.FILE).write_text(content)
        with pytest.raises(ValueError, match=r"chat\.json is damaged"):
            ChatTemplate.load(tmp_path)
    with pytest.raises(ValueError, match="at most 1,048,576"):
        ChatTemplate(text="x" * (2**20 + 1))
