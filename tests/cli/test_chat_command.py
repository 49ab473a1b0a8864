"""lmlab generate --chat: one message, or a conversation on a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lmlab
from chat_models import PLANETS, write_chat_folder
from lmlab.cli.generate import converse
from lmlab.decoding.sampling import Sampling
from lmlab.interop.huggingface import import_run
from patience import PATIENCE

QUESTION, ANSWER = PLANETS[1]
GREEDY: dict[str, Any] = {"sampling": Sampling(temperature=0), "tokens": 30}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    import_run(write_chat_folder(folder / "theirs", "chatml", trained=True), folder / "run")
    return folder / "run"


def test_a_message_is_answered(run_command: Callable[..., Any], run: Path) -> None:
    said = run_command("generate", str(run), QUESTION, "--chat", "--temperature", "0")
    assert (said.code, said.out) == (0, ANSWER)


def test_json_and_several_answers(run_command: Callable[..., Any], run: Path) -> None:
    said = run_command("generate", str(run), "--chat", QUESTION, "--temperature", "0", "--json", "--samples", "2")
    assert json.loads(said.out) == {"prompt": QUESTION, "samples": [ANSWER, ANSWER], "seed": 0}


def test_the_system_message_is_seen(run_command: Callable[..., Any], run: Path) -> None:
    system = "What goes round the sun? Say little."
    said = run_command("generate", str(run), "--chat", QUESTION, "--system", system, "--json", "--seed", "5")
    messages = [{"role": "system", "content": system}, {"role": "user", "content": QUESTION}]
    assert json.loads(said.out)["samples"] == [lmlab.load(run).chat(messages, seed=5)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--chat", "Hello!", "--beams", "3"], "--beams with --chat: answers are sampled"),
        (["--chat", "Hello!", "--no-boundary"], "--boundary with --chat: the chat template writes the special tokens"),
        (["Hello!", "--system", "Be kind"], "--system is a message of a chat: give --chat too"),
        (["--chat"], "there is no message: give one"),
    ],
)
def test_wrong_options_are_errors(run_command: Callable[..., Any], run: Path, options: list[str], why: str) -> None:
    said = run_command("generate", str(run), *options)
    assert said.code == 2
    assert why in said.err


def test_a_run_without_a_template_is_an_error(run_command: Callable[..., Any], run: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    said = run_command("generate", str(tmp_path), "--chat", "Hello!")
    assert said.code == 2
    assert "has no chat template" in said.err


class Seen:
    """A chat that is watched: what it was asked each time."""

    def __init__(self, run: Path) -> None:
        self.chat, self.asked = lmlab.load(run).chat_writer, list[Any]()

    def stream(self, messages: Any, **options: Any) -> Iterator[list[str]]:
        self.asked.append([message["content"] for message in messages])
        return self.chat.stream(messages, **options)


def talk(chat: Any, *lines: str, system: str | None = None) -> str:
    left, shown = iter(lines), list[str]()

    def read() -> str:
        line = next(left, None)
        if line is None:
            raise EOFError
        return line

    converse(chat, system=system, read=read, show=shown.append, **GREEDY)
    return "".join(shown)


def test_a_conversation_has_a_history_until_a_new_one_begins(run: Path) -> None:
    chat = Seen(run)
    said = talk(chat, f"{QUESTION}\n", "\n", "And Venus?\n", "/new\n", QUESTION, "/exit", "never", system="Be kind.")
    first = ["Be kind.", QUESTION]
    answer = lmlab.load(run).chat(
        [{"role": "system", "content": "Be kind."}, {"role": "user", "content": QUESTION}], temperature=0, tokens=30
    )
    assert chat.asked == [first, [*first, answer, "And Venus?"], first]
    assert said.startswith(f"{answer}\n")
    assert said.endswith(f"(new conversation)\n{answer}\n")


def test_what_cannot_be_answered_is_reported_and_left_out(run: Path) -> None:
    chat = Seen(run)
    said = talk(chat, "What goes round? " * 100, QUESTION)
    assert said.startswith("error: the conversation has ")
    assert chat.asked[1] == [QUESTION]
    assert said.endswith(f"\n{ANSWER}\n")


def test_an_answer_that_is_interrupted_stays_in_the_conversation(run: Path) -> None:
    class Interrupted(Seen):
        def stream(self, messages: Any, **options: Any) -> Iterator[list[str]]:
            pieces = super().stream(messages, **options)
            if len(self.asked) > 1:
                return pieces
            return self.cut(pieces)

        def cut(self, pieces: Iterator[list[str]]) -> Iterator[list[str]]:
            yield next(pieces)
            raise KeyboardInterrupt

    chat = Interrupted(run)
    said = talk(chat, QUESTION, "And Venus?")
    begun = said.partition("\n")[0]
    assert begun
    assert ANSWER.startswith(begun)
    assert chat.asked[1] == [QUESTION, begun, "And Venus?"]


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_conversation_on_a_terminal(run: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lmlab", "generate", str(run), "--chat", "--temperature", "0"]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    os.write(ours, f"{QUESTION}\n/exit\n".encode())
    out, err = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert (process.returncode, out) == (0, f"{ANSWER}\n"), err
    assert "/new begins a new conversation" in err
