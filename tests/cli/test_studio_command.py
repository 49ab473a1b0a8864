"""lmlab studio refuses in one line what it cannot do, and ends quietly."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE

pytest.importorskip("fastapi")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "nowhere is not a folder"),
        ([".", "--host", "0.0.0.0"], "give a --token"),
        ([".", "--token", "short"], "8 or more"),
        ([".", "--lecture", "none.toml"], "none.toml does not exist"),
        ([".", "--text", "none.txt"], "none.txt does not exist"),
    ],
)
def test_what_cannot_be_opened_is_one_line(run_command: Callable[..., Any], arguments: list[str], told: str) -> None:
    said = run_command("studio", *arguments)
    assert said.code == 2
    assert told in said.err


def test_a_port_that_is_taken_is_named(run_command: Callable[..., Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = run_command("studio", ".", "--port", str(port))
    assert said.code == 2
    assert f"--port {port}" in said.err


def test_it_opens_before_torch_is_imported_and_ends_when_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lmlab", "studio", str(tmp_path), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert server.stdout is not None
        found = re.search(r"(http://127\.0\.0\.1:\d+/)#token=[\w-]{20,}", server.stdout.readline())
        assert found is not None
        with urllib.request.urlopen(f"{found[1]}health") as answer:
            assert answer.status == 200
    finally:
        server.send_signal(signal.SIGINT)
        _, told = server.communicate(timeout=PATIENCE)
    assert "Traceback" not in told
    assert server.returncode in (0, 130)
