"""Questions about pictures as runs: trained, killed and resumed to the bit, answered from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import lmlab
from captioned import write_pictures
from killing import kill_while_saving
from lmlab.cli import app
from lmlab.data.readers.pictures.files import find_pictures
from lmlab.runs import run
from lmlab.runs.storage import read_tensors

SETTINGS: dict[str, Any] = {
    **{"model.convolutions": [8, 16], "model.width": 16, "model.hidden": 32},
    **{"train.batch": 32, "train.rate": 5e-3, "train.warmup": 5},
}
CLIP = {
    **{"model.width": 16, "model.heads": 2, "model.layers": 1, "model.text_width": 16, "model.text_heads": 2},
    **{"model.text_layers": 1, "model.space": 8, "model.patch": 4, "train.batch": 16},
}


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of pictures with two colours, one above the other, and two questions about each."""
    pytest.importorskip("PIL.Image")
    home, rows = tmp_path_factory.mktemp("questions"), ["picture\tquestion\tanswer"]
    for name, upper, lower in write_pictures(home, colours=3):
        rows += [f"{name}\twhat is above?\t{upper}", f"{name}\twhat colour is below?\t{lower}"]
    (home / "questions.tsv").write_text("\n".join(rows) + "\n")
    (home / "captions.tsv").write_text("\n".join(rows).replace("question", "caption", 1).replace("answer", "extra", 1))
    return home / "questions.tsv"


@pytest.fixture(scope="module")
def trained(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    lmlab.train("vqa", questions, output=path, budget="250steps", settings=SETTINGS)
    return path


def call(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_answers_are_learnt_and_printed(trained: Path, questions: Path) -> None:
    found = json.loads(call("evaluate", trained, questions, "--json").splitlines()[-1])
    assert found["split"] == "test"
    assert found["accuracy"] > 0.8
    picture = questions.parent / "red-blue-0.png"
    above, below = (
        json.loads(call("predict", trained, picture, "--question", text, "--json"))
        for text in ("what is above?", "what colour is below?")
    )
    assert (above["predicted"], below["predicted"]) == ("red", "blue")
    assert below["picture"] == str(picture)
    several = call("predict", trained, picture, questions.parent / "green-blue-1.png", "--question", "what is above?")
    assert len(several.splitlines()) == 2
    assert len(call("predict", trained, questions).splitlines()) == 144
    assert "--question" in (trained / "README.md").read_text()


def test_a_run_of_clip_learns_the_task(questions: Path, tmp_path: Path) -> None:
    captions = questions.parent / "captions.tsv"
    lmlab.train("clip", captions, output=tmp_path / "clip", budget="4steps", tokenizer="words", settings=CLIP)
    learnt = lmlab.train(
        "clip",
        questions,
        output=tmp_path / "answers",
        budget="60steps",
        origin=tmp_path / "clip",
        settings={"objective.kind": "visual_questions", "train.batch": 16, "train.rate": 5e-3, "train.warmup": 5},
    )
    assert learnt.progress.step == 60
    found = json.loads(call("evaluate", tmp_path / "answers", questions, "--json").splitlines()[-1])
    assert found["accuracy"] > 0.5, "chance is a third"
    task: Any = lmlab.load(tmp_path / "answers").predictor.task
    assert task.frame.templates == {"tokens": "cls a boundary"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "{run}", "{home}/red-red-0.png"), "give a picture and a question"),
        (("predict", "{run}", "{home}/none.png", "--question", "what is above?"), "none.png"),
        (("evaluate", "{run}", "{home}/strange.tsv"), "is not one of the classes"),
        (("train", "vqa", "{home}/captions.tsv", "-o", "{home}/x"), "have no questions"),
        (("train", "vqa", "{home}/empty.tsv", "-o", "{home}/x"), "has no answer"),
    ],
)
def test_mistakes_are_named(trained: Path, questions: Path, arguments: tuple[str, ...], message: str) -> None:
    home, rows = questions.parent, questions.read_text().splitlines()
    (home / "strange.tsv").write_text(f"{rows[0]}\nred-red-0.png\twhat is above?\tviolet\n")
    (home / "empty.tsv").write_text("\n".join([*rows[:-30], *(row.rsplit("\t", 1)[0] + "\t" for row in rows[-30:])]))
    done = CliRunner().invoke(app, [each.format(run=trained, home=home) for each in arguments])
    assert done.exit_code != 0
    assert message in str(done.exception) + done.output
    assert not (home / "x").exists()


def test_a_killed_run_resumes_to_the_bit(questions: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "train.save_seconds": 0, "model.dropout": 0.1}
    given = [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    command = ("train", "vqa", str(questions), "--budget", "12steps", *given)
    kill_while_saving(*command, "-o", str(tmp_path / "killed"), run="killed", saves=3)
    resumed = run.resume(tmp_path / "killed")
    whole = lmlab.train("vqa", questions, output=tmp_path / "whole", budget="12steps", settings=settings)
    assert resumed.progress.step == whole.progress.step == 12
    for file in ("model.safetensors", "head.safetensors"):
        one, other = (read_tensors(tmp_path / name / file) for name in ("killed", "whole"))
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_built_in_questions_share_their_pictures() -> None:
    rows = find_pictures("builtin:scene-questions").train
    first = [row for row in rows if row.picture == rows[0].picture]
    assert len(first) > 1
    assert len({row.texts["question"] for row in first}) == len(first)
