"""`lmlab studio` as a command: where its token comes from, what it prints, how it ends."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from patience import PATIENCE, wait_until


def start(folder: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    variables = {name: value for name, value in os.environ.items() if name != "LMLAB_TOKEN"}
    command = [sys.executable, "-m", "lmlab", "studio", str(folder), "--port", "0", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**variables, **environment}
    )


def read_link(studio: subprocess.Popen[str]) -> str:
    assert studio.stdout is not None
    found = re.search(r"http://\S+", studio.stdout.readline())
    assert found is not None
    return found[0]


def status_of(link: str, path: str = "") -> int:
    parts = urlsplit(link)
    asked = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
    asked.request("GET", path or f"{parts.path}?{parts.query}")
    return asked.getresponse().status


def end(studio: subprocess.Popen[str], *signals: signal.Signals) -> str:
    for number in signals or (signal.SIGTERM,):
        studio.send_signal(number)
    _, reported = studio.communicate(timeout=PATIENCE)
    return reported


@pytest.mark.parametrize("given", ["new", "variable", "file", "option"])
def test_the_printed_link_carries_the_token(tmp_path: Path, given: str) -> None:
    token = "sesame+open/8"
    (tmp_path / "token").write_text(f"{token}\n")
    (tmp_path / "token").chmod(0o600)
    options = {"file": ["--token-file", str(tmp_path / "token")], "option": ["--token", token]}.get(given, [])
    studio = start(tmp_path, *options, **({"LMLAB_TOKEN": token} if given == "variable" else {}))
    try:
        link = read_link(studio)
        assert status_of(link) == 303
        assert status_of(link, "/") == 401
        assert status_of(link, "/health") == 200
        assert status_of(link, "/studio/api/runs") == 401
        assert ("sesame%2Bopen%2F8" in link) == (given != "new")
    finally:
        reported = end(studio)
    assert ("--token-file" in reported) == (given == "option")  # a warning that ps shows it


def test_without_a_token_only_where_the_owner_says_so(tmp_path: Path) -> None:
    studio = start(tmp_path, "--no-token", LMLAB_TOKEN="sesame-open")
    try:
        link = read_link(studio)
        assert "token" not in link
        assert status_of(link, "/studio/api/runs") == 200
    finally:
        end(studio)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (["--no-token", "--token-file", "x"], "both given"),
        (["--no-token", "--host", "0.0.0.0"], "leave out --no-token"),
        (["--token-file", "/dev/null"], "not a regular file"),
        (["--allow-data", "nowhere"], "does not exist"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, options: list[str], reported: str) -> None:
    studio = start(tmp_path, *options)
    assert reported in end(studio, signal.SIGCONT)
    assert studio.returncode == 2


@pytest.mark.parametrize("times", [1, 2, 3])
def test_ctrl_c_ends_it_without_a_traceback(tmp_path: Path, times: int) -> None:
    studio = start(tmp_path)
    link = read_link(studio)
    wait_until(lambda: status_of(link, "/health") == 200)
    reported = end(studio, *[signal.SIGINT] * times)
    assert "Traceback" not in reported
    assert studio.returncode in (0, 130)
