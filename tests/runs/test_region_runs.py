"""VisualBERT and ViLBERT as runs: trained on captions, killed and resumed to the bit, fine-tuned, evaluated, asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lmlab
from killing import kill_while_saving
from lmlab.cli.application import app
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from lmlab.runs.storage import read_tensors

COLOURS = ("red", "green", "blue", "white")
TRAINING = {"batch": 8, "rate": 1e-3, "warmup": 5, "log_every": 5, "evaluations": 2, "save_seconds": 0}


def write_table(path: Path, *, rows: int = 400, seed: int = 0) -> Path:
    """Sentences that are true or false of four regions with colours."""
    numbers = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        shown, said = numbers.integers(0, 4, 4), int(numbers.integers(0, 4))
        regions = [
            {"box": [place / 4, 0, (place + 1) / 4, 1], "features": np.eye(4)[colour].tolist()}
            for place, colour in enumerate(shown)
        ]
        truth = str(said in shown).lower()
        lines.append(json.dumps({"sentence": f"something is {COLOURS[said]}", "label": truth, "regions": regions}))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("regions") / "scenes.jsonl")


@pytest.fixture(scope="module", params=["visualbert", "vilbert"])
def trained(request: pytest.FixtureRequest, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("runs") / str(request.param)
    run.start(recipe(str(request.param), table), path)
    return path


def recipe(kind: str, table: Path, **train: Any) -> run.Recipe:
    return make_recipe(
        {
            "data": {"text": str(table)},
            "tokenizer": {"spec": "words"},
            "model": {"kind": kind, "size": "tiny"},
            "train": {**TRAINING, "budget": "40steps", **train},
        }
    )


def test_a_run_is_loaded_with_the_same_outputs(trained: Path) -> None:
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    last = next(line for line in reversed(lines) if "valid_loss" in line)
    assert {"valid_match_loss", "valid_accuracy", "valid_match_accuracy"} <= last.keys()
    assert ("valid_regions_loss" in last) == (trained.name == "vilbert")
    model = lmlab.load(trained)
    inputs = model.model.blank_inputs(2, 5)
    assert torch.equal(model.model(**inputs).hidden, lmlab.load(trained).model(**inputs).hidden)
    assert model.fill("something is [MASK]")
    assert "lmlab finetune" in (trained / "README.md").read_text()


def test_a_killed_run_ends_with_the_same_weights(trained: Path, table: Path, tmp_path: Path) -> None:
    """Killed at its second checkpoint, which is not in its place yet, and resumed from the first."""
    options = [f"--set=train.{name}={value}" for name, value in TRAINING.items()]
    options += ["--tokenizer", "words", "--size", "tiny", "--budget", "40steps"]
    command = ["train", trained.name, str(table), "-o", str(tmp_path / "killed"), *options]
    kill_while_saving(*command, run="killed", saves=2)
    run.resume(tmp_path / "killed")
    expected = read_tensors(trained / "model.safetensors")
    found = read_tensors(tmp_path / "killed" / "model.safetensors")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_true_sentences_are_learnt(trained: Path, table: Path, tmp_path: Path) -> None:
    done = lmlab.finetune(trained, table, output=tmp_path / "truth", epochs=20, controls=False)
    assert done.study.results[-1].values["accuracy"].value > 0.8, "words alone give about 70%"
    other = write_table(tmp_path / "other.jsonl", rows=40, seed=1)
    scores = invoke("evaluate", str(tmp_path / "truth"), str(other), "--json")
    assert json.loads(scores)["accuracy"] > 0.8
    lines = invoke("predict", str(tmp_path / "truth"), str(other), "--json").splitlines()
    assert len(lines) == 40
    assert json.loads(lines[0])["text"].startswith("something is")
    again = write_table(tmp_path / "shifted.jsonl", rows=40, seed=1)
    assert invoke("predict", str(tmp_path / "truth"), str(again)).count("true") == 40


def test_the_order_of_examples_changes_no_prediction(trained: Path, table: Path, tmp_path: Path) -> None:
    lmlab.finetune(trained, table, output=tmp_path / "truth", epochs=1, controls=False)
    predictor = lmlab.load(tmp_path / "truth").predictor
    examples = predictor.task.read_paths([str(table)])[:30]
    forwards, backwards = predictor.predict(examples), predictor.predict(examples[::-1])[::-1]
    alone = [predictor.predict([example])[0] for example in examples[:5]]
    for one, two in (*zip(forwards, backwards, strict=True), *zip(forwards[:5], alone, strict=True)):
        assert one.scores["true"] == pytest.approx(two.scores["true"], abs=1e-5)


def test_a_frozen_model_is_read_by_its_joint_vector(trained: Path, table: Path, tmp_path: Path) -> None:
    done = lmlab.finetune(trained, table, output=tmp_path / "frozen", how="frozen", epochs=5, controls=False)
    assert 0.3 < done.study.results[-1].values["accuracy"].value <= 1
    done = lmlab.finetune(trained, table, output=tmp_path / "mix", how="mix", epochs=2, controls=False)
    assert 0.3 < done.study.results[-1].values["accuracy"].value <= 1


def test_regions_of_another_kind_are_refused(trained: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in write_table(tmp_path / "t.jsonl", rows=30).read_text().splitlines()]
    for row in rows:
        for region in row["regions"]:
            region["features"].append(1.0)
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="regions of 5 numbers each, and this model reads 4"):
        lmlab.finetune(trained, tmp_path / "t.jsonl", output=tmp_path / "new", controls=False)
    assert not (tmp_path / "new").exists()


def test_pictures_are_read_as_patches(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    numbers, rows = np.random.default_rng(0), ["picture\tcaption"]
    for number in range(12):
        image.fromarray(numbers.integers(0, 255, (12, 12, 3)).astype(np.uint8)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png\tpicture number {number}")
    (tmp_path / "captions.tsv").write_text("\n".join(rows) + "\n")
    run.start(recipe("visualbert", tmp_path / "captions.tsv", budget="2steps"), tmp_path / "run")
    assert lmlab.load(tmp_path / "run").model.config.region_width == 8 * 8 * 3


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout
