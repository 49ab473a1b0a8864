"""lmlab train as a user meets it: what --resume takes and refuses, and what happens on a signal."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words, and {i % 5} commas.\n" for i in range(300))
TINY = ["--size", "tiny", "--tokenizer", "characters", "--budget", "3steps", "--set", "train.batch=2"]


@pytest.fixture
def run(run_command, tmp_path: Path):
    """Run a command in a folder that holds book.txt and a finished run."""
    (tmp_path / "book.txt").write_text(TEXT)
    assert run_command("train", "gpt2", "book.txt", "-o", "run", *TINY).code == 0
    return run_command


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--seed", "3"], "--seed"),
        (["--size", "tiny"], "--size"),
        (["--tokenizer", "bytes"], "--tokenizer"),
        (["--source-tokenizer", "bytes"], "--source-tokenizer"),
        (["--split", "0.8,0.2"], "--split"),
        (["--documents", "lines"], "--documents"),
        (["--overwrite"], "--overwrite"),
        (["-o", "other"], "--output"),
        (["--from", "run"], "--from"),
        (["--recipe", "r.toml"], "--recipe"),
        (["--set", "model.layers=3"], "--set model.layers"),
        (["--set", "data.split=[0.8,0.2]", "--size", "tiny"], "--size, --set data.split"),
        (["--set", "train.seed=9"], "train.seed"),
        (["--set", "train.batch=9", "--set", "train.order=streams"], "train.batch, train.order"),
    ],
)
def test_what_cannot_change_on_resuming_is_refused_by_name(run, options: list[str], named: str) -> None:
    said = run("train", "--resume", "run", *options)
    assert said.code == 2
    assert f"error: --resume continues run as it was started: {named} cannot be changed" in said.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["gpt2"], "gpt2"),
        (["--valid", "other.txt"], "is not the text that run was trained on"),
        (["--test", "other.txt"], "is not the text that run was trained on"),
        (["--text", "other.txt"], "other.txt is not the text that run was trained on"),
        (["--valid-source", "other.txt"], "valid_source belongs to pairs"),
        (["--pairs", "other.txt"], "pairs"),
        (["--country", "Atlantis"], "Atlantis"),
        (["--budget", "soon"], "budget 'soon' is not understood"),
        (["--set", "train.rtae=3"], "did you mean 'rate'?"),
    ],
)
def test_nothing_is_dropped_on_resuming(run, tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "other.txt").write_text(TEXT.upper())
    said = run("train", "--resume", "run", *options)
    assert said.code == 2
    assert message in said.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("kind", ["gpt2", "ngram"])
def test_a_device_that_is_not_there_is_an_error(run, kind: str) -> None:
    if kind == "ngram":
        assert run("train", "ngram", "book.txt", "-o", "counts").code == 0
    said = run("train", "--resume", "run" if kind == "gpt2" else "counts", "--device", "cuda")
    assert said.code == 2
    assert "device 'cuda' cannot be used here" in said.err


def test_what_may_change_on_resuming_is_honoured(run, tmp_path: Path) -> None:
    options = ["--budget", "5steps", "--device", "cpu", "--country", "SE", "--text", "book.txt"]
    assert run("train", "--resume", "run", *options).code == 0
    changes = json.loads((tmp_path / "run" / "recipe.json").read_text())["changes"]
    assert changes == [{"step": 3, "train": {"budget": "5steps", "device": "cpu", "country": "SE"}}]
    again = run("train", "--resume", "run", "--budget", "4steps")
    assert again.code == 0
    assert "run was finished already: nothing was changed" in again.out


@pytest.mark.parametrize("kind", ["gpt2", "ngram"])
def test_the_same_command_again_shows_the_finished_run(run, kind: str, tmp_path: Path) -> None:
    command = ["train", kind, "book.txt", "-o", "twice", *(TINY if kind == "gpt2" else ["--tokenizer", "bytes"])]
    first = run(*command)
    assert first.code == 0, first.err
    weights = (tmp_path / "twice" / "model.safetensors").stat().st_mtime_ns
    again = run(*command)
    assert again.code == 0, again.err
    assert "twice was finished already: nothing was changed" in again.out
    assert again.out.endswith(first.out), "the result is shown again"
    assert (tmp_path / "twice" / "model.safetensors").stat().st_mtime_ns == weights
    other = run(*command, "--seed", "7")
    assert other.code == 2
    assert "twice was started with other settings (train.seed)" in other.err
    (tmp_path / "book.txt").write_text(TEXT * 2)
    changed = run(*command)
    assert changed.code == 2
    assert "is not the text that twice was trained on" in changed.err


def test_the_next_step_can_be_copied_to_a_shell(run, tmp_path: Path) -> None:
    said = run("train", "gpt2", "book.txt", "-o", "it's my run", *TINY)
    command = said.out.partition("Next: ")[2].partition(" or: ")[0]
    words = shlex.split(command)
    assert words[:3] == ["lmlab", "generate", "it's my run"]
    assert words[3] in TEXT
    assert run(*words[1:], "--tokens", "5").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_count(number: signal.Signals, tmp_path: Path) -> None:
    """The signal comes in the midst of counting; a second one is not needed, and nothing is left."""
    (tmp_path / "book.txt").write_text(TEXT)
    code = (
        "import os, sys; import lmlab.models.ngram as ngram; from lmlab.cli import main\n"
        "count = ngram.count_ngrams\n"
        "def counting(*arguments, **options):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    return count(*arguments, **options)\n"
        "ngram.count_ngrams = counting\n"
        "sys.argv = ['lmlab', 'train', 'ngram', 'book.txt', '-o', 'run']\n"
        "main()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert said.returncode == 130, said.stderr
    assert "Interrupted while counting: nothing was written" in said.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["book.txt"]


def test_a_run_is_made_again_from_its_recipe(run, tmp_path: Path) -> None:
    said = run("train", "--recipe", "run/recipe.json", "-o", "again")
    assert said.code == 0, said.err
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again")]
    assert weights[0] == weights[1]
    (tmp_path / "other.json").write_text('{"a": 1}')
    assert "is not the recipe.json of a run" in run("train", "--recipe", "other.json", "-o", "third").err


def test_the_same_command_with_resume_continues_the_run(run, tmp_path: Path) -> None:
    command = ["gpt2", "book.txt", "-o", "again", "--size", "tiny", "--device", "cpu", "--tokenizer", "words"]
    assert run("train", *command, "--budget", "2steps").code == 0
    said = run("train", *command, "--budget", "2steps", "--resume")
    assert said.code == 0, said.err
    assert "was finished already" in said.out
    other = run("train", *command, "--budget", "3steps", "--resume")
    assert "was started with other settings (train.budget" in other.err
    both = run("train", *command, "--budget", "2steps", "--resume", "--overwrite")
    assert "give one of them" in both.err


def test_a_moved_text_is_named_after_the_run(run, tmp_path: Path) -> None:
    moved = (tmp_path / "book.txt").rename(tmp_path / "moved.txt")
    assert run("train", "--resume", "run", str(moved), "--budget", "6steps").code == 0
    said = run("train", "--resume", "run", "--text", str(moved), "--budget", "7steps")
    assert said.code == 0
    assert "--text FILE is now FILE after the run" in said.err


def test_what_does_not_fit_the_weights_is_named(run) -> None:
    said = run("train", "gpt2", "book.txt", "--from", "run", "-o", "other", "--set", "model.layers=7")
    assert "model.layers = 7 does not fit the weights of run; omit it" in said.err
    said = run("train", "gpt2", "book.txt", "--from", "run", "-o", "other", "--set", "model.dropout=0.3",
               "--budget", "1steps", "--set", "train.batch=2")  # fmt: skip
    assert said.code == 0, said.err


def test_a_variable_that_is_not_set_is_named(run_command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LMLAB_NOWHERE", raising=False)
    (tmp_path / "r.toml").write_text('[data]\ntext = "${LMLAB_NOWHERE}/a.txt"\n[model]\nkind = "gpt2"\n')
    assert (
        "the environment variable LMLAB_NOWHERE is not set" in run_command("train", "--recipe", "r.toml", "-o", "x").err
    )


def test_debug_may_stand_after_the_verb(run) -> None:
    said = run("train", "gpt2", "nothing.txt", "-o", "x", "--debug")
    assert "Traceback" in said.err
    assert "nothing.txt" in said.err
