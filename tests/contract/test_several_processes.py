"""Every system and every task trains in two processes as in one: the losses are equal, except for rounding.

Both processes are started once, and train all systems after each other. Each also trains half of them alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from test_tasks import model_of, tokenizer
from torch import Tensor

from lmlab.models import LINEAGE, load_class
from lmlab.runs.run import start
from lmlab.tasks.frozen_vectors import hash_weights, with_vectors
from lmlab.training.distributed.world import ALONE, World
from lmlab.training.learner import Learner
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step
from toy_tasks import EXAMPLES, toy_task
from worlds import run_processes

sys.path.append(str(Path(__file__).parents[1] / "golden"))
from golden_cases import CASES, recipe_of
from golden_texts import write_corpora

LEARN = {name: case for name, case in CASES.items() if LINEAGE[case["model"]["kind"]].trained_by != "counting"}
TASKS = [(kind, name, how) for kind in EXAMPLES for name in ("bert", "lstm") for how in ("full", "frozen")]
TASKS += [("classification", name, "full") for name in ("gpt2", "bart", "elmo")]
NOT_COMPARED = ("cost", "parameters")


def train_everything(world: World, folder: Path) -> None:
    torch.manual_seed(0)
    files = world.first(lambda: write_corpora(folder))
    for number, (name, case) in enumerate(LEARN.items()):
        recipe = recipe_of(case, files, steps=2, micro_batches=2, save_seconds=1e6)
        if number % world.size == world.rank:
            start(recipe, folder / "alone" / name)
        start(recipe, folder / "together" / name, world=world)
    found = {"-".join(task): train_task(*task, world=world) for task in TASKS}
    if world.writes:
        torch.save(found, folder / "tasks.pt")


def train_task(kind: str, name: str, how: str, *, world: World) -> Tensor:
    """The weights that learn, after two steps on the examples of a task."""
    pooled: dict[str, Any] = {"pool": "mean", "activation": None} if how != "full" and kind in POOLED else {}
    task, model = toy_task(kind, load_class(name), tokenizer=tokenizer(), method=how, **pooled), model_of(name)
    torch.manual_seed(1)
    learner, items = Learner(model, task, task.heads(model)), task.items(EXAMPLES[kind])
    if how != "full":
        model.requires_grad_(False)
        items = world.first(lambda: with_vectors(task, model, items, weights=hash_weights(model)))
    config = TrainConfig(optimizer="sgd", batch=4, micro_batches=2, accumulate=2, clip=0.1)
    step = Step(learner.train(), task.make_loader(items, batch=2, seed=0), config, world=world)
    for number in range(2):
        step(number, 0.1, None)
    step.close()
    return torch.cat([each.detach().flatten() for each in learner.parameters() if each.requires_grad])


POOLED = ("classification", "regression", "choice")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("processes")
    run_processes(2, train_everything, made)
    return made


def lines(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if value is not None and name not in NOT_COMPARED}
        for line in found
    ]


@pytest.mark.parametrize("name", LEARN)
def test_two_processes_have_the_losses_of_one(name: str, folder: Path) -> None:
    alone, together = (lines(folder / where / name) for where in ("alone", "together"))
    assert len(alone) == len(together) >= 3
    for one, two in zip(alone, together, strict=True):
        assert two == pytest.approx(one, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("task", ["-".join(task) for task in TASKS])
def test_two_processes_learn_a_task_as_one(task: str, folder: Path) -> None:
    kind, name, how = task.split("-")
    together = torch.load(folder / "tasks.pt")[task]
    torch.testing.assert_close(together, train_task(kind, name, how, world=ALONE), rtol=1e-4, atol=1e-5)
    assert not together.equal(initial(kind, name, how))


def initial(kind: str, name: str, how: str) -> Tensor:
    """The same weights before the first step."""
    pooled: dict[str, Any] = {"pool": "mean", "activation": None} if how != "full" and kind in POOLED else {}
    task, model = toy_task(kind, load_class(name), tokenizer=tokenizer(), method=how, **pooled), model_of(name)
    torch.manual_seed(1)
    learner = Learner(model, task, task.heads(model))
    if how != "full":
        model.requires_grad_(False)
    return torch.cat([each.detach().flatten() for each in learner.parameters() if each.requires_grad])


def test_all_systems_are_trained() -> None:
    assert {case["model"]["kind"] for case in LEARN.values()} >= set(LINEAGE) - {"ngram", "vit"}
