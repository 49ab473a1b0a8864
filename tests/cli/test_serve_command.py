"""`lmlab serve` as users run it: in a process of its own, ended by a signal."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from patience import PATIENCE
from standins import write_run


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lmlab", "serve", *arguments, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://\S+", line):
            return process, found[0]
    raise AssertionError("the server did not start")


def test_a_server_lets_streams_end_when_it_stops(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    process, address = start(str(write_run(tmp_path / "book", "gpt2")), "--max-tokens", "1000000", "--drain", "0.5")
    try:
        assert httpx.get(f"{address}/health", timeout=PATIENCE).json() == {"status": "ok"}
        asked = {"model": "book", "prompt": "the", "max_tokens": 3}
        short = httpx.post(f"{address}/v1/completions", json=asked, timeout=PATIENCE)
        assert short.json()["choices"][0]["finish_reason"] in ("length", "stop")
        body = {"prompt": "the", "max_tokens": 10**6, "stream": True, "logit_bias": {"0": -100}}
        events: list[dict[str, Any]] = []
        with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=PATIENCE) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line[6:]))
                    if len(events) == 3:
                        process.send_signal(signal.SIGTERM)
        assert "shutting down" in events[-1]["error"]["message"]
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM, 143)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "--token"),
        (["--host", "192.168.1.1"], "--token"),
        (["--token", "short"], "8 to 200 letters"),
    ],
)
def test_what_is_not_safe_is_refused(
    run_command: Callable[..., Any], tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "book").mkdir()
    said = run_command("serve", str(write_run(tmp_path / "book", "ngram")), *arguments)
    assert said.code == 2
    assert says in said.err


def test_names_must_differ_and_runs_be_there(run_command: Callable[..., Any], tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "book").mkdir(parents=True)
        write_run(tmp_path / parent / "book", "ngram")
    said = run_command("serve", str(tmp_path / "a" / "book"), str(tmp_path / "b" / "book"))
    assert said.code == 2
    assert "several runs are named book" in said.err
    said = run_command("serve", "nowhere")
    assert said.code == 2
    assert "does not exist" in said.err
