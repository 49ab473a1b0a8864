"""CLIP as a run: trained on captions, killed and resumed to the bit, saved with all that it needs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from killing import kill_while_saving
from lmlab.data.readers.picture_files import find_pictures
from lmlab.data.readers.scenes import describe, make_scene
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from lmlab.runs.storage import read_tensors

Image = pytest.importorskip("PIL.Image")
COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "white": (230, 230, 230)}
SETTINGS = ("width=16", "heads=2", "layers=2", "text_width=16", "text_heads=2", "text_layers=1", "space=8", "patch=4")


def write_captions(home: Path, *, copies: int = 8) -> Path:
    """A table of pictures with two colours, one above the other; pictures of the same colours have one caption."""
    numbers = np.random.default_rng(0)
    rows = ["picture\tcaption"]
    for upper, first in COLOURS.items():
        for lower, second in COLOURS.items():
            for copy in range(copies):
                pixels = numbers.integers(0, 25, (8, 8, 3)).astype(np.uint8)
                pixels[:4] += np.array(first, np.uint8)
                pixels[4:] += np.array(second, np.uint8)
                Image.fromarray(pixels).save(home / f"{upper}-{lower}-{copy}.png")
                rows.append(f"{upper}-{lower}-{copy}.png\t{upper} above {lower}")
    (home / "captions.tsv").write_text("\n".join(rows) + "\n")
    return home / "captions.tsv"


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captions(tmp_path_factory.mktemp("captions"))


def recipe(captions: Path, **train: Any) -> run.Recipe:
    model = {key: int(value) for key, value in (each.split("=") for each in SETTINGS)}
    settings = {"budget": "80steps", "batch": 24, "rate": 3e-3, "warmup": 5, "log_every": 10, **train}
    return make_recipe(
        {
            "data": {"text": str(captions)},
            "tokenizer": {"spec": "words"},
            "model": {"kind": "clip", **model},
            "train": settings,
        }
    )


def test_captions_are_learnt_beside_chance(captions: Path, tmp_path: Path) -> None:
    outcome = run.start(recipe(captions), tmp_path / "run")
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
    settings = [f"--set=model.{each}" for each in SETTINGS]
    settings += ["--set=train.batch=12", "--set=train.accumulate=2", "--set=train.save_seconds=0"]
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
        run.start(recipe(table), tmp_path / "run")
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
