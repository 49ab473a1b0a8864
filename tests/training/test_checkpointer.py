"""Interrupted work resumes exactly: killed at any moment, a run ends with the weights it would have had anyway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lmlab.runs.storage import read_json, read_tensors
from patience import PATIENCE, wait_until

TEXT = "".join(f"The {i}th line of {i * 7 % 11} says that {i % 13} is not {i * i % 17}.\n" for i in range(600))
SETTINGS = ["--tokenizer", "characters", "--size", "tiny", "--budget", "30steps", "--seed", "3"]
SETTINGS += [f"--set=train.{setting}" for setting in ("batch=4", "save_seconds=0", "log_every=7", "evaluations=4")]
KINDS = {
    "lstm": ["--set=model.dropout=0.2"],
    "awd-lstm": ["--set=train.window=16"],
    "gpt2": ["--set=model.dropout=0.2", "--set=train.accumulate=2"],
    "transformer-xl": ["--set=train.window=16"],
    "reformer": [*(f"--set=model.{each}" for each in ("dropout=0.2", "window=48", "chunk=4"))],
    "xlnet": [
        "--set=train.window=8",
        "--set=model.memory=20",
        "--set=model.dropout=0.2",
        "--set=objective.unit=span",
        "--set=objective.directions=both",
    ],
    "elmo": ["--tokenizer", "spelled:30", "--set=model.samples=12", "--set=model.dropout=0.2", "--set=train.window=8"],
    "nplm": ["--set=train.optimizer=sgd", "--set=train.momentum=0.9", "--set=train.schedule=plateau"],
}
KILLED = """
import os, signal
from lmlab.training import checkpointer, step
train, write, place, at = step.Step.__call__, checkpointer.write_json, {place!r}, {at}

def one_step(self, number, *rest):
    if place == "step" and number == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return train(self, number, *rest)

def one_file(path, value):
    if place == "save" and value["step"] == at:
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, value)

step.Step.__call__, checkpointer.write_json = one_step, one_file
from lmlab.cli import main
main()
"""
"""A trainer that is killed when it begins a step, or when it has written half of the checkpoint after it."""


def command(*arguments: str, code: str = "from lmlab.cli import main; main()") -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run, without what the clock says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "cost"} for line in lines]


def wait_for_saving(run: Path, process: subprocess.Popen[bytes]) -> None:
    saved = run / "last" / "progress.json"
    wait_until(lambda: saved.is_file() or process.poll() is not None)
    assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_resumed_is_bit_identical(kind: str, text: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = ["train", kind, str(text), *SETTINGS, *KINDS[kind]]
    subprocess.run(command(*arguments, "-o", str(whole)), check=True, capture_output=True)

    place, at = ("step", 17) if list(KINDS).index(kind) % 2 else ("save", 18)
    trainer = command(*arguments, "-o", str(killed), code=KILLED.format(place=place, at=at))
    ended = subprocess.run(trainer, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert read_json(killed / "last" / "progress.json")["step"] == 17
    assert not (killed / "README.md").exists(), "it was killed half-way"

    resumed = subprocess.run(command("train", "--resume", str(killed)), capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    for name in ("model.safetensors", "last/model.safetensors"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    expected, got = (read_tensors(run / "last" / "training.safetensors") for run in (whole, killed))
    assert expected.keys() == got.keys()
    assert all(expected[name].equal(got[name]) for name in expected)
    assert metrics(whole) == metrics(killed)


def test_interrupt_saves_and_exits_130(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["train", "lstm", str(text), *SETTINGS, "-o", str(run), "--budget", "100000steps"]
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_saving(run, process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert f"--resume {run}" in output.decode().replace("\n", "")
    assert json.loads((run / "last" / "progress.json").read_text())["step"] > 0


def test_second_trainer_learns_who_holds_the_run(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["train", "lstm", str(text), *SETTINGS, "-o", str(run), "--budget", "100000steps"]
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for_saving(run, process)
        second = subprocess.run(command("train", "--resume", str(run)), capture_output=True, text=True)
        assert second.returncode == 2
        assert f"process {process.pid}" in second.stderr
    finally:
        process.kill()
        process.communicate()
