"""Fine-tuning that was interrupted ends with the weights it would have had anyway; so does a study."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from killing import kill_while_saving
from lmlab.runs.storage import read_tensors
from lmlab.transfer.finetune import finetune
from lmlab.transfer.folder import Execution, finetune_trial
from lmlab.transfer.study import run_study
from lmlab.transfer.study_plans import plan_curve
from lmlab.transfer.task_data import TaskData, open_data
from lmlab.transfer.trials import Trial, plan_trial, run_trials
from toy_tasks import write_reviews, write_tagged, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
SETTINGS = {"batch": 4, "budget": "30steps", "save_seconds": 0, "evaluations": 3}
WAYS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gradual": ("bert", "names.conll", {"crf": True}),
    "frozen": ("gpt2", "reviews.tsv", {}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("place")
    write_toy_run(root / "bert", "bert", dropout=0.2)
    write_toy_run(root / "gpt2", "gpt2", dropout=0.2)
    write_reviews(root / "reviews.tsv")
    write_tagged(root / "names.conll")
    return root


@pytest.fixture
def reviews(place: Path) -> TaskData:
    return open_data(place / "reviews.tsv")


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run, without what the clock says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "cost"} for line in lines]


@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
@pytest.mark.parametrize("how", WAYS)
def test_killed_and_resumed_is_bit_identical(
    how: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, data, task = WAYS[how]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    trial = Trial(origin=place / kind, method=how, task=task, train=SETTINGS)
    opened = open_data(place / data)
    command = ["finetune", str(place / kind), str(place / data), "--how", how, "--no-controls", "-o", str(killed)]
    command += ["--crf"] if task else []
    command += [f"--set=train.{name}={value}" for name, value in SETTINGS.items()]
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "of the whole"))
    finetune_trial(trial, opened, whole, controls=False)
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "of the killed"))  # each reads the examples, and pays for it, once
    kill_while_saving(*command, run="killed", saves=12)
    assert not (killed / "scores.json").exists(), "it was killed half-way"
    assert finetune_trial(trial, opened, killed, controls=False, execution=Execution(resume=True)) is not None
    for name in ("model.safetensors", "head.safetensors", "predictions.jsonl", "last/model.safetensors"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    expected, got = (read_tensors(run / "last" / "training.safetensors") for run in (whole, killed))
    assert expected.keys() == got.keys()
    assert all(expected[name].equal(got[name]) for name in expected)
    assert metrics(whole) == metrics(killed)


class After:
    """Interrupts when asked for the n-th time."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self) -> bool:
        self.count -= 1
        return self.count < 0


def trial_of(place: Path, **changes: Any) -> Trial:
    return replace(Trial(origin=place / "bert", train={"budget": "6steps", "evaluations": 1}), **changes)


def test_an_interrupted_study_is_resumed(place: Path, reviews: TaskData, tmp_path: Path) -> None:
    curve = plan_curve(trial_of(place), [8, 12, None], seeds=1, most=len(reviews.labelled.train))
    trials = [plan_trial(each, reviews) for each in curve]

    def run(folder: Path, interrupted: Callable[[], bool] = lambda: False) -> Any:
        return run_study("curve", trials, reviews, folder, interrupted=interrupted)

    whole = run(tmp_path / "whole")

    def results() -> list[Path]:
        return list((tmp_path / "study" / "trials").glob("*.json"))

    assert run(tmp_path / "study", lambda: bool(results())) is None, "interrupted as soon as a trial is done"
    assert not (tmp_path / "study" / "scores.json").exists()
    done = results()
    assert 0 < len(done) < 3
    written = {path: path.stat().st_mtime_ns for path in done}
    study = run(tmp_path / "study")
    assert {path: path.stat().st_mtime_ns for path in done} == written, "what is done is not done again"
    for one, other in zip(whole.results, study.results, strict=True):
        assert one.values == other.values


def test_a_trial_that_changed_begins_again(place: Path, reviews: TaskData, tmp_path: Path) -> None:
    """Interrupted or done: what was learnt with other settings, examples or weights is not resumed."""
    trial = trial_of(place)

    def steps(trial: Trial, data: TaskData = reviews) -> list[tuple[int, int]]:
        return [(result.steps, result.examples) for _, result in run_trials([plan_trial(trial, data)], tmp_path)]

    assert list(run_trials([plan_trial(trial, reviews)], tmp_path, interrupted=After(3))) == []
    assert (tmp_path / trial.name / "last").is_dir()
    other = trial_of(place, train={"budget": "3steps", "rate": 1e-4, "evaluations": 1})
    assert plan_trial(other, reviews).find_changes(tmp_path / trial.name) == ["train.budget", "train.rate"]
    assert plan_trial(trial, reviews).find_changes(tmp_path / trial.name) == []
    assert steps(other) == [(3, 48)]
    assert steps(trial) == [(6, 48)], "it is done anew, though the folder of the other is there"
    fewer = replace(reviews, labelled=replace(reviews.labelled, valid=reviews.labelled.valid[1:]))  # type: ignore[index]
    assert plan_trial(trial, fewer).find_changes(tmp_path / trial.name) == ["examples"]


def test_what_was_left_beside_a_run_is_made_up_for(place: Path, reviews: TaskData, tmp_path: Path) -> None:
    trial, run = trial_of(place), tmp_path / "run"
    assert finetune_trial(trial, reviews, run, execution=Execution(interrupted=After(9))) is None
    assert (run / "model.safetensors").is_file()
    with pytest.raises(ValueError, match="already contains a run"):
        finetune_trial(trial, reviews, run)
    weights = (run / "model.safetensors").read_bytes()
    done = finetune_trial(trial, reviews, run, execution=Execution(resume=True))
    assert done is not None
    assert [each.method for each in done.study.results] == ["baseline", "baseline", "full", "frozen", "scratch"]
    assert (run / "model.safetensors").read_bytes() == weights


def test_resumed_where_the_examples_have_moved(place: Path, reviews: TaskData, tmp_path: Path) -> None:
    moved = write_reviews(tmp_path / "moved.tsv")
    first = write_reviews(tmp_path / "first.tsv")
    trial, run = trial_of(place), tmp_path / "run"
    assert (
        finetune_trial(trial, open_data(first), run, controls=False, execution=Execution(interrupted=After(3))) is None
    )
    first.unlink()
    done = finetune_trial(trial, open_data(moved), run, controls=False, execution=Execution(resume=True))
    assert done is not None
    whole = finetune(
        place / "bert", moved, output=tmp_path / "whole", controls=False, train={"budget": "6steps", "evaluations": 1}
    )
    assert (run / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
