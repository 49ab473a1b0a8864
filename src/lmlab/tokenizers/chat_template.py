"""Chat templates: how a fine-tuned chat model was shown the messages of a conversation, as one text.

A template is a Jinja program that comes with the model, so it is not trusted: see `chat_renderer.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

FILE = "chat.json"
"""What a run keeps its chat template in."""
LONGEST_TEMPLATE = 2**20
LONGEST_TEXT = 2**24
"""Characters of a template, and of the text that it may write."""
SECONDS = 10.0
"""Of computing, after which the process of a template is ended; on a busy machine that takes longer."""
WAIT = 6
"""How many times as long it is waited for."""
PROGRAM = Path(__file__).with_name("chat_renderer.py")

Messages = Sequence[Mapping[str, str]]


class ChatTemplateError(ValueError):
    """A template could not write these messages; the message is the template's own, or says what went wrong."""


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """A template, and the special tokens by the names that it may call them (`bos_token`, `eos_token`)."""

    text: str
    special_tokens: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if len(self.text) > LONGEST_TEMPLATE:
            raise ValueError(
                f"a chat template of {len(self.text):,} characters: at most {LONGEST_TEMPLATE:,} are allowed"
            )

    def render(self, messages: Messages, *, add_generation_prompt: bool = True) -> str:
        """The text of a conversation, by default up to where the assistant's next message begins.

        A `ChatTemplateError` gives the reason where the template refuses the messages, or cannot be run.
        """
        variables: dict[str, Any] = {
            **self.special_tokens,
            "messages": [dict(message) for message in check_messages(messages)],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        return self._process.render(variables)

    def save(self, folder: Path) -> None:
        """Write `chat.json` into a run directory."""
        content = {"template": self.text, "special_tokens": dict(self.special_tokens)}
        (folder / FILE).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """The template in the `chat.json` of a run directory."""
        path = folder / FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            text, tokens = content["template"], content["special_tokens"]
            if not isinstance(text, str) or not all(isinstance(each, str) for each in (*tokens, *tokens.values())):
                raise TypeError("the template must be a text, and special_tokens a table of texts")
            return cls(text=text, special_tokens=tokens)
        except (KeyError, TypeError, AttributeError, ValueError, OSError, RecursionError) as error:
            raise ValueError(f"{path} is damaged: {error}") from None

    @cached_property
    def _process(self) -> _Process:
        return _Process(self.text)


def check_messages(messages: object) -> Messages:
    """The messages of a conversation; a ValueError where they are not a list of roles with their texts."""
    form = 'give a list such as [{"role": "user", "content": "Hello"}]'
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise ValueError(f"messages = {messages!r}: {form}")
    if not messages:
        raise ValueError(f"there are no messages: {form}")
    for message in messages:
        if not isinstance(message, Mapping) or not all(
            isinstance(each, str) for each in (message.get("role"), message.get("content"), *message, *message.values())
        ):
            raise ValueError(f"{message!r} is no message with a role and a content, each a str: {form}")
    return messages


class _Process:
    """The program that renders a template: started when it is first needed, and again after it was ended."""

    def __init__(self, template: str) -> None:
        self._template, self._lock = template, threading.Lock()
        self._running: subprocess.Popen[str] | None = None
        self._end: Callable[[], object] = lambda: None

    def render(self, variables: Mapping[str, Any]) -> str:
        with self._lock:
            running = self._start()
            timer = threading.Timer(WAIT * SECONDS, running.kill)
            timer.start()
            try:
                answer = _ask(running, {"variables": variables, "most": LONGEST_TEXT, "seconds": SECONDS})
            except (OSError, ValueError):
                self._end()
                raise ChatTemplateError(
                    f"the chat template was ended: it took more than {SECONDS:g} seconds, or too much memory"
                ) from None
            except BaseException:  # Ctrl-C: its answer must not be taken for that of the next request
                self._end()
                raise
            finally:
                timer.cancel()
        if "error" in answer:
            told = " ".join(str(answer["error"])[:1000].split())
            raise ChatTemplateError(f"the chat template says: {''.join(filter(str.isprintable, told))}")
        return str(answer["text"])

    def _start(self) -> subprocess.Popen[str]:
        if self._running is None or self._running.poll() is not None:
            self._end()
            started = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="ascii",
                start_new_session=True,  # Ctrl-C on the terminal is for the program, not for this
            )
            self._running, self._end = started, weakref.finalize(self, _end, started)
            assert started.stdin is not None
            started.stdin.write(json.dumps(self._template) + "\n")
        return self._running


def _ask(running: subprocess.Popen[str], request: Mapping[str, Any]) -> dict[str, Any]:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(json.dumps(request) + "\n")
    running.stdin.flush()
    answer: dict[str, Any] = json.loads(running.stdout.readline())
    return answer


def _end(running: subprocess.Popen[str]) -> None:
    running.kill()
    running.wait()
    for pipe in (running.stdin, running.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not sent yet cannot be
                pipe.close()
