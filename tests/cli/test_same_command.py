"""The same command again on what is finished shows it again; `--resume FOLDER` takes all settings from the folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmlab.runs.storage import read_json, read_tensors
from lmlab.transfer.finetune import finetune
from toy_tasks import write_reviews, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")
QUICK = ["--set", "train.budget=4steps", "--set", "train.evaluations=1"]
TRAIN = {"budget": "4steps", "evaluations": 1}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("place")
    write_toy_run(root / "bert", "bert")
    write_toy_run(root / "gpt2", "gpt2")
    write_reviews(root / "reviews.tsv")
    return root


def test_a_finished_run_is_shown_again(
    place: Path, run_command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = finetune(place / "bert", place / "reviews.tsv", output=tmp_path / "stars", seeds=2, train=TRAIN)
    before = [each.model_dump() for each in done.study.results]
    command = ["finetune", str(place / "bert"), str(place / "reviews.tsv"), "-o", "stars", "--seeds", "2"]
    command += [*QUICK, "--json"]
    from lmlab.runs import run

    def fail(*args: Any, **options: Any) -> None:
        raise AssertionError("nothing is to be done")

    for name in ("start", "resume"):
        monkeypatch.setattr(run, name, fail)
    said = run_command(*command)
    assert said.code == 0, said.err
    assert "stars was finished already with the same settings: nothing was trained" in said.err
    assert json.loads(said.out)["results"] == before
    for change, named in (
        (["--set", "train.rate=0.5"], "train.rate"),
        (["--seeds", "1"], "seeds"),
        (["--no-controls"], "--no-controls"),
        (["--how", "gradual"], "objective.method"),
    ):
        said = run_command(*command, *change)
        assert said.code == 2
        assert f"stars was started with other settings ({named}" in said.err
    again = finetune(place / "bert", place / "reviews.tsv", output=tmp_path / "stars", seeds=2, train=TRAIN)
    assert not again.trained
    assert [each.model_dump() for each in again.study.results] == before


def test_a_run_is_resumed_by_its_folder_alone(
    place: Path, run_command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "finetune",
        str(place / "bert"),
        str(place / "reviews.tsv"),
        "--no-controls",
        "--seeds",
        "2",
        "--how",
        "gradual",
    ]
    command += ["--set", "train.save_seconds=0", "--leaks", "train", *QUICK]
    assert run_command(*command, "-o", "whole").code == 0
    from lmlab.transfer import trials

    score = trials.score_run

    def fail(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(trials, "score_run", fail)
        assert run_command(*command, "-o", "part").code == 130
    assert trials.score_run is score
    monkeypatch.chdir(place)  # paths are kept so that they hold from any folder
    said = run_command("finetune", "--resume", str(tmp_path / "part"), "--json")
    assert said.code == 0, said.err
    found = [(each["method"], each["seed"], each["values"]) for each in json.loads(said.out)["results"]]
    whole = read_json(tmp_path / "whole" / "scores.json")["results"]
    assert found == [(each["method"], each["seed"], each["values"]) for each in whole]
    weights = [read_tensors(tmp_path / name / "model.safetensors") for name in ("part", "whole")]
    assert all((weights[0][name] == tensor).all() for name, tensor in weights[1].items())
    said = run_command("finetune", "--resume", str(tmp_path / "part"), "--seeds", "3")
    assert said.code == 2
    assert "takes all settings from the folder, so it takes no --seeds" in said.err
    said = run_command("finetune", "--resume", str(place / "bert"))
    assert said.code == 2
    assert "does not have the command that started it" in said.err
    said = run_command("finetune", str(place / "bert"))
    assert said.code == 2
    assert "which examples? name a file" in said.err


def test_a_finished_comparison_of_runs_is_shown_again(
    place: Path, run_command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = f"{place / 'bert'},{place / 'gpt2'}"
    command = ["compare", str(place / "reviews.tsv"), "--runs", runs, "--how", "frozen", "-o", "report", "--json"]
    first = run_command(*command, *QUICK)
    assert first.code == 0, first.err
    from lmlab.runs import run

    monkeypatch.delattr(run, "start")  # nothing is trained
    again = run_command(*command, *QUICK)
    assert again.code == 0, again.err
    assert again.out == first.out
    assert "report was finished already with the same settings: nothing was trained" in again.err
    alone = run_command("compare", "--resume", "report", "--json")
    assert alone.code == 0, alone.err
    frozen = [
        [each for each in json.loads(said.out)["results"] if each["method"] == "frozen"] for said in (first, alone)
    ]
    assert frozen[0] == frozen[1]
    refused = run_command("compare", "--resume", "report", "--seeds", "2")
    assert refused.code == 2
    assert "takes no --seeds" in refused.err
