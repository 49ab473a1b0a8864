"""A fine-tuned run records the weights that it began with, the cost of reading them, and where it was interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmlab.data.readers.files import cache_folder
from lmlab.language_model import load
from lmlab.runs import run
from lmlab.runs.recipe_record import read_record
from lmlab.runs.storage import DamagedError, digest, read_json, write_json
from lmlab.transfer import trials
from lmlab.transfer.finetune import finetune
from lmlab.transfer.folder import Execution, finetune_trial
from lmlab.transfer.study import costs_of
from lmlab.transfer.task_data import TaskData, open_data
from lmlab.transfer.trials import Trial, plan_trial, run_trials
from toy_tasks import write_reviews, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
TRAIN = {"budget": "6steps", "evaluations": 1, "save_seconds": 0}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return write_toy_run(tmp_path / "bert", "bert")


@pytest.fixture
def reviews(tmp_path: Path) -> TaskData:
    return open_data(write_reviews(tmp_path / "reviews.tsv"))


def after(count: int) -> Callable[[], bool]:
    """Interrupts when asked for the n-th time."""
    calls = iter(range(10_000))
    return lambda: next(calls) >= count


def test_another_run_of_the_same_shape_is_refused(bert: Path, reviews: TaskData, tmp_path: Path) -> None:
    twin = write_toy_run(tmp_path / "twin", "bert", seed=1)
    trial, path = Trial(origin=bert, train=TRAIN), tmp_path / "run"
    assert finetune_trial(trial, reviews, path, controls=False, execution=Execution(interrupted=after(3))) is None
    assert read_record(path).origin_sha256 == digest(bert / "model.safetensors")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(ValueError, match=r"started with other settings \(RUN\)"):
        finetune_trial(replace(trial, origin=twin), reviews, path, controls=False, execution=Execution(resume=True))
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    copy = shutil.copytree(bert, tmp_path / "copy")
    assert plan_trial(replace(trial, origin=copy), reviews).find_changes(path) == [], "the same weights elsewhere"
    values = read_json(path / "recipe.json")
    del values["origin_sha256"]
    write_json(path / "recipe.json", values)
    assert plan_trial(replace(trial, origin=twin), reviews).find_changes(path) == [], "an older run does not know"


def test_a_begun_trial_notices_that_its_origin_was_trained_again(bert: Path, reviews: TaskData, tmp_path: Path) -> None:
    trial, folder = Trial(origin=bert, train=TRAIN), tmp_path / "trials"
    assert list(run_trials([plan_trial(trial, reviews)], folder, interrupted=after(3))) == []
    assert (folder / trial.name / "last").is_dir()
    (folder / trial.name / "mine.txt").write_text("kept")
    write_toy_run(bert, "bert", seed=1)
    ((_, resumed),) = run_trials([plan_trial(trial, reviews)], folder)
    ((_, anew),) = run_trials([plan_trial(trial, reviews)], tmp_path / "anew")
    assert resumed.values == anew.values
    predictions = [path / trial.name / "predictions.jsonl" for path in (folder, tmp_path / "anew")]
    assert predictions[0].read_bytes() == predictions[1].read_bytes()
    assert (folder / trial.name / "mine.txt").read_text() == "kept"


def test_a_run_that_has_no_checkpoint_yet_begins_with_the_same_weights(
    bert: Path, reviews: TaskData, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    assert (
        finetune_trial(
            Trial(origin=bert, train=TRAIN), reviews, path, controls=False, execution=Execution(interrupted=after(3))
        )
        is None
    )
    for name in ("last", "previous"):
        shutil.rmtree(path / name)
    write_toy_run(bert, "bert", seed=1)
    with pytest.raises(ValueError, match="which have changed"):
        run.resume(path)


def test_interrupted_while_examples_are_read(bert: Path, reviews: TaskData, tmp_path: Path) -> None:
    trial, path = Trial(origin=bert, method="frozen", train=TRAIN), tmp_path / "run"
    assert finetune_trial(trial, reviews, path, controls=False, execution=Execution(interrupted=lambda: True)) is None
    assert not path.exists()
    assert not [file for file in cache_folder().rglob("*.f32") if file.is_file()], "nothing half read is left"
    assert list(run_trials([plan_trial(trial, reviews)], tmp_path / "trials", interrupted=after(1))) == []
    assert not list((tmp_path / "trials").iterdir())
    assert finetune_trial(trial, reviews, path, execution=Execution(interrupted=lambda: True)) is None, (
        "a baseline was the first thing"
    )
    assert not path.exists()


def test_one_cost_everywhere(bert: Path, reviews: TaskData, tmp_path: Path) -> None:
    """The run, its card and the scores agree; FLOPs do not depend on what is in the cache."""
    trial = Trial(origin=bert, method="frozen", train=TRAIN)
    flops = []
    for name in ("first", "second"):
        done = finetune_trial(trial, reviews, tmp_path / name, controls=False)
        assert done is not None
        (result,) = done.study.results
        reported = costs_of({str(done.path)})[str(done.path)]
        assert reported == {"seconds": result.seconds, "joules": result.joules, "flops": result.flops}
        assert f"{result.seconds:.1f} s" in (done.path / "README.md").read_text()
        again = finetune_trial(trial, reviews, tmp_path / name, controls=False, execution=Execution(resume=True))
        assert again is not None
        assert again.study.results[0].model_dump() == result.model_dump(), "nothing was done, so nothing is paid"
        flops.append(result.flops)
    assert flops[0] == flops[1]


def test_a_budget_in_flops_pays_for_reading_too(bert: Path, reviews: TaskData, tmp_path: Path) -> None:
    done = finetune_trial(Trial(origin=bert, method="frozen", train=TRAIN), reviews, tmp_path / "any", controls=False)
    assert done is not None
    whole = done.study.results[0].flops
    assert whole is not None
    trial = Trial(origin=bert, method="frozen", train={**TRAIN, "budget": f"{whole:.0f}flops"})
    again = finetune_trial(trial, reviews, tmp_path / "same", controls=False)
    assert again is not None
    assert again.study.results[0].flops == pytest.approx(whole)
    poor = Trial(origin=bert, method="frozen", train={**TRAIN, "budget": "1000flops"})
    with pytest.raises(ValueError, match="does not pay for reading the examples once"):
        finetune_trial(poor, reviews, tmp_path / "poor", controls=False)


def test_scores_may_come_and_go(bert: Path, reviews: TaskData, tmp_path: Path) -> None:
    done = finetune_trial(Trial(origin=bert, train=TRAIN), reviews, tmp_path / "run", controls=False)
    assert done is not None
    manifest = read_json(done.path / "manifest.json")
    assert manifest.keys() == {
        *("config.json", "frame.json", "head.safetensors", "model.safetensors"),
        *("recipe.json", "task.json", "tokenizer.json"),
    }
    before = load(done.path).classify("a good film")
    (done.path / "scores.json").write_text("{}")
    assert load(done.path).classify("a good film") == before
    write_json(done.path / "manifest.json", {**manifest, "scores.json": ["of an older version"]})
    (done.path / "scores.json").unlink()
    assert load(done.path).classify("a good film") == before
    (done.path / "task.json").write_text("{}")
    with pytest.raises(DamagedError, match=r"task\.json is damaged"):
        load(done.path)


def test_scored_where_it_was_trained(
    bert: Path, reviews: TaskData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def note(path: Path, *, device: Any = "never said") -> Any:
        asked.append(str(device))
        return load(path)

    monkeypatch.setattr(trials, "choose_device", lambda name: f"best for {name}")
    monkeypatch.setattr(trials, "load", note)
    train = {**TRAIN, "device": "cpu"}
    assert finetune_trial(Trial(origin=bert, train=train), reviews, tmp_path / "run", controls=False) is not None
    assert asked == ["best for cpu"]


def test_layers_among_the_settings_are_recorded(bert: Path, reviews: TaskData, tmp_path: Path) -> None:
    data = tmp_path / "reviews.tsv"
    settings = {"layers": "first"}
    done = finetune(bert, data, output=tmp_path / "run", how="frozen", controls=False, settings=settings, train=TRAIN)
    assert done.study.results[0].layers == "first"
    assert json.loads((done.path / "task.json").read_text())["layers"] == "first"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"settings": settings}, "how='frozen'"),
        ({"settings": {"how": "mix"}}, "give how='mix' instead"),
        ({"train": {"seed": 3}}, "give seed=3 instead"),
    ]
    for options, words in wrong:
        with pytest.raises(ValueError, match=words):
            finetune(bert, data, output=tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()
