"""CLIP as a run: trained on captions, killed and resumed to the bit, saved with all that it needs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import lmlab
from captioned import SIZES, caption_recipe, write_captions
from killing import kill_while_saving
from lmlab.data.readers.pictures.files import find_pictures
from lmlab.data.readers.pictures.scenes import describe, make_scene
from lmlab.runs import run
from lmlab.runs.storage import read_tensors

pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captions(tmp_path_factory.mktemp("captions"))


def test_captions_are_learnt_beside_chance(captions: Path, tmp_path: Path) -> None:
    outcome = run.start(caption_recipe(captions), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in lines if "loss" in line)
    last = next(line for line in reversed(lines) if "valid_loss" in line)
    assert math.log(12) < first["chance"] < math.log(24), "equal captions are no negatives"
    assert last["valid_loss"] < 0.6 * last["valid_chance"]
    assert last["valid_text_to_picture_at_1"] > 0.5
    assert outcome.judged_on == "validation pictures"
    assert "lmlab find" in (tmp_path / "run" / "README.md").read_text()
    model = lmlab.load(tmp_path / "run")
    assert model.processor is not None
    assert model.frame.templates == {"tokens": "cls a boundary"}


def test_a_killed_run_resumes_to_the_bit(captions: Path, tmp_path: Path) -> None:
    settings = [f"--set=model.{each}" for each in SIZES]
    settings += [
        "--set=train.batch=12",
        "--set=train.accumulate=2",
        "--set=train.save_seconds=0",
        "--set=objective.crop=2",
    ]
    command = ("train", "clip", str(captions), "--tokenizer", "words", "--budget", "12steps", *settings)
    kill_while_saving(*command, "-o", str(tmp_path / "killed"), run="killed", saves=3)
    resumed = run.resume(tmp_path / "killed")
    values = dict(each.removeprefix("--set=").split("=") for each in settings)
    whole = lmlab.train(
        "clip",
        captions,
        output=tmp_path / "whole",
        budget="12steps",
        tokenizer="words",
        settings={name: int(value) for name, value in values.items()},
    )
    assert resumed.progress.step == whole.progress.step == 12
    one, other = (read_tensors(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_texts_that_are_no_captions(captions: Path, tmp_path: Path) -> None:
    table = captions.parent / "questions.tsv"
    table.write_text(captions.read_text().replace("caption", "question", 1))
    with pytest.raises(ValueError, match="no captions but questions: name the column"):
        run.start(caption_recipe(table), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_built_in_scenes_have_captions_questions_and_sentences() -> None:
    found = find_pictures("builtin:scenes")
    assert found.valid is not None
    assert found.test is not None
    assert found.train[7].texts["caption"] == describe(make_scene("train", 7).things)
    assert found.train[7].regions is not None
    assert len(found.train[7].regions.boxes) == len(found.train[7].regions.names)
    assert found.train[7].picture.read().shape == found.train[7].picture.size()
    names = [{row.texts["caption"] for row in part} for part in (found.train, found.valid, found.test)]
    assert not names[0] & names[1]
    assert not (names[0] | names[1]) & names[2]
    questions, sentences = (
        find_pictures("builtin:scene-questions").train,
        find_pictures("builtin:scene-sentences").train,
    )
    assert questions[0].texts["question"].endswith("?")
    assert questions[0].label
    assert {row.label for row in sentences} == {"true", "false"}
    with pytest.raises(ValueError, match="no such built-in pictures"):
        find_pictures("builtin:seens")
