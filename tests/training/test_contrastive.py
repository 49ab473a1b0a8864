"""Losses that are not additive over micro-batches: a contrastive objective as a test double."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.streams import Windows
from lmlab.metrics.metric import StreamingMetric
from lmlab.models import create
from lmlab.models.model import Model
from lmlab.objectives import OBJECTIVES, load_objective
from lmlab.objectives.objective import Batch, Loss, NotAdditive, PreTraining
from lmlab.training.learner import Learner
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step
from lmlab.training.trainer import train
from lmlab.training.world import ALONE, World
from worlds import GlooWorld, run_processes

VOCABULARY = 20


class Temperature(nn.Module):
    """CLIP's learnt scale of similarities."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(1.0))


class Contrastive(PreTraining):
    """The two halves of a text find each other among all halves of the batch (InfoNCE, symmetric as in CLIP)."""

    Config: ClassVar[type[Config]] = Config
    reads: ClassVar[tuple[str, ...]] = ("text",)
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {}

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {"pairs": 1.0}

    def heads(self, model: Model) -> dict[str, nn.Module]:
        return {"temperature": Temperature()}

    def batch(self, raw: Tensor, generator: np.random.Generator | None = None) -> Batch:
        half = raw.shape[1] // 2
        inputs = {"first": raw[:, :half], "second": raw[:, half : 2 * half]}
        return Batch(inputs, {}, {"pairs": len(raw)}, {"tokens": raw.numel()})

    def embed(self, model: Any, heads: Mapping[str, nn.Module], batch: Batch) -> dict[str, Tensor]:
        both = model(tokens=torch.cat([batch.inputs["first"], batch.inputs["second"]]))
        first, second = F.normalize(both.hidden.mean(1), dim=-1).chunk(2)
        return {"first": first, "second": second}

    def compare(self, heads: Mapping[str, nn.Module], vectors: Mapping[str, Tensor]) -> Loss:
        temperature = heads["temperature"]
        assert isinstance(temperature, Temperature)
        scores = temperature.log_scale.exp() * vectors["first"] @ vectors["second"].T
        own = torch.arange(len(scores))
        halves = [F.cross_entropy(each, own, reduction="sum") for each in (scores, scores.T)]
        return Loss({"pairs": (halves[0] + halves[1]) / 2})

    def loss(self, model: Any, heads: Mapping[str, nn.Module], batch: Batch, state: Any = None) -> Loss:
        return self.compare(heads, self.embed(model, heads, batch))

    def step_flops(self, model: Model, heads: Mapping[str, nn.Module], loader: Loader) -> float:
        return 1.0


def make_learner(*, dropout: float = 0.0) -> Learner:
    torch.manual_seed(0)
    settings = {"vocabulary": VOCABULARY, "window": 16, "width": 16, "heads": 2, "dropout": dropout}
    model = create("gpt2", settings, size="tiny")
    objective = Contrastive()
    return Learner(model, objective, objective.heads(model))


def make_loader(*, batch: int) -> Windows:
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, 3000).astype(np.uint16)
    return Windows(tokens, batch=batch, window=15, seed=0)


def updates(*, batch: int, accumulate: int, world: World = ALONE) -> Tensor:
    """What one step of SGD at a rate of 1 changes, which is the gradient."""
    learner = make_learner()
    before = torch.cat([weights.detach().flatten().clone() for weights in learner.parameters()])
    config = TrainConfig(accumulate=accumulate, optimizer="sgd", clip=None)
    step = Step(learner, make_loader(batch=batch), config, world=world)
    result, _ = step(0, 1.0, None)
    step.close()
    assert result.counts == {"pairs": batch * accumulate * world.size}
    return before - torch.cat([weights.detach().flatten() for weights in learner.parameters()])


def test_it_is_such_an_objective() -> None:
    assert isinstance(Contrastive(), NotAdditive)


def test_micro_batches_have_the_gradient_of_the_whole_batch() -> None:
    whole, parts = updates(batch=8, accumulate=1), updates(batch=2, accumulate=4)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    learner = make_learner()
    batches = [Contrastive().batch(part) for part in make_loader(batch=8).batch(0).split(2)]
    for batch in batches:
        (learner(batch).sums["pairs"] / 8).backward()
    naive = torch.cat([weights.grad.flatten() for weights in learner.parameters() if weights.grad is not None])
    assert (naive - whole[: len(naive)]).norm() > 0.1 * whole.norm(), "losses of micro-batches do not add up"


def test_the_whole_batch_has_the_gradient_of_its_loss() -> None:
    learner = make_learner()
    (learner(Contrastive().batch(make_loader(batch=8).batch(0))).sums["pairs"] / 8).backward()
    expected = torch.cat(
        [(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in learner.parameters()]
    )
    torch.testing.assert_close(updates(batch=8, accumulate=1), expected, rtol=1e-5, atol=1e-6)


def test_both_passes_have_the_same_dropout() -> None:
    """A step with dropout can be repeated, and random numbers are used up once."""
    ends = []
    for _ in range(2):
        learner = make_learner(dropout=0.5)
        config = TrainConfig(budget="3steps", accumulate=2, optimizer="sgd", rate=0.1)
        train(learner, make_loader(batch=4), config)
        ends.append((torch.cat([each.detach().flatten() for each in learner.parameters()]), torch.rand(1)))
    assert ends[0][0].equal(ends[1][0])
    assert ends[0][1].equal(ends[1][1])


def test_it_learns() -> None:
    losses: list[float] = []
    config = TrainConfig(budget="60steps", accumulate=2, rate=3e-3, log_every=1, schedule="constant")
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, 9 * 15 + 1).astype(np.uint16)
    loader = Windows(tokens, batch=4, window=15, seed=0)
    train(make_learner(), loader, config, on_log=lambda line, _: losses.append(line["loss"]))
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def save_updates(world: GlooWorld, folder: Path) -> None:
    torch.save(updates(batch=2, accumulate=2, world=world), folder / f"{world.rank}.pt")


def test_two_processes_have_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    """The rows of one process are compared with those of the other."""
    run_processes(2, save_updates, tmp_path)
    whole = updates(batch=8, accumulate=1)
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), whole, rtol=1e-5, atol=1e-6)


def test_all_others_are_additive() -> None:
    assert not [name for name in OBJECTIVES if issubclass(load_objective(name), NotAdditive)]
