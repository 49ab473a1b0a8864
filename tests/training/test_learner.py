"""One learner: global counts over micro-batches, groups by layer, and checkpoints that hold all of it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lmlab.data.loaders.streams import Windows
from lmlab.metrics.bleu import Bleu
from lmlab.metrics.metric import Average
from lmlab.models import create
from lmlab.objectives.causal import Causal
from lmlab.objectives.objective import Batch, weighted_mean
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import resume, start
from lmlab.runs.storage import read_tensors, write_folder, write_json, write_tensors
from lmlab.training.devices import own_randomness, random_tensors, restore_random
from lmlab.training.learner import Learner
from lmlab.training.progress import TrainingProgress
from lmlab.training.schedule import Layerwise
from lmlab.training.settings import TrainConfig
from lmlab.training.step import Step
from lmlab.training.trainer import Trainer

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words.\n" for i in range(200))


class Uneven(Causal):
    """Batches whose rows are cut at different lengths: each micro-batch has another number of predictions."""

    def batch(self, raw: Tensor, generator: np.random.Generator | None = None) -> Batch:
        rows = 1 + int(raw[0, 0]) % len(raw)
        return super().batch(raw[:rows])


def gradients(learner: Learner, batches: list[Batch]) -> Tensor:
    """As a step takes them: each micro-batch divided by the counts of all."""
    counts = {"next": sum(batch.counts["next"] for batch in batches)}
    learner.zero_grad()
    for batch in batches:
        weighted_mean(learner(batch).sums, counts, learner.objective.loss_weights).backward()
    return torch.cat([parameter.grad.flatten() for parameter in learner.parameters() if parameter.grad is not None])


def test_uneven_micro_batches_have_the_gradient_of_the_whole() -> None:
    torch.manual_seed(0)
    learner = Learner(create("gpt2", {"vocabulary": 20, "window": 16}, size="tiny").double(), Causal())
    rows = torch.randint(0, 20, (32, 17))
    parts = [Causal().batch(part) for part in rows.split([8, 3, 1, 20])]
    whole = gradients(learner, [Causal().batch(rows)])
    torch.testing.assert_close(gradients(learner, parts), whole, rtol=1e-12, atol=1e-14)
    means = torch.stack([gradients(learner, [part]) for part in parts]).mean(0)
    assert (means - whole).norm() > 1e-2 * whole.norm(), "the mean of means is something else"


def test_a_step_weighs_every_prediction_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four uneven micro-batches move the weights as one batch of all their rows."""
    tokens = np.random.default_rng(0).integers(0, 20, 3000).astype(np.uint16)
    loader = Windows(tokens, batch=8, window=16, seed=0)
    objective = Uneven()
    moved = []
    for accumulate in (4, 1):
        torch.manual_seed(0)
        model = create("gpt2", {"vocabulary": 20, "window": 16}, size="tiny").double()
        learner = Learner(model, objective if accumulate == 4 else Causal())
        step = Step(learner, loader, TrainConfig(accumulate=accumulate, optimizer="sgd", clip=None))
        if accumulate == 1:
            rows = [objective.batch(loader.batch(place)) for place in range(4)]
            assert len({batch.counts["next"] for batch in rows}) > 1
            texts = [torch.cat([b.inputs["tokens"], b.labels["targets"][:, -1:]], 1) for b in rows]
            whole = Causal().batch(torch.cat(texts))
            monkeypatch.setattr(
                step.prefetcher, "batch", lambda micro, following, whole=whole: {0: whole}[micro.number]
            )
        result, _ = step(0, 0.5, None)
        step.close()
        moved.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        assert result.units["tokens"] == result.counts["next"]
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-12, atol=1e-13)


def test_layers_learn_at_their_own_share_of_the_rate() -> None:
    assert Layerwise(decay=0.5).scales(7, 4) == [0.125, 0.25, 0.5, 1.0]
    assert Layerwise(unfreeze=3).scales(0, 3) == [0.0, 0.0, 1.0]
    assert Layerwise(unfreeze=3).scales(3, 3) == [0.0, 1.0, 1.0]
    assert Layerwise(unfreeze=3).scales(100, 3) == [1.0, 1.0, 1.0]
    tokens = np.random.default_rng(0).integers(0, 20, 3000).astype(np.uint16)
    torch.manual_seed(0)
    model = create("gpt2", {"vocabulary": 20, "window": 16}, size="tiny")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for steps, learning in ((2, {"embedding"}), (3, {"embedding", "blocks.1", "norm"})):  # tied, so it predicts
        model.load_state_dict(before, strict=False)  # a tied weight is there once
        config = TrainConfig(budget=f"{steps}steps", unfreeze=2, layer_decay=0.5, rate=1e-2, schedule="constant")
        Trainer(Learner(model, Causal()), Windows(tokens, batch=4, window=16, seed=0), config).run()
        moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
        assert {".".join(name.split(".")[: 2 if name.startswith("blocks") else 1]) for name in moved} == learning


def recipe(text: Path, **settings: Any) -> Any:
    defaults = {"budget": "12steps", "batch": 4, "window": 16, "evaluations": 2, "log_every": 3, "save_seconds": 0.0}
    return make_recipe(
        {
            "data": {"text": str(text)},
            "tokenizer": {"spec": "characters"},
            "model": {"kind": "gpt2", "size": "tiny", "layers": 3},
            "train": {**defaults, **settings},
        }
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def interrupted_after(steps: int) -> Any:
    calls = iter(range(10_000))
    return lambda: next(calls) >= steps


def test_gradual_unfreezing_resumes_to_the_bit(text: Path, tmp_path: Path) -> None:
    """Frozen layers have no moments yet when the run is interrupted, and all have them at the end."""
    chosen = recipe(text, unfreeze=3, layer_decay=0.4)
    start(chosen, tmp_path / "whole")
    start(chosen, tmp_path / "part", interrupted=interrupted_after(5))
    kept = read_tensors(tmp_path / "part" / "last" / "training.safetensors")
    assert any("blocks.2." in name for name in kept)
    assert not any("blocks.0." in name for name in kept)
    resume(tmp_path / "part")
    for name in ("model.safetensors", "last/training.safetensors", "last/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "part" / name).read_bytes(), name


def test_a_checkpoint_with_numbers_for_names_is_resumed(text: Path, tmp_path: Path) -> None:
    """As they were written before 0.3: optimizer state by index, tokens in place of units."""
    chosen = recipe(text)
    start(chosen, tmp_path / "whole")
    start(chosen, tmp_path / "old", interrupted=interrupted_after(5))
    last = tmp_path / "old" / "last"
    tensors, weights = read_tensors(last / "training.safetensors"), read_tensors(last / "model.safetensors")
    progress = json.loads((last / "progress.json").read_text())
    model = create("gpt2", make_recipe_model(tmp_path / "old"))
    named = [f"model.{name}" for name, _ in model.named_parameters()]
    order = [name for name in named if _dimensions(model, name) >= 2]
    order += [name for name in named if _dimensions(model, name) < 2]
    old = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            parameter, _, key = name.removeprefix("optimizer.").rpartition(".")
            name = f"optimizer.{order.index(parameter)}.{key}"
        old[name] = tensor
    progress["tokens"] = progress.pop("units")["tokens"]

    def fill(folder: Path) -> None:
        write_tensors(folder / "training.safetensors", {n: t for n, t in old.items() if not n.startswith("scaler")})
        write_tensors(folder / "model.safetensors", weights)
        write_json(folder / "progress.json", progress)

    write_folder(last, fill)
    resume(tmp_path / "old")
    assert (tmp_path / "whole" / "model.safetensors").read_bytes() == (
        tmp_path / "old" / "model.safetensors"
    ).read_bytes()


def make_recipe_model(run: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((run / "config.json").read_text())["model"]
    return values


def _dimensions(model: torch.nn.Module, name: str) -> int:
    return model.get_parameter(name.removeprefix("model.")).dim()


def test_progress_of_old_checkpoints_counts_tokens() -> None:
    progress = TrainingProgress.model_validate({"step": 3, "tokens": 96})
    assert (progress.units, progress.tokens) == ({"tokens": 96}, 96)
    assert TrainingProgress.model_validate(progress.model_dump()) == progress
    assert TrainingProgress.model_validate({"share": 0.25}).fraction == 0.25
    old = TrainingProgress.model_validate({"measures": {"accuracy": [3.0, 4]}, "best_measures": {"f1": 0.5}})
    assert (old.metric_sums, old.best_metrics) == ({"accuracy": (3.0, 4)}, {"f1": 0.5}), (
        "as they were called before 0.6"
    )


def test_the_scale_of_fp16_gradients_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU there is no fp16, so the scaler is switched on by hand."""
    tokens = np.arange(40) % 7

    def stepper() -> Step:
        learner = Learner(create("gpt2", {"vocabulary": 20, "window": 16}, size="tiny"), Causal())
        step = Step(learner, Windows(tokens, batch=2, window=8, seed=0), TrainConfig())
        step.scaler = torch.amp.GradScaler("cpu", enabled=True, init_scale=8.0, growth_interval=1)
        return step

    first, second = stepper(), stepper()
    first(0, 1e-3, None)
    assert first.scaler.get_scale() == 16.0
    second.restore(first.tensors())
    assert second.scaler.get_scale() == 16.0
    first.close()
    second.close()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_nothing_that_was_made_of_the_weights_outlives_a_step(optimizer: str) -> None:
    """Layouts and vectors of spelled words are kept until the weights change, which fused optimizers do not tell."""
    torch.manual_seed(0)
    values = {"vocabulary": 30, "width": 8, "cells": 12, "filters": [[1, 6], [2, 6]], "letter_width": 4, "samples": 5}
    model = create("lm-1b", values, size="tiny")
    tokens = np.random.default_rng(0).integers(0, 30, 200)
    config = TrainConfig(optimizer=optimizer, rate=0.1)
    step = Step(Learner(model, Causal()), Windows(tokens, batch=2, window=8, seed=0), config)
    text = torch.from_numpy(tokens[None, :9])
    try:
        for number in range(2):
            with torch.no_grad():
                fresh = create("lm-1b", values, size="tiny").eval()
                fresh.load_state_dict(model.state_dict())
                torch.testing.assert_close(model.eval()(text).hidden, fresh(text).hidden)
            model.train()
            step(number, 0.1, None)
    finally:
        step.close()


def test_validation_leaves_the_generators_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with own_randomness(torch.device("cpu"), seed=0):
        inside = torch.rand(2)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(0)
    assert torch.equal(inside, torch.rand(2))

    states = {0: torch.zeros(1), 1: torch.ones(1)}  # two GPUs that nobody here has
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device.index])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.update({device.index: state}))
    second = torch.device("cuda:1")
    kept = random_tensors(second)
    assert torch.equal(kept["random.cuda"], torch.ones(1)), "the generator of the device that is used"
    states[1] = torch.full((1,), 7.0)
    restore_random(kept, second)
    assert torch.equal(states[1], torch.ones(1))
    assert torch.equal(states[0], torch.zeros(1))


def test_metrics_are_computed_over_the_whole() -> None:
    average = Average("higher")
    average.add(torch.tensor([True, False, False]))
    average.add(torch.tensor([True]))
    assert average.value() == 0.5
    assert np.isnan(Average("lower").value())
    pytest.importorskip("sacrebleu")
    whole = Bleu()
    sentences = [("the cat sat on the mat", "the cat sat on a mat"), ("a dog", "a dog barked loudly at night")]
    each = []
    for pair in sentences:
        one = Bleu()
        one.add(pair)
        each.append(one.value())
        whole.add(pair)
    assert whole.better == "higher"
    assert abs(whole.value() - sum(each) / 2) > 1, "BLEU of a text is no mean over sentences"


def test_what_sees_ahead_while_it_learns_tells_no_bits_per_byte(tmp_path: Path) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("".join(f"number {i % 17} and {i % 5}\n" for i in range(100)))
    for attends in ("chunk", "bucket"):
        chosen = make_recipe(
            {
                "data": {"text": str(text)},
                "tokenizer": {"spec": "bytes"},
                "model": {"kind": "reformer", "size": "tiny", "attends": attends, "window": 32},
                "train": {"budget": "1steps", "batch": 2},
            }
        )
        assert (start(chosen, tmp_path / attends).bits_per_byte is None) == (attends == "chunk")


def test_bits_per_byte_of_training_is_that_of_score(tmp_path: Path) -> None:
    """What separates documents is predicted, but is no text: it counts neither in score nor in training."""
    import lmlab

    text = tmp_path / "lines.txt"
    text.write_text("".join(f"number {i % 17} and {i % 5}\n" for i in range(600)))
    for kind in ("lstm", "ngram"):
        chosen = make_recipe(
            {
                "data": {"text": str(text), "documents": "lines"},
                "tokenizer": {"spec": "bytes"},
                "model": {"kind": kind, "size": "tiny"},
                "train": {"budget": "20steps", "evaluation_tokens": 10**6, "batch": 4, "window": 16},
            }
        )
        run = tmp_path / kind
        outcome = start(chosen, run)
        corpus_valid = _validation_texts(run)
        exact = lmlab.load(run).score(corpus_valid).bits_per_byte
        # an LSTM reads documents one after another while it learns, and each alone when it is scored
        assert outcome.bits_per_byte == pytest.approx(exact, rel=1e-6 if kind == "ngram" else 0.05)


def _validation_texts(run: Path) -> list[str]:
    from lmlab.runs.held_out import reopen_corpus
    from lmlab.runs.jobs import Silent
    from lmlab.runs.recipe_record import read_record

    corpus = reopen_corpus(read_record(run), run, Silent())
    assert corpus.valid is not None
    return list(corpus.valid.texts())


class Counted(Windows):
    """Counts how often it gets the number of batches."""

    plans = 0

    def plan(self, total_steps: int | None) -> None:
        self.plans += 1


def test_the_thread_that_makes_batches_ends_whatever_happens() -> None:
    learner = Learner(create("lstm", {"vocabulary": 20}, size="tiny"), Causal())
    loader = Counted(np.arange(200) % 20, batch=2, window=8, seed=0)

    def fail(line: dict[str, Any], progress: TrainingProgress) -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        Trainer(learner, loader, TrainConfig(budget="9steps", log_every=3), on_log=fail).run()
    assert loader.plans == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]
    assert not learner.training


def test_a_job_plans_its_steps_once(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int | None] = []
    monkeypatch.setattr(Windows, "plan", lambda self, total: planned.append(total))
    values = {
        "data": {"text": str(text)},
        "tokenizer": {"spec": "characters"},
        "model": {"kind": "gpt2", "size": "tiny"},
    }
    train_settings = {"budget": "3steps", "batch": 2, "window": 16, "accumulate": 2}
    start(make_recipe({**values, "train": train_settings}), tmp_path / "run")
    assert planned == [6]
