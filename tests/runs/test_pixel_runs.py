"""Pictures as pixels: every next-token system learns them, resumes exactly after kill -9, and draws them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from commands import lmlab_command
from killing import kill_while_saving
from lmlab.data.loaders.streams import ItemWindows
from lmlab.decoding.sampling import Sampling
from lmlab.runs import run
from lmlab.runs.held_out import held_out_items
from lmlab.runs.recipe import make_recipe
from lmlab.runs.storage import read_tensors

Image = pytest.importorskip("PIL.Image")
SIDE = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of one vertical or horizontal bar on black."""
    home = tmp_path_factory.mktemp("bars")
    numbers = np.random.default_rng(0)
    for number in range(120):
        pixels = np.zeros((SIDE, SIDE), np.uint8)
        place = int(numbers.integers(SIDE))
        pixels[:, place] = 160 + numbers.integers(90)
        Image.fromarray(pixels if number % 2 else pixels.T).save(home / f"{number}.png")
    return home


def recipe(folder: Path, system: str, **train: Any) -> Any:
    settings = {"budget": "50steps", "batch": 8, "evaluations": 2, "save_seconds": 0, **train}
    values = {"text": str(folder), "size": SIDE}
    spec = {"spec": "pixels:4"}
    return make_recipe(
        {"data": values, "tokenizer": spec, "model": {"kind": system, "size": "tiny"}, "train": settings}
    )


@pytest.mark.parametrize("system", ["ngram", "lstm", "gpt2", "transformer-xl", "reformer", "music-transformer"])
def test_every_system_learns_pixels(system: str, folder: Path, tmp_path: Path) -> None:
    """Better than the frequencies of the levels alone: one pixel in six is bright, in one of two levels."""
    outcome = run.start(recipe(folder, system), tmp_path / "run")
    assert outcome.quality.endswith("bits per dimension on validation pictures")
    alone = -(5 / 6) * np.log(5 / 6) - (1 / 6) * np.log(1 / 12)
    assert outcome.progress.best_metrics["nats"] < 0.95 * alone
    model = lmlab.load(tmp_path / "run")
    if getattr(model.model, "window", None) is not None:
        assert model.model.window == SIDE * SIDE + 1, "the window is one picture, unless another is given"
    drawn = model.painter.draw(count=2, sampling=Sampling(seed=1))
    assert [each.shape for each in drawn] == [(SIDE, SIDE, 1)] * 2
    assert set(np.unique(drawn)) <= {0, 85, 170, 255}
    card = (tmp_path / "run" / "README.md").read_text()
    assert "pictures, 3,456 pixels" in card
    assert "bits per dimension" in card


def test_a_given_window_stays(folder: Path, tmp_path: Path) -> None:
    values = recipe(folder, "gpt2", budget="2steps").model_copy(update={"model": {"width": 16, "window": 10}})
    run.start(values, tmp_path / "run")
    assert lmlab.load(tmp_path / "run").model.window == 10


def test_completions_keep_the_given_rows(folder: Path, tmp_path: Path) -> None:
    run.start(recipe(folder, "gpt2", budget="120steps"), tmp_path / "run")
    painter = lmlab.load(tmp_path / "run").painter
    ids = held_out_items(tmp_path / "run", 5)
    right = 0
    for each in ids:
        picture = painter.pixels.decode(each.tolist())
        drawn = painter.draw(picture, rows=3, count=4, sampling=Sampling(temperature=0.0))
        assert all(np.array_equal(own[:3], picture[:3]) for own in drawn)
        assert np.array_equal(painter.hide(picture, rows=3)[:3], picture[:3])
        right += np.array_equal(drawn[0], picture)
    assert right >= 1, "a vertical bar goes on"
    with pytest.raises(ValueError, match="pictures have 6 rows; give 0 to 5"):
        painter.draw(picture, rows=6)


def test_windows_are_whole_pictures() -> None:
    """Each row of a batch has the boundaries around one picture, and an epoch has each picture once."""
    tokens = np.concatenate([[9], *([number] * 4 + [9] for number in range(7))]).astype(np.uint16)
    loader = ItemWindows(tokens, batch=7, window=5, seed=0)
    rows = loader.batch(3).numpy()
    assert (rows[:, [0, -1]] == 9).all()
    assert sorted(rows[:, 1].tolist()) == list(range(7))


def test_pixels_resume_to_the_bit_after_kill_9(folder: Path, tmp_path: Path) -> None:
    words = ["train", "gpt2", str(folder), "--tokenizer", "pixels:4", "--size", "tiny", "--budget", "10steps"]
    words += ["--set", f"data.size={SIDE}", "--set", "train.save_seconds=0", "--set", "train.evaluations=2"]
    kill_while_saving(*words, "-o", str(tmp_path / "cut"), run="cut", saves=1)
    assert not run.resume(tmp_path / "cut").interrupted
    settings = {"budget": "10steps", "evaluations": 2, "save_seconds": 0}
    values = {"data": {"text": str(folder), "size": SIDE}, "tokenizer": {"spec": "pixels:4"}}
    run.start(make_recipe({**values, "model": {"kind": "gpt2", "size": "tiny"}, "train": settings}), tmp_path / "whole")
    one, other = (read_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_draw(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    run.start(recipe(folder, "lstm", budget="20steps"), path)
    assert lmlab_command(monkeypatch, "draw", path, "-o", tmp_path / "a.png", "-n", 9, "--scale", 3) == 0
    assert "9 samples at 6 × 6 pixels, 4 grey levels" in capsys.readouterr().out
    assert Image.open(tmp_path / "a.png").size == (3 * (8 * 8 + 2), 3 * (2 * 8 + 2))
    words = ("--given", folder / "1.png", "--held-out", "--limit", 2, "--rows", 2, "-n", 3)
    assert lmlab_command(monkeypatch, "draw", path, "-o", tmp_path / "b.png", *words) == 0
    assert "3 pictures completed" in capsys.readouterr().out
    for words, message in (
        (("--rows", 2), "give --given PICTURE"),
        (("--held-out", "--rows", 9), "pictures have 6 rows"),
        (("--given", path / "config.json"), "is not a picture"),
        (("-o", tmp_path / "c.gif"), "ends with .png"),
    ):
        assert lmlab_command(monkeypatch, "draw", path, "-o", tmp_path / "c.png", *words) != 0
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "c.png").exists()


def test_what_does_not_fit_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vit reads pictures, not tokens"):
        make_recipe({"data": {"text": str(folder)}, "model": {"kind": "vit"}, "tokenizer": {"spec": "pixels:4"}})
    values = {"data": {"text": str(folder)}, "model": {"kind": "gpt2"}, "tokenizer": {"spec": "bpe:400"}}
    with pytest.raises(ValueError, match="pictures need"):
        run.start(make_recipe(values), tmp_path / "run")
    tunes = tmp_path / "tunes"
    train = {"budget": "1steps"}
    music = {"data": {"text": "builtin:tunes"}, "model": {"kind": "gpt2", "size": "tiny"}, "train": train}
    run.start(make_recipe(music), tunes)
    with pytest.raises(ValueError, match="has not learnt to draw"):
        _ = lmlab.load(tunes).painter
