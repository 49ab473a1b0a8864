"""A loss that is not additive over micro-batches: CLIP's is that of the whole step, however the step is divided."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from captioned import ToyPictures, make_learner, make_objective
from lmlab.data.loaders.captions import CaptionLoader
from lmlab.objectives import OBJECTIVES, load_objective
from lmlab.objectives.objective import NotAdditive
from lmlab.training.distributed.world import ALONE, World
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step
from lmlab.training.trainer import Trainer
from worlds import run_processes

PAIRS = 8


class InOrder(CaptionLoader):
    """Pairs in the order of their numbers, so that a step of several batches reads what one large batch has."""

    def _make_batches(self, epoch: int) -> list[np.ndarray]:
        return list(np.array_split(np.arange(self.data.size), self.count))


def make_loader(*, batch: int) -> InOrder:
    return InOrder(ToyPictures(PAIRS * 3, distinct=20), batch=batch, window=9, seed=0)


def updates(*, batch: int, accumulate: int, world: World = ALONE) -> Tensor:
    """What one step of SGD at a rate of 1 changes, which is the gradient."""
    learner = make_learner()
    before = torch.cat([weights.detach().flatten().clone() for weights in learner.parameters()])
    config = TrainConfig(accumulate=accumulate, optimizer="sgd", clip=None)
    step = Step(learner, make_loader(batch=batch), config, world=world)
    result, _ = step(0, 1.0, None)
    step.close()
    assert result.counts == {"pairs": PAIRS}
    total, count = result.watched.get("chance", (torch.ones(1), [0]))
    assert sum(count) == PAIRS * world.writes
    assert 0 < float(total.sum()) / PAIRS <= math.log(PAIRS)
    return before - torch.cat([weights.detach().flatten() for weights in learner.parameters()])


def gradients(learner: torch.nn.Module) -> Tensor:
    return torch.cat(
        [(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in learner.parameters()]
    )


def test_it_is_such_an_objective() -> None:
    assert isinstance(make_objective(), NotAdditive)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_micro_batches_have_the_gradient_of_the_whole_batch(parts: int) -> None:
    whole, divided = updates(batch=PAIRS, accumulate=1), updates(batch=PAIRS // parts, accumulate=parts)
    torch.testing.assert_close(divided, whole, rtol=1e-3, atol=1e-5)


def test_losses_of_micro_batches_do_not_add_up() -> None:
    learner, whole = make_learner(), updates(batch=PAIRS, accumulate=1)
    loader = make_loader(batch=2)
    for number in range(4):
        (learner(learner.objective.batch(loader.batch(number), np.random.default_rng())).sums["pairs"] / 8).backward()
    assert (gradients(learner) - whole).norm() > 0.1 * whole.norm()


def test_the_whole_batch_has_the_gradient_of_its_loss() -> None:
    learner = make_learner()
    batch = learner.objective.batch(make_loader(batch=PAIRS).batch(0), np.random.default_rng())
    (learner(batch).sums["pairs"] / PAIRS).backward()
    assert gradients(learner)[-1] == 0 or learner.model.log_scale.grad != 0
    torch.testing.assert_close(updates(batch=PAIRS, accumulate=1), gradients(learner), rtol=1e-5, atol=1e-6)


def test_accumulated_losses_are_logged_as_those_of_the_whole_batch() -> None:
    found = []
    for accumulate in (1, 4):
        lines: list[dict[str, float]] = []
        config = TrainConfig(budget="2steps", accumulate=accumulate, log_every=1, rate=1e-3)
        loader = make_loader(batch=PAIRS // accumulate)
        Trainer(make_learner(), loader, config, on_log=lambda line, _, to=lines: to.append(line)).run()
        found.append([(line["loss"], line["chance"], line["temperature"]) for line in lines])
    assert np.allclose(found[0], found[1], rtol=1e-4)


def test_it_learns() -> None:
    """From chance to less than half of it, on pairs that the picture tells apart."""
    lines: list[dict[str, float]] = []
    loader = CaptionLoader(ToyPictures(64), batch=8, window=9, seed=0)
    config = TrainConfig(budget="150steps", accumulate=2, rate=3e-3, log_every=1, schedule="constant")
    Trainer(make_learner(), loader, config, on_log=lambda line, _: lines.append(line)).run()
    first, last = (sum(line["loss"] for line in part) for part in (lines[:5], lines[-5:]))
    chance = sum(line["chance"] for line in lines[-5:])
    assert first > 0.8 * chance
    assert last < 0.5 * chance


def test_resumed_training_repeats_no_random_numbers() -> None:
    ends = []
    for _ in range(2):
        learner = make_learner()
        Trainer(
            learner, make_loader(batch=4), TrainConfig(budget="3steps", accumulate=2, optimizer="sgd", rate=0.1)
        ).run()
        ends.append((torch.cat([each.detach().flatten() for each in learner.parameters()]), torch.rand(1)))
    assert ends[0][0].equal(ends[1][0])


def save_updates(world: World, folder: Path) -> None:
    torch.save(updates(batch=2, accumulate=4, world=world), folder / f"{world.rank}.pt")


def test_two_processes_have_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    """The rows of one process are compared with those of the other."""
    run_processes(2, save_updates, tmp_path)
    whole = updates(batch=PAIRS, accumulate=1)
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), whole, rtol=1e-3, atol=1e-5)


def test_all_others_are_additive() -> None:
    assert [name for name in OBJECTIVES if issubclass(load_objective(name), NotAdditive)] == ["contrastive"]
