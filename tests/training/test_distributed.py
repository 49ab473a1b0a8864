"""Several processes train as one: the contract of `World`, with a double of two gloo processes and DDP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

from lmlab.data.loaders.streams import Windows
from lmlab.models import create
from lmlab.objectives.causal import Causal
from lmlab.objectives.objective import weighted_mean
from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.runs.run import resume, start
from lmlab.runs.storage import read_json, read_tensors
from lmlab.training.distributed import ALONE, World
from lmlab.training.learner import Learner
from worlds import GlooWorld, ShardedWorld, run_processes

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words.\n\n" for i in range(200))
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"width": 16, "heads": 2, "layers": 2, "window": 16, "dropout": 0.0},
    "bert": {"width": 16, "heads": 2, "layers": 2, "window": 32, "dropout": 0.0},
    "electra": {"width": 16, "heads": 2, "layers": 2, "window": 32, "dropout": 0.0},
    "bart": {"width": 16, "heads": 2, "layers": 1, "window": 32, "dropout": 0.0},
    "lstm": {"width": 16, "layers": 1},
}
SKIPPED = ("cost", "parameters")
DROPOUT = {"dropout": 0.2}


def recipe(kind: str, folder: Path, *, model: dict[str, Any] | None = None, **train: Any) -> Recipe:
    (folder / "text.txt").write_text(TEXT)
    return make_recipe(
        {
            "data": {"text": str(folder / "text.txt"), "documents": "blank", "split": [0.8, 0.2, 0.0]},
            "tokenizer": {"spec": "characters"},
            "model": {"kind": kind, **SMALL[kind], **(model or {})},
            "train": {
                **{"budget": "4steps", "batch": 4, "optimizer": "sgd", "momentum": 0.9, "rate": 0.05, "warmup": 0},
                **{"log_every": 1, "evaluations": 2, "evaluation_tokens": 512, "clip": 0.5, "device": "cpu", **train},
            },
        }
    )


def lines(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run, without what a clock says."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if value is not None and name not in SKIPPED} for line in found
    ]


def train_together(world: GlooWorld, folder: Path, kind: str) -> None:
    outcome = start(recipe(kind, folder), folder / "together", world=world)
    assert outcome.progress.step == 4
    assert not outcome.interrupted


@pytest.mark.parametrize("kind", ["gpt2", "bert", "electra", "bart"])
def test_two_processes_train_as_one_with_twice_the_micro_batches(kind: str, tmp_path: Path) -> None:
    run_processes(2, train_together, tmp_path, kind)
    start(recipe(kind, tmp_path, accumulate=2), tmp_path / "alone")
    together, alone = (read_tensors(tmp_path / name / "last" / "model.safetensors") for name in ("together", "alone"))
    assert together.keys() == alone.keys()
    for name in alone:
        torch.testing.assert_close(together[name], alone[name], rtol=1e-5, atol=1e-6, msg=name)
    for ours, theirs in zip(lines(tmp_path / "together"), lines(tmp_path / "alone"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def interrupt_and_resume(world: GlooWorld, folder: Path) -> None:
    settings = recipe("gpt2", folder, model=DROPOUT, save_seconds=0.0)
    start(settings, folder / "whole", world=world)
    asked = iter([False, False, world.writes])  # only one process is interrupted, and all of them stop
    outcome = start(settings, folder / "run", world=world, interrupted=lambda: next(asked))
    assert (outcome.interrupted, outcome.progress.step) == (True, 2)
    world.broadcast(None)
    assert resume(folder / "run", world=world).progress.step == 4


def test_several_processes_resume_exactly(tmp_path: Path) -> None:
    """Each has its own random numbers, which one checkpoint holds."""
    run_processes(2, interrupt_and_resume, tmp_path)
    whole, resumed = (read_tensors(tmp_path / name / "last" / "training.safetensors") for name in ("whole", "run"))
    assert whole.keys() == resumed.keys()
    assert all(whole[name].equal(resumed[name]) for name in whole)
    assert not whole["random.cpu"].equal(whole["process1.random.cpu"])
    for name in ("model.safetensors", "last/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert lines(tmp_path / "whole") == lines(tmp_path / "run")
    assert read_json(tmp_path / "run" / "last" / "progress.json")["ended"] == "budget"


def unfreeze(world: GlooWorld, folder: Path) -> None:
    start(recipe("gpt2", folder, unfreeze=2, layer_decay=0.5), folder / "together", world=world)


def test_layers_are_unfrozen_in_all_processes(tmp_path: Path) -> None:
    """DDP does not allow it: the learner is wrapped again."""
    run_processes(2, unfreeze, tmp_path)
    start(recipe("gpt2", tmp_path, unfreeze=2, layer_decay=0.5, accumulate=2), tmp_path / "alone")
    together, alone = (read_tensors(tmp_path / name / "last" / "model.safetensors") for name in ("together", "alone"))
    for name in alone:
        torch.testing.assert_close(together[name], alone[name], rtol=1e-5, atol=1e-6, msg=name)


class Second(World):
    """The second of two processes, which does not ask the first one."""

    rank, size = 1, 2


def test_processes_share_the_micro_batches_of_a_step() -> None:
    assert list(ALONE.micro_batches(3, 4)) == [12, 13, 14, 15]
    assert list(Second().micro_batches(3, 2)) == [14, 15]
    assert ALONE.writes
    assert not Second().writes


def test_one_process_is_not_changed_by_its_world() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    ALONE.spread_seed(5)
    assert torch.rand(3).equal(expected)
    assert ALONE.totals({"tokens": 3}) == {"tokens": 3}


def test_a_carried_state_needs_one_process(tmp_path: Path) -> None:
    """A process reads every other batch of a stream, and a state goes from one batch to the next."""
    with pytest.raises(ValueError, match="keeps a state"):
        start(recipe("lstm", tmp_path), tmp_path / "run", world=Second())


def compute_gradients(world: GlooWorld, folder: Path) -> None:
    """The gradient of one step whose learner FSDP2 has sharded."""
    sharded = ShardedWorld(world.rank, world.size)
    found = gradients_of(sharded, accumulate=1)
    whole = {name: each.full_tensor() if isinstance(each, DTensor) else each for name, each in found.items()}
    if world.writes:
        torch.save(whole, folder / "gradients.pt")


def gradients_of(world: World, *, accumulate: int) -> dict[str, torch.Tensor]:
    """The gradients of all parameters by name, as a step computes them."""
    torch.manual_seed(0)
    learner = Learner(create("gpt2", {"vocabulary": 20, **SMALL["gpt2"]}, size="tiny"), Causal())
    loader = Windows(np.arange(2000, dtype=np.uint16) % 20, batch=4, window=16, seed=0)
    forward, counts = world.wrap(learner), {"next": 4 * 16 * 2}
    for number in world.micro_batches(0, accumulate):
        loss = forward(Causal().batch(loader.batch(number)))
        (weighted_mean(loss.sums, counts, learner.objective.loss_weights) * world.gradient_scale).backward()
    return {name: each.grad for name, each in learner.named_parameters() if each.grad is not None}


def test_a_learner_can_be_sharded(tmp_path: Path) -> None:
    run_processes(2, compute_gradients, tmp_path)
    sharded, alone = torch.load(tmp_path / "gradients.pt"), gradients_of(ALONE, accumulate=2)
    assert sharded.keys() == alone.keys()
    for name in alone:
        torch.testing.assert_close(sharded[name], alone[name], rtol=1e-5, atol=1e-6, msg=name)
