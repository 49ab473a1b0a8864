"""Ctrl-C, once and again, ends both commands without a traceback, also while something is under way."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from serving import read_until

from patience import PATIENCE, wait_until
from standins import write_run

ENDED = (130, -signal.SIGINT)
"""Interrupted: as the command says it, or where the interpreter had ended already."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ctrl-c")
    (folder / "lstm").mkdir()
    write_run(folder / "lstm", "lstm", spec="words")
    return folder


@contextmanager
def command(*words: str, says: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A command that serves, its port, and the line that tells it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lmlab", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if says in line)
        yield process, int(re.search(r":(\d+)", line)[1]), line  # type: ignore[index]
    finally:
        process.kill()
        process.wait()


def interrupt_until_it_ends(process: subprocess.Popen[str], port: int, *, times: int) -> str:
    """Send Ctrl-C, and once the server is closing again and again; what is printed until the end."""
    process.send_signal(signal.SIGINT)

    def closing() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return process.poll() is not None
        return True

    wait_until(closing)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    assert process.stdout is not None
    printed = process.stdout.read()
    process.wait(PATIENCE)
    return printed


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
@pytest.mark.parametrize("times", [0, 1, 40])
def test_serve_ends_without_a_traceback(runs: Path, times: int) -> None:
    run = str(runs / "lstm")
    options = ["--port", "0", "--max-tokens", "1000000", "--drain", "0" if not times else "60"]
    with command("serve", run, *options, says="serving at") as (process, port, _):
        body = json.dumps({"prompt": "the", "max_tokens": 10**6, "logit_bias": {"0": -100}, "stream": True}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            read_until(connection, b"data: ")
            printed = interrupt_until_it_ends(process, port, times=times)
    assert "Traceback" not in printed, printed
    assert "Error" not in printed, printed
    assert process.returncode in ENDED


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
@pytest.mark.parametrize("times", [0, 1, 40])
def test_the_studio_ends_without_a_traceback(runs: Path, times: int) -> None:
    with command("studio", str(runs), "--port", "0", says="The studio is open") as (process, port, line):
        token = re.search(r"token=(\S+)", line)[1]  # type: ignore[index]
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
            printed = interrupt_until_it_ends(process, port, times=times)
    assert "Traceback" not in printed, printed
    assert process.returncode in ENDED


@pytest.mark.skipif(sys.platform == "win32", reason="a folder cannot have such a name there")
def test_what_the_server_prints_has_no_control_characters(runs: Path, tmp_path: Path) -> None:
    """The name of a run is printed, and the names that a client sends may get into a log."""
    folder = tmp_path / "evil\x1b[31m\x07\u202erun"
    shutil.copytree(runs / "lstm", folder)
    process = subprocess.Popen(
        [sys.executable, "-m", "lmlab", "serve", str(folder), "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        printed = ""
        while "serving at" not in printed:
            line = process.stderr.readline()
            assert line, printed
            printed += line
    finally:
        process.kill()
        process.wait()
    assert "evil\\x1b[31m\\x07\\u202erun: " in printed
    assert not set(printed) & {"\x1b", "\x07", "\u202e"}
    assert "no token: every user of this machine" in printed
