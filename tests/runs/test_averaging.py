"""Averaging checkpoints, and the checkpoints that a run keeps for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import lmlab
from lmlab.data.loaders.streams import Windows
from lmlab.objectives.causal import Causal
from lmlab.runs.averaging import average, average_tensors
from lmlab.runs.model_files import load_model, model_tensors
from lmlab.runs.storage import DamagedError, read_tensors, write_tensors
from lmlab.training.checkpointer import Checkpointer, kept_checkpoints
from lmlab.training.learner import Learner
from lmlab.training.progress import TrainingProgress
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step
from standins import TinyGRU
from translators import write_translator


@pytest.fixture
def run(tmp_path):
    """A run that has kept four checkpoints; each is the model's weights plus its step."""
    path = write_translator(tmp_path / "run", source_spec="characters", reverse=True)
    model, _ = load_model(path)
    (path / "checkpoints").mkdir()
    for step in (100, 200, 300, 1000000):
        tensors = {name: tensor + step for name, tensor in model_tensors(model).items()}
        write_tensors(path / "checkpoints" / f"step-{step:06}.safetensors", tensors)
    return path


def test_the_mean_of_the_latest_is_a_run_of_its_own(run, tmp_path):
    steps = average(run, last=3, output=tmp_path / "mean")
    assert steps == [200, 300, 1000000]
    expected = {name: tensor + (1000500 / 3) for name, tensor in read_tensors(run / "model.safetensors").items()}
    for name, tensor in read_tensors(tmp_path / "mean" / "model.safetensors").items():
        torch.testing.assert_close(tensor, expected[name], atol=0.1, rtol=1e-6)
    mean = lmlab.load(tmp_path / "mean")
    assert isinstance(mean.translate("cat", tokens=4), str)
    assert mean.source_tokenizer is not None
    assert mean.frame.backwards == ("source",)
    assert json.loads((tmp_path / "mean" / "average.json").read_text()) == {"run": "run", "steps": steps}


def test_sums_are_exact_and_integers_are_the_last(tmp_path):
    paths = []
    for number in range(3):
        paths.append(tmp_path / f"{number}.safetensors")
        weights = torch.tensor([0.1, 1e8 if number else -2e8], dtype=torch.float32)
        write_tensors(paths[-1], {"weight": weights, "count": torch.tensor([number])})
    found = average_tensors(paths)
    assert found["weight"].tolist() == pytest.approx([0.1, 0.0])
    assert found["weight"].dtype == torch.float32
    assert found["count"].tolist() == [2]


def test_what_cannot_be_averaged_says_why(run, tmp_path):
    with pytest.raises(ValueError, match=r"kept the weights of 4 validations, not 5: give --last 4.*train.keep=5"):
        average(run, last=5, output=tmp_path / "mean")
    with pytest.raises(ValueError, match="exists already"):
        average(run, last=2, output=run)
    with pytest.raises(ValueError, match="not a run directory"):
        average(tmp_path / "nowhere", last=2, output=tmp_path / "mean")
    with pytest.raises(ValueError, match="last = 0"):
        average(run, last=0, output=tmp_path / "mean")
    write_tensors(run / "checkpoints" / "step-000300.safetensors", {"other": torch.zeros(2)})
    with pytest.raises(DamagedError, match="step-000300"):
        average(run, last=3, output=tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def keep(path: Path, latest: int, steps: list[int]) -> Checkpointer:
    checkpointer, learner = Checkpointer(path, save_seconds=60, keep=latest), Learner(TinyGRU(5), Causal())
    for step in steps:
        learner.model.output.bias.data.fill_(step)
        checkpointer.keep(learner, step)
    return checkpointer


def test_the_latest_are_kept(tmp_path):
    keep(tmp_path, 2, [5, 20, 100, 1000001]).close()
    kept = kept_checkpoints(tmp_path)
    assert [step for step, _ in kept] == [100, 1000001]
    assert read_tensors(kept[0][1])["output.bias"].tolist() == [100.0] * 5
    assert all(re.fullmatch(r"step-\d{6,}\.safetensors", path.name) for _, path in kept)


def test_none_are_kept_unless_asked_for(tmp_path):
    keep(tmp_path, 0, [5, 20]).close()
    assert not (tmp_path / "checkpoints").exists()


def test_on_resuming_those_after_the_checkpoint_are_dropped(tmp_path):
    learner = Learner(TinyGRU(5), Causal())
    step = Step(learner, Windows(np.arange(5), batch=1, window=2, seed=0), TrainConfig(optimizer="sgd"))
    checkpointer = keep(tmp_path, 5, [5, 20])
    checkpointer.save(step, {}, TrainingProgress(step=30))
    checkpointer.keep(learner, 40)
    checkpointer.close()
    again = Checkpointer(tmp_path, save_seconds=60, keep=5)
    again.load(step)
    again.close()
    step.close()
    assert [step for step, _ in kept_checkpoints(tmp_path)] == [5, 20]
