"""The slanted triangle, steps scaled by their length, and NT-ASGD against a loop of torch's own SGD."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmlab.data.loaders.streams import Streams, VariedStreams
from lmlab.models import create
from lmlab.objectives.causal import Causal
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import resume, start
from lmlab.runs.storage import read_tensors
from lmlab.training.evaluation import Evaluation
from lmlab.training.learner import Learner
from lmlab.training.schedule import learning_rate
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step
from lmlab.training.trainer import Trainer
from lmlab.training.weight_average import check_average, plateaued


def test_the_slanted_triangle_is_that_of_the_paper() -> None:
    """Howard & Ruder 2018, equation 3, with T = 1000 steps, cut_frac 0.1, ratio 32 and their η_max."""
    config, T, cut_frac, ratio = TrainConfig(schedule="slanted", rate=0.01), 1000, 0.1, 32
    cut = math.floor(T * cut_frac)
    for t in (0, 1, 50, 99, 100, 101, 500, 999):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        expected = 0.01 * (1 + p * (ratio - 1)) / ratio
        assert learning_rate(config, step=t, progress=t / T) == pytest.approx(expected, rel=1e-12)


def test_averaging_begins_as_the_authors_say() -> None:
    """When the loss is above the least of all but the last n before it."""
    assert not plateaued(5.0, [3.0, 2.0], validations=2)
    assert plateaued(5.0, [3.0, 2.0, 2.0], validations=2)
    assert not plateaued(2.5, [3.0, 2.0, 2.0], validations=2)
    assert plateaued(2.5, [3.0, 2.0, 2.2, 2.3], validations=2)
    losses = [3.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    begun = [plateaued(loss, losses[:place], validations=5) for place, loss in enumerate(losses)]
    assert begun == [False] * 6 + [True] * 2


def test_only_what_sgd_finds_and_validation_watches_is_averaged() -> None:
    check_average(TrainConfig(optimizer="sgd", average=5), validated=True)
    check_average(TrainConfig(), validated=False)
    with pytest.raises(ValueError, match=r"train.optimizer is 'adamw': set train.optimizer=sgd"):
        check_average(TrainConfig(average=5), validated=True)
    with pytest.raises(ValueError, match=r"train.average = 5 begins when validation plateaus: validation data are"):
        check_average(TrainConfig(optimizer="sgd", average=5), validated=False)


def learner_and_loader(kind: type[Any] = Streams) -> tuple[Learner, Any]:
    torch.manual_seed(0)
    tokens = np.random.default_rng(0).integers(0, 20, 600)
    model = create("awd-lstm", {"vocabulary": 20, "width": 8, "hidden": 8, "reset_probability": 0.0}, size="tiny")
    for module in model.modules():  # what is drawn would be another thing in another loop
        for name in ("p", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return Learner(model, Causal()), kind(tokens, batch=2, window=10, seed=0)


def test_the_mean_is_that_of_all_weights_since_validation_stood_still() -> None:
    learner, loader = learner_and_loader()
    losses = iter([3.0, 2.0, 2.5, 2.6, 2.7, 2.8, 2.9, 3.0])
    seen: list[list[torch.Tensor]] = []

    def evaluate(batches: Any = None, *, seconds: float | None = None) -> Evaluation:
        seen.append([parameter.detach().clone() for parameter in learner.parameters()])
        return Evaluation(next(losses), {})

    config = TrainConfig(
        budget="16steps", optimizer="sgd", rate=0.5, schedule="constant", average=2, evaluate_every=2, clip=None
    )
    Trainer(learner, loader, config, evaluate=evaluate).run()  # begins after step 10: 2.7 > min(3, 2)

    other, _ = learner_and_loader()
    sgd: Any = torch.optim.SGD(other.parameters(), lr=0.5)
    other.train()
    state, iterates = None, []
    for step in range(16):
        batch = other.objective.batch(loader.batch(step), None)  # type: ignore[arg-type]
        loss = other(batch, state)
        state = loss.state
        sgd.zero_grad()
        (loss.sums["next"] / batch.counts["next"]).backward()
        sgd.step()
        iterates.append([parameter.detach().clone() for parameter in other.parameters()])
    for number, validated in enumerate(seen):
        last = 2 * (number + 1)
        counted = iterates[10:last] or iterates[last - 1 : last]
        for own, *weights in zip(validated, *counted, strict=True):
            torch.testing.assert_close(own, torch.stack(weights).mean(0), rtol=1e-5, atol=1e-6)
    for own, raw in zip(learner.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(own, raw, rtol=1e-5, atol=1e-6)


def test_a_short_segment_takes_a_short_step() -> None:
    learner, loader = learner_and_loader(VariedStreams)
    step = Step(learner, loader, TrainConfig(optimizer="sgd"))
    try:
        for number in range(3):
            step(number, 0.7, None)
            length = loader.batch(number).shape[1] - 1
            assert [group["lr"] for group in step.optimizer.param_groups] == pytest.approx([0.7 * length / 10] * 2)
    finally:
        step.close()


def test_an_averaged_run_of_varied_segments_resumes_to_the_bit(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    words = np.random.default_rng(0).choice(["the", "cat", "dog", "sat", "on", "a", "mat", "."], 4000)
    text.write_text(" ".join(words))
    recipe = make_recipe(
        {
            "data": {"text": str(text)},
            "tokenizer": {"spec": "words"},
            "model": {"kind": "awd-lstm", "size": "tiny", "width": 8, "hidden": 12},
            "train": {
                **{"budget": "40steps", "optimizer": "sgd", "rate": 5.0, "schedule": "constant", "window": 12},
                **{"average": 1, "evaluate_every": 4, "evaluation_tokens": 200, "clip": 0.25, "batch": 4},
            },
        }
    )
    start(recipe, tmp_path / "whole")
    for parts in ((13, 40), (7, 29, 40)):
        path = tmp_path / f"cut{len(parts)}"
        polls = iter(range(10_000))
        start(recipe, path, interrupted=lambda polls=polls, last=parts[0]: next(polls) >= last)
        for last in parts[1:]:
            polls = iter(range(10_000))
            resume(path, interrupted=lambda polls=polls, last=last: next(polls) >= last)
        for name in ("model.safetensors", "last/model.safetensors", "last/training.safetensors"):
            whole, cut = read_tensors(tmp_path / "whole" / name), read_tensors(path / name)
            assert whole.keys() == cut.keys()
            assert all(torch.equal(whole[each], cut[each]) for each in whole)
    assert any(name.startswith("average.mean.") for name in read_tensors(path / "last/training.safetensors"))
