"""`lmlab train --processes 2`, as users start and end it: nothing is left behind, and the run can be resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import lmlab_command
from patience import wait_until

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words.\n\n" for i in range(500))
SETTINGS = (
    *("--size", "tiny", "--tokenizer", "characters", "--documents", "blank", "--device", "cpu"),
    *("--set", "train.batch=4", "--set", "train.save_seconds=0", "--set", "train.evaluate_every=1000000"),
)
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")


def begin(*words: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lmlab", *map(str, words), "--processes", "2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def workers(run: Path) -> dict[int, int]:
    """The processes that train a run, by rank."""
    return dict(_workers(run))


def _workers(run: Path) -> Iterator[tuple[int, int]]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            settings = dict(
                line.split(b"=", 1) for line in (process / "environ").read_bytes().split(b"\0") if b"=" in line
            )
        except OSError:
            continue
        if str(run).encode() in words and b"RANK" in settings:
            yield int(settings[b"RANK"]), int(process.name)


def wait_for_checkpoint(run: Path, process: subprocess.Popen[str]) -> None:
    wait_until(lambda: (run / "last" / "manifest.json").is_file() or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]


def test_whatever_ends_the_processes_the_run_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text, run = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(TEXT)

    started = begin("train", "gpt2", text, "-o", run, "--budget", "1000000steps", *SETTINGS)
    wait_for_checkpoint(run, started)
    os.kill(workers(run)[1], signal.SIGKILL)
    said = started.communicate()[0]
    assert started.returncode == 1, said
    assert "process 1 was ended by SIGKILL" in said
    assert f"lmlab train --resume {run}" in said
    assert "Traceback" not in said
    assert not workers(run)

    before = (run / "last" / "manifest.json").read_bytes()
    resumed = begin("train", "--resume", run)
    wait_until(lambda: (run / "last" / "manifest.json").read_bytes() != before or resumed.poll() is not None)
    resumed.send_signal(signal.SIGTERM)
    said = resumed.communicate()[0]
    assert resumed.returncode == 130, said
    assert said.count("Interrupted at step") == 1
    assert not workers(run)

    assert lmlab_command(monkeypatch, "train", "--resume", run, "--budget", "1step") == 2
    assert "is spent already" in capfd.readouterr().err


def test_torchrun_starts_it_and_an_error_is_said_once(tmp_path: Path) -> None:
    text, run = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(TEXT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "lmlab"]
    words = ["train", "gpt2", text, "-o", run, "--budget", "2steps", *SETTINGS]
    ended = subprocess.run([*torchrun, *words], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("bits per byte on validation text") == 1
    wrong = subprocess.run([*torchrun, *words, "--set", "train.seed=1"], capture_output=True, text=True)
    assert wrong.returncode != 0
    assert wrong.stderr.count("error: ") == 1
    assert "other settings (train.seed)" in wrong.stderr
