"""Folders of fine-tuned runs and studies: what is ours is resumed, and nothing of the user's is ever removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from killing import kill_while_saving
from lmlab.runs.run_files import is_study
from lmlab.runs.storage import read_json, read_tensors
from lmlab.transfer.finetune import finetune
from toy_tasks import write_reviews, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
QUICK = ["--set", "train.budget=4steps", "--set", "train.evaluations=1"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_toy_run(tmp_path / "bert", "bert", dropout=0.1)
    write_reviews(tmp_path / "reviews.tsv")
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_trials_that_are_the_users(place: Path, run_command: Callable[..., Any], more: list[str]) -> None:
    for folder, file, text in (
        ("mine/trials/first", "weights.bin", "years of work"),
        ("scores", "scores.json", '{"kind": "curve of my own"}'),
        ("scores/trials", "notes.json", '{"key": 1}'),
    ):
        (place / folder).mkdir(parents=True, exist_ok=True)
        (place / folder / file).write_text(text)
    before = contents(place)
    for output in ("mine", "scores"):
        said = run_command("finetune", "bert", "reviews.tsv", "--examples", "4", "-o", output, *more, *QUICK)
        assert said.code == 2
        assert "was not made by lmlab finetune or compare; choose another -o" in said.err
    assert contents(place) == before


def test_a_study_is_replaced_and_the_rest_stays(place: Path, run_command: Callable[..., Any]) -> None:
    command = ["finetune", "bert", "reviews.tsv", "--examples", "4", "-o", "curve", *QUICK]
    assert run_command(*command).code == 0
    trials, (trial,) = place / "curve" / "trials", (place / "curve" / "trials").glob("bert*/")
    own = [trials / "own" / "model.bin", trials / "baselines" / "mine.jsonl"]
    for path in (place / "curve" / "notes.txt", trials / "thesis.txt", *own, trial / "mine"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("kept")
    mine = {path for path, content in contents(place / "curve").items() if content == b"kept"}
    assert len(mine) == 5
    said = run_command(*command, "--seed", "3", "--overwrite")
    assert said.code == 0, said.err
    assert {path for path, content in contents(place / "curve").items() if content == b"kept"} == mine
    assert sorted(path.name for path in trials.glob("*.json")) == ["bert-full-4-seed-3.json"]
    assert [path.name for path in trial.iterdir()] == ["mine"]
    assert sorted(path.name for path in (trials / "baselines").iterdir()) == [
        "bag_of_words-4-seed-3.jsonl",
        "majority-4-seed-3.jsonl",
        "mine.jsonl",
    ], "those of the seed before are gone"
    shutil.rmtree(trials)
    (place / "curve" / "notes.txt").unlink()
    assert is_study(place / "curve"), "by its scores"


def test_what_is_beside_a_run_and_is_the_users(place: Path, run_command: Callable[..., Any]) -> None:
    command = ["finetune", "bert", "reviews.tsv", "-o", "stars", *QUICK]
    assert run_command(*command).code == 0
    beside = place / "stars" / "controls"
    (beside / "own").mkdir()
    (beside / "own" / "thesis.txt").write_text("kept")
    said = run_command(*command, "--no-controls", "--overwrite")
    assert said.code == 0, said.err
    assert [path.relative_to(beside) for path in beside.rglob("*") if path.is_file()] == [Path("own/thesis.txt")]
    said = run_command(*command[:3], "--examples", "4", "-o", "stars", *QUICK)
    assert "contains a run, and a study needs its own folder" in said.err


def test_killed_at_the_very_start(place: Path, run_command: Callable[..., Any]) -> None:
    (place / "stars").mkdir()
    for name in (".lock", "tokenizer.json", ".config.json.new"):
        (place / "stars" / name).touch()
    said = run_command("finetune", "bert", "reviews.tsv", "-o", "stars", "--no-controls", *QUICK)
    assert said.code == 0, said.err
    assert "give one of them" in run_command("finetune", "bert", "reviews.tsv", "--resume", "--overwrite").err
    trial = place / "curve" / "trials" / "bert-full-4-seed-0"
    trial.mkdir(parents=True)
    (trial / ".lock").touch()
    said = run_command("finetune", "bert", "reviews.tsv", "--examples", "4", "-o", "curve", *QUICK)
    assert said.code == 0, said.err


WRONG = {
    "no run": (["--runs", ","], "--runs ,: give names"),
    "no way": (["--runs", "bert", "--how", ","], "--how ,: give names"),
    "two files": (["--runs", "bert", "--valid", "a.tsv", "--valid", "b.tsv"], "--valid a.tsv --valid b.tsv"),
    "both": (["--runs", "bert", "--resume", "--overwrite"], "give one of them"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_comparisons_of_runs_are_one_line(case: str, place: Path, run_command: Callable[..., Any]) -> None:
    arguments, words = WRONG[case]
    said = run_command("compare", "reviews.tsv", "-o", "report", *arguments)
    assert said.code == 2
    assert words in said.err
    assert "unexpected" not in said.err
    assert not (place / "report").exists()


@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
@pytest.mark.parametrize("how", ["full", "frozen"])
def test_resumed_by_train_where_the_examples_have_moved(
    how: str, place: Path, run_command: Callable[..., Any], tmp_path: Path
) -> None:
    settings = {"batch": 4, "budget": "30steps", "save_seconds": 0, "evaluations": 3}
    whole = finetune("bert", "reviews.tsv", output="whole", how=how, controls=False, train=settings).path
    command = ["finetune", "bert", "reviews.tsv", "--how", how, "--no-controls", "-o", "killed"]
    command += [f"--set=train.{name}={settings[name]}" for name in settings]
    kill_while_saving(*command, run="killed", saves=12)
    assert not (place / "killed" / "scores.json").exists(), "it was killed half-way"
    (place / "reviews.tsv").rename(place / "moved.tsv")
    said = run_command("train", "--resume", "killed")
    assert said.code == 2
    assert "lmlab train --resume killed NEW" in said.err
    said = run_command("train", "--resume", "killed", "--text", "moved.tsv")
    assert said.code == 0, said.err
    for name in ("model.safetensors", "head.safetensors"):
        expected, got = read_tensors(whole / name), read_tensors(place / "killed" / name)
        assert all(expected[key].equal(got[key]) for key in expected), name
    assert read_json(place / "killed" / "recipe.json")["data"]["examples"] == [str(place / "moved.tsv")]
    assert run_command("train", "--resume", "killed").code == 0, "it is found there from now on"


ENDED = {
    "reading": (
        "lmlab.tasks.frozen_vectors",
        "_store",
        ["--how", "frozen", "--no-controls"],
        "nothing was written yet",
    ),
    "baselines": ("lmlab.transfer.study", "score_baseline", [], "nothing was written yet"),
    "baselines of a study": ("lmlab.transfer.study", "score_baseline", ["--examples", "4"], "nothing was written yet"),
    "scoring": (
        "lmlab.transfer.trials",
        "score_run",
        [],
        "finished work is saved in out. Resume with the same command and --resume",
    ),
    "scoring of a study": (
        "lmlab.transfer.trials",
        "score_run",
        ["--examples", "4,8"],
        "finished work is saved in out. Resume with the same command (",
    ),
}


@pytest.mark.skipif(os.name == "nt", reason="there are no such signals")
@pytest.mark.parametrize("when", ENDED)
def test_a_signal_is_heard(when: str, place: Path) -> None:
    """One is enough, wherever it comes; where nothing was learnt yet, nothing is left."""
    module, name, more, words = ENDED[when]
    code = (
        f"import os, sys; import {module} as module; from lmlab.cli import main\n"
        f"work, reported = module.{name}, []\n"
        "def working(*arguments, **options):\n"
        "    if not reported:\n"
        f"        reported.append(os.kill(os.getpid(), {int(signal.SIGINT)}))\n"
        "    return work(*arguments, **options)\n"
        f"module.{name} = working\n"
        f"sys.argv = ['lmlab', 'finetune', 'bert', 'reviews.tsv', '-o', 'out', *{[*more, *QUICK]!r}]\n"
        "main()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment["LMLAB_CACHE"] = str(place / "cache")
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert said.returncode == 130, said.stderr
    assert f"Interrupted; {words}" in said.stdout
    assert "scores" not in said.stdout
    if "nothing" in words:
        assert not (place / "out").exists()
    assert not list((place / "cache").rglob("*.new"))
