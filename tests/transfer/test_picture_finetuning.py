"""Fine-tuning a run of pictures on another folder: head, positions, controls, baselines, and the report."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lmlab
from lmlab.baselines.pixels import LinearOnPixels, NearestMean
from lmlab.cli.application import app
from lmlab.data.readers.examples import Example
from lmlab.data.readers.media import Picture
from lmlab.runs.storage import HEADS, read_json, read_tensors
from lmlab.tasks.pictures import PictureClassification
from lmlab.transfer.report import write_report

Image = pytest.importorskip("PIL.Image")
SETTINGS = {"model.width": 16, "model.heads": 2, "model.layers": 2, "model.patch": 4, "train.batch": 12}


def write_pictures(folder: Path, names: tuple[str, ...], count: int = 45) -> Path:
    """Pictures in which one row of patches is bright, which says the class; some are dim."""
    numbers = np.random.default_rng(len(names))
    for number in range(count):
        which = number % len(names)
        pixels = numbers.integers(0, 100, (8, 8, 3)).astype(np.uint8)
        rows = slice(2 * which, 2 * which + 2)
        pixels[rows] += np.uint8(120 if number % 7 else 10)
        (folder / names[which]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / names[which] / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("pictures")
    first = write_pictures(home / "first", ("one", "two"))
    write_pictures(home / "second", ("top", "middle", "low"))
    lmlab.train("vit", first, output=home / "run", budget="10steps", settings={**SETTINGS, "train.warmup": 2})
    return home


def test_a_run_learns_other_classes_beside_controls(home: Path) -> None:
    done = lmlab.finetune(home / "run", home / "second", output=home / "tuned", epochs=2)
    rows = {(row.name, row.method): row for row in done.study.table}
    assert {("run", "full"), ("run", "frozen"), ("run", "scratch")} <= set(rows)
    assert {"majority", "nearest mean", "linear on pixels"} <= {name for name, how in rows if how == "baseline"}
    assert done.study.labels == ["low", "middle", "top"]
    assert "3 classes" in " ".join(done.study.check)
    assert read_json(home / "tuned" / "task.json")["labels"] == ["low", "middle", "top"]
    model = lmlab.load(home / "tuned")
    example = model.predictor.task.make_example([str(home / "second" / "top" / "0.png")])
    assert set(model.predictor.predict([example])[0].scores) == {"low", "middle", "top"}
    again = lmlab.finetune(home / "run", home / "second", output=home / "tuned", epochs=2)
    assert not again.trained, "the same command finds the finished run"
    page = write_report(done.study, home / "tuned").read_text()
    assert "linear on pixels" in page
    assert ('img class="example" src="data:image/png' in page) == ("The worst mistakes" in page)


@pytest.mark.parametrize(("how", "kept"), [("full", True), ("scratch", False)])
def test_the_same_task_goes_on_with_its_head(how: str, kept: bool, home: Path, tmp_path: Path) -> None:
    given = {"how": how, "budget": "1steps", "controls": False, "train": {"rate": 1e-9, "warmup": 0, "decay": 0.0}}
    lmlab.finetune(home / "run", home / "first", output=tmp_path / "on", **given)
    old, new = (read_tensors(run / HEADS) for run in (home / "run", tmp_path / "on"))
    assert all(torch.allclose(old[name], new[name], atol=1e-6) for name in old) == kept
    lmlab.finetune(home / "run", home / "second", output=tmp_path / "other", **given)
    assert {len(weight) for weight in read_tensors(tmp_path / "other" / HEADS).values()} == {3}


def test_mistakes_are_shown_as_thumbnails(home: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 200, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.write(tmp_path / "wide.png", "inner/wide.png")
    names = [str(tmp_path / "wide.png"), str(tmp_path / "more.zip" / "inner" / "wide.png"), str(tmp_path / "gone.png")]
    lines = [{"picture": name, "predicted": "a", "true": "b", "probability": 0.9, "scores": {}} for name in names]
    found = PictureClassification.show_evidence(lines, ["a", "b"])
    assert found.confusion is not None
    assert found.confusion.counts == [[0, 0], [3, 0]]
    first, second, gone = found.mistakes
    assert first.picture == second.picture
    assert gone.picture == ""
    shown = Image.open(io.BytesIO(base64.b64decode(first.picture.partition(",")[2])))
    assert shown.size == (96, 10)


@pytest.mark.parametrize("how", ["frozen", "scratch"])
def test_the_command_for_other_methods(home: Path, tmp_path: Path, how: str) -> None:
    command = ["finetune", str(home / "run"), str(home / "second"), "-o", str(tmp_path / how), "--how", how]
    result = CliRunner().invoke(app, [*command, "--no-controls", "--epochs", "1"])
    assert result.exit_code == 0, result.output
    assert read_json(tmp_path / how / "task.json")["method"] == how
    assert CliRunner().invoke(app, ["finetune", "--resume", str(tmp_path / how)]).exit_code == 0


def test_what_is_for_text_is_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reads pictures"):
        lmlab.finetune(home / "run", home / "second", output=tmp_path / "x", leaks="train")
    with pytest.raises(ValueError, match="learning curves are for examples of text"):
        lmlab.finetune(home / "run", home / "second", output=tmp_path / "x", sizes=[5])
    assert not (tmp_path / "x").exists()


def test_baselines_on_pixels() -> None:
    numbers = np.random.default_rng(0)

    def example(label: str) -> Example:
        level = {"dark": 40, "light": 200}[label]
        pixels = np.clip(numbers.normal(level, 20, (6, 6, 1)), 0, 255).astype(np.uint8)
        return Example(label=label, media=Picture(pixels))

    train, test = ([example(label) for label in ("dark", "light") * 8] for _ in range(2))
    for baseline in (NearestMean(), LinearOnPixels()):
        baseline.fit(train)
        assert baseline.predict(test).labels == [each.label for each in test]
    means = {
        label: np.mean([each.media.pixels / 255 for each in train if each.label == label], axis=0)
        for label in ("dark", "light")
    }
    odd = Example(media=Picture(np.full((6, 6, 1), 118, np.uint8)))
    nearest = min(means, key=lambda label: float(((means[label] - 118 / 255) ** 2).sum()))
    found = NearestMean()
    found.fit(train)
    assert found.predict([odd]).labels == [nearest]


def test_a_budget_in_place_of_epochs(home: Path) -> None:
    done = lmlab.finetune(home / "run", home / "second", output=home / "budget", budget="3steps")
    recipe = read_json(home / "budget" / "recipe.json")
    assert recipe["train"]["budget"] == "3steps"
    assert recipe["train"]["warmup"] == 1
    lines = (home / "budget" / "metrics.jsonl").read_text().splitlines()
    assert '"step": 3' in lines[-1]
    scratch = next(row for row in done.study.table if row.method == "scratch")
    assert scratch.note == ""
    with pytest.raises(ValueError, match="--epochs both say how long to train"):
        lmlab.finetune(home / "run", home / "second", output=home / "both", budget="3steps", epochs=1)
    with pytest.raises(ValueError, match="write a time"):
        lmlab.finetune(home / "run", home / "second", output=home / "both", budget="3 cups")
    assert not (home / "both").exists()
