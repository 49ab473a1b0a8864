"""A run that learns classes of pictures: trained, resumed to the bit, evaluated, and used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import lmlab
from killing import kill_while_saving
from lmlab.data.loaders.augmentation import Augmentation, augment, shift
from lmlab.pages.run import make_page
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from lmlab.runs.report import gather_facts
from lmlab.runs.storage import read_json, read_tensors
from lmlab.transfer.evaluation import evaluate_file

Image = pytest.importorskip("PIL.Image")
AUGMENTED = {"crop": 1, "flip": True, "colour": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that are bright at the top or at the bottom."""
    home = tmp_path_factory.mktemp("pictures")
    numbers = np.random.default_rng(0)
    for number in range(60):
        name = ("top", "bottom")[number % 2]
        pixels = numbers.integers(0, 100, (8, 8, 3)).astype(np.uint8)
        pixels[:4] += 120 * np.uint8(name == "top")
        pixels[4:] += 120 * np.uint8(name == "bottom")
        (home / name).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(home / name / f"{number}.png")
    return home


def recipe(folder: Path, **objective: object) -> run.Recipe:
    train = {"budget": "80steps", "batch": 12, "rate": 3e-3, "warmup": 5, "log_every": 5, "save_seconds": 0}
    model = {"kind": "vit", "width": 16, "heads": 2, "layers": 2, "patch": 4}
    return make_recipe({"data": {"text": str(folder)}, "model": model, "objective": objective, "train": train})


def test_pictures_are_learnt_and_evaluated(folder: Path, tmp_path: Path) -> None:
    outcome = run.start(recipe(folder), tmp_path / "run")
    assert outcome.progress.units == {"examples": 960}
    assert read_json(tmp_path / "run" / "task.json")["labels"] == ["bottom", "top"]
    model = lmlab.load(tmp_path / "run")
    assert model.processor is not None
    found = evaluate_file(model.predictor, folder, run=tmp_path / "run")
    assert found.split == "test"
    assert len(found.examples) == 6
    assert found.values["accuracy"].value == 1.0
    example = model.predictor.task.make_example([str(folder / "top" / "0.png")])
    assert model.predictor.predict([example])[0].value == "top"
    facts = gather_facts(tmp_path / "run")
    assert facts["evidence"]["count"] == 6
    assert sum(map(sum, facts["evidence"]["confusion"]["counts"])) == 6
    assert not facts["left_out"]
    page = make_page({**facts, "evidence": {**facts["evidence"], "mistakes": [{"picture": "data:,x", "true": "top"}]}})
    assert "Confusion matrix" in page
    assert '<img class="example" src="data:,x"' in page
    again = lmlab.train("vit", folder, output=tmp_path / "run", settings=_settings())
    assert not again.trained, "the same command finds the finished run"


def _settings() -> dict[str, object]:
    settings = {"model.width": 16, "model.heads": 2, "model.layers": 2, "model.patch": 4, "train.budget": "80steps"}
    more = {"train.batch": 12, "train.rate": 3e-3, "train.warmup": 5, "train.log_every": 5, "train.save_seconds": 0}
    return {**settings, **more}


def test_a_killed_run_with_augmentation_resumes_to_the_bit(folder: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    settings = {**_settings(), **{f"objective.{name}": value for name, value in AUGMENTED.items()}}
    given = [f"--set={name}={json.dumps(value)}" for name, value in settings.items() if name != "train.budget"]
    command = ("train", "vit", str(folder), "--budget", "80steps", *given)
    kill_while_saving(*command, "-o", str(killed), run="killed", saves=7)
    assert not (killed / "README.md").exists()
    run.resume(killed)
    lmlab.train("vit", folder, output=whole, settings=settings)
    for name in ("model.safetensors", "head.safetensors"):
        one, other = read_tensors(whole / name), read_tensors(killed / name)
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_run_starts_from_another_with_larger_pictures(folder: Path, tmp_path: Path) -> None:
    run.start(recipe(folder), tmp_path / "small")
    values = {
        "data": {"images": str(folder), "size": 16},
        "model": {"kind": "vit"},
        "train": {"budget": "2steps", "batch": 4},
        "origin": str(tmp_path / "small"),
    }
    run.start(make_recipe(values), tmp_path / "large")
    model = lmlab.load(tmp_path / "large").model
    assert model.config.image == [16, 16]
    assert model.positions.shape == (1 + 16, 16)


def test_pictures_without_classes_cannot_be_distinguished(tmp_path: Path) -> None:
    for number in range(5):
        Image.fromarray(np.full((8, 8), 40 * number, np.uint8)).save(tmp_path / f"{number}.png")
    with pytest.raises(ValueError, match="has no class: put the pictures of each class into a folder"):
        run.start(recipe(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_augmentation_shifts_and_mirrors() -> None:
    pixels = np.arange(2 * 6 * 5 * 1, dtype=np.uint8).reshape(2, 6, 5, 1)
    moved = shift(pixels, 2, np.random.default_rng(3))
    down, right = np.random.default_rng(3).integers(0, 5, (2, 2))
    for number in range(2):
        rows = np.clip(np.arange(6) + down[number] - 2, 0, 5)
        columns = np.clip(np.arange(5) + right[number] - 2, 0, 4)
        np.testing.assert_array_equal(moved[number], pixels[number][rows][:, columns])
    mirrored = augment(pixels, Augmentation(flip=True), np.random.default_rng(0))
    chosen = np.random.default_rng(0).random(2) < 0.5
    for number in range(2):
        np.testing.assert_array_equal(mirrored[number], pixels[number][:, ::-1] if chosen[number] else pixels[number])
