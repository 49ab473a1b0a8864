"""Chat templates: how a fine-tuned chat model was shown the messages of a conversation, as one text.

A template is a Jinja program that comes with the model, so it is not trusted: see `chat_renderer.py`.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lmlab.files import write_text
from lmlab.parsing import load_json
from lmlab.progress import check_cancelled

FILE = "chat.json"
"""What a run keeps its chat template in."""
LONGEST_TEMPLATE = 2**20
LONGEST_TEXT = 2**24
"""Characters of a template, and of the text that it may write."""
SECONDS = 10.0
"""Of computing, after which the process of a template is ended; on a busy machine that takes longer."""
WAIT = 6
"""How many times as long it is waited for."""
POLL = 0.1
"""Seconds after which a waiting thread looks whether its work was cancelled."""
PROGRAM = Path(__file__).with_name("chat_renderer.py")

Messages = Sequence[Mapping[str, str]]


class ChatTemplateError(ValueError):
    """A template refuses these messages; the message is the template's own."""


class BrokenTemplateError(ChatTemplateError):
    """A template cannot be rendered, whatever the messages: a mistake in it, or too much time or memory."""


class EndedTemplateError(BrokenTemplateError):
    """The process of a template was ended, because it took too much time or memory."""


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
        write_text(folder / FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """The template in the `chat.json` of a run directory."""
        path = folder / FILE
        try:
            content = load_json(path.read_text(encoding="utf-8"))
            text, tokens = content["template"], content["special_tokens"]
            if not isinstance(text, str) or not all(isinstance(each, str) for each in (*tokens, *tokens.values())):
                raise TypeError("the template must be a text, and special_tokens a table of texts")
            return cls(text=text, special_tokens=tokens)
        except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
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
            raise ValueError(f"{message!r} is not a message with a role and a content, each a str: {form}")
    return messages


class _Process:
    """The program that renders a template: started when it is first needed, and again after it was ended."""

    def __init__(self, template: str) -> None:
        self._template, self._lock = template, threading.Lock()
        self._running: subprocess.Popen[str] | None = None
        self._end: Callable[[], object] = lambda: None

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text of the template; a `CancelledError` as soon as the work is cancelled, which ends the program."""
        while not self._lock.acquire(timeout=POLL):
            check_cancelled()
        try:
            answer = _ask(self._start(), {"variables": variables, "most": LONGEST_TEXT, "seconds": SECONDS})
        except (OSError, ValueError):
            self._end()
            raise EndedTemplateError(
                f"the chat template was ended: it took more than {SECONDS:g} seconds, or too much memory"
            ) from None
        except BaseException:  # cancelled, or Ctrl-C: its answer must not be taken for that of the next request
            self._end()
            raise
        finally:
            self._lock.release()
        if "error" in answer:
            message = "".join(filter(str.isprintable, " ".join(str(answer["error"])[:1000].split())))
            if answer.get("refused"):
                raise ChatTemplateError(f"the chat template says: {message}")
            raise BrokenTemplateError(f"the chat template fails: {message}")
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
    """The answer of the program; a `TimeoutError` where it takes too long."""
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(json.dumps(request) + "\n")
    running.stdin.flush()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    read = running.stdout.readline
    threading.Thread(target=lambda: lines.put(read()), daemon=True).start()  # pipes have no time limit of their own
    end = time.monotonic() + WAIT * SECONDS
    while time.monotonic() < end:
        check_cancelled()
        with suppress(queue.Empty):
            answer: dict[str, Any] = json.loads(lines.get(timeout=POLL))
            return answer
    raise TimeoutError


def _end(running: subprocess.Popen[str]) -> None:
    running.kill()
    running.wait()
    for pipe in (running.stdin, running.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not sent yet cannot be
                pipe.close()
