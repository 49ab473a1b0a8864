"""Budgets, schedules, damaged checkpoints and the loop's own care."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmlab.data.loaders.streams import Streams, Windows
from lmlab.models import create, load_class
from lmlab.objectives.causal import Causal
from lmlab.runs.jobs import check_room
from lmlab.runs.model_files import load_model
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import resume, start
from lmlab.runs.storage import DamagedError, read_folder, read_json, read_tensors, verify, write_folder, write_json
from lmlab.training import devices
from lmlab.training.evaluation import Evaluation
from lmlab.training.learner import Learner
from lmlab.training.metrics_log import NotFiniteError
from lmlab.training.schedule import learning_rate
from lmlab.training.settings import TrainConfig
from lmlab.training.step import gains_from_bf16
from lmlab.training.trainer import Trainer

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words.\n" for i in range(300))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def recipe(text: Path, kind: str = "lstm", **train_settings: Any) -> Any:
    defaults = {"budget": "12steps", "batch": 4, "window": 16, "evaluations": 2, "log_every": 3, "save_seconds": 0.0}
    return make_recipe(
        {
            "data": {"text": str(text)},
            "tokenizer": {"spec": "characters"},
            "model": {"kind": kind, "size": "tiny"},
            "train": {**defaults, **train_settings},
        }
    )


def test_schedules() -> None:
    def rate(schedule: str, step: int, progress: float, plateau: float = 1.0) -> float:
        config = TrainConfig(schedule=schedule, rate=2.0, warmup=10, floor=0.1)
        return learning_rate(config, step=step, progress=progress, plateau=plateau)

    assert rate("cosine", 4, 0.0) == pytest.approx(1.0), "half-way through warm-up"
    assert rate("constant", 50, 0.9) == 2.0
    assert rate("linear", 50, 0.5) == pytest.approx(2.0 * 0.55)
    assert rate("cosine", 50, 0.5) == pytest.approx(2.0 * 0.55)
    assert rate("cosine", 50, 1.0) == pytest.approx(0.2)
    assert rate("inverse-sqrt", 39, 0.5) == pytest.approx(2.0 * math.sqrt(10 / 40))
    assert rate("plateau", 50, 0.5, plateau=0.25) == 0.5


def test_step_decay_is_zarembas_halving() -> None:
    """1 in the first four epochs, then halved in each (Zaremba et al. 2014, section 4.1)."""
    config = TrainConfig(schedule="step_decay", rate=1.0)
    rates = [learning_rate(config, step=100 * epoch, progress=epoch / 13, epoch=epoch) for epoch in range(13)]
    assert rates == [1, 1, 1, 1, *(0.5**n for n in range(1, 10))]
    config = TrainConfig(schedule="step_decay", rate=2.0, step_decay_epochs=1, step_decay_factor=0.1)
    assert learning_rate(config, step=7, progress=0.5, epoch=2) == pytest.approx(0.02)


def test_epochs_of_step_decay_are_those_of_the_text() -> None:
    """The rates that a run logs, step by step: an epoch of 25 batches in twos has 12.5 steps."""
    torch.manual_seed(0)
    tokens = np.random.default_rng(0).integers(0, 9, 1001).astype(np.uint16)
    learner = Learner(create("rnn", {"vocabulary": 9, "width": 4, "hidden": 4}), Causal())
    config = TrainConfig(
        **{"schedule": "step_decay", "step_decay_epochs": 1, "rate": 0.8, "optimizer": "sgd", "log_every": 1},
        **{"budget": "3epochs", "accumulate": 2, "batch": 4},
    )
    rates: list[float] = []
    loader = Streams(tokens, batch=4, window=10, seed=0)
    Trainer(learner, loader, config, on_log=lambda line, _: rates.append(line["rate"])).run()
    assert loader.steps_per_epoch == 25
    assert rates == pytest.approx([0.8] * 13 + [0.4] * 12 + [0.2] * 12)


def test_windows_visit_everything_once_an_epoch() -> None:
    loader = Windows(np.arange(103, dtype=np.uint16), batch=2, window=10, seed=0)
    assert loader.count == 9
    epochs = []
    for epoch in range(2):
        rows = [loader._row(epoch * loader.count + i) for i in range(loader.count)]
        starts = sorted(int(row[0]) for row in rows)
        assert all(b - a == 10 for a, b in itertools.pairwise(starts)), "they do not overlap"
        assert all((np.diff(row.astype(int)) == 1).all() and len(row) == 11 for row in rows)
        epochs.append([int(row[0]) for row in rows])
    assert epochs[0] != epochs[1], "in another order"
    again = Windows(np.arange(103, dtype=np.uint16), batch=2, window=10, seed=0)
    assert torch.equal(again.batch(7), loader.batch(7)), "batch 7 does not depend on what was asked before"


def test_streams_go_on_where_they_were() -> None:
    loader = Streams(np.arange(103, dtype=np.uint16), batch=3, window=5, seed=0)
    for step in range(1, loader.count):
        assert not loader.restarts(step)
        assert torch.equal(loader.batch(step - 1)[:, -1], loader.batch(step)[:, 0])
    assert loader.restarts(0)
    assert loader.restarts(loader.count)


def test_text_shorter_than_a_batch_still_trains() -> None:
    assert Windows(np.arange(4), batch=8, window=64, seed=0).batch(0).shape == (8, 4)
    assert Streams(np.arange(4), batch=8, window=64, seed=0).batch(0).shape == (3, 2)
    with pytest.raises(ValueError, match="at least 2"):
        Windows(np.arange(1), batch=1, window=1, seed=0)


def test_accumulation_equals_one_large_batch() -> None:
    tokens = np.random.default_rng(0).integers(0, 20, 2000).astype(np.uint16)
    weights = []
    for batch, accumulate in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        model = create("gpt2", {"vocabulary": 20, "dropout": 0.0, "window": 16}, size="tiny")
        loader = Windows(tokens, batch=batch, window=16, seed=0)
        config = TrainConfig(budget="3steps", accumulate=accumulate, optimizer="sgd", rate=0.5)
        Trainer(Learner(model, Causal()), loader, config).run()
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-5, rtol=1e-4)


def test_a_loss_that_is_no_number_stops_the_run_and_is_never_best(text: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFiniteError, match=r"at step \d+.*last good checkpoint") as error:
        start(
            recipe(text, "nplm", rate=3e3, clip=None, optimizer="sgd", budget="80steps", schedule="constant"),
            tmp_path / "run",
        )
    step = int(str(error.value).split("at step ")[1].split(";")[0])
    progress = read_json(tmp_path / "run" / "last" / "progress.json")
    assert 0 < progress["step"] < step
    kept = read_tensors(tmp_path / "run" / "last" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in kept.values())


def test_early_stopping(text: Path, tmp_path: Path) -> None:
    settings = {"budget": "200steps", "evaluate_every": 2, "patience": 2, "rate": 1e-12}
    outcome = start(recipe(text, "gpt2", **settings), tmp_path / "run")
    assert outcome.progress.ended == "early"
    assert outcome.progress.step < 200


def test_best_and_last_are_both_kept(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(recipe(text, rate=0.02, budget="40steps", evaluate_every=4), run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["valid_loss"] for line in lines if "valid_loss" in line]
    assert read_json(run / "last" / "progress.json")["best"] == min(losses)
    assert [line["best"] for line in lines if "best" in line] == [
        loss == min(losses[: i + 1]) for i, loss in enumerate(losses)
    ]


def test_a_longer_budget_extends_a_finished_run(text: Path, tmp_path: Path) -> None:
    start(recipe(text), tmp_path / "run")
    assert resume(tmp_path / "run").progress.step == 12, "finished: nothing to do"
    assert resume(tmp_path / "run", settings={"budget": "20steps"}).progress.step == 20


def test_a_finished_run_in_time_stays_as_it_is(text: Path, tmp_path: Path) -> None:
    step = start(recipe(text, budget="0.5s"), tmp_path / "run").progress.step
    assert step > 1
    assert resume(tmp_path / "run").progress.step == step


class Slow:
    """An evaluation whose batches take a second each, by a clock that training moves too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, batches: int) -> None:
        self.batches, self.seen, self.now = batches, [], 0.0
        monkeypatch.setattr("lmlab.training.energy_meter.time.perf_counter", lambda: self.now)

    def __call__(self, batches: Any = None, *, seconds: float | None = None) -> Evaluation:
        wanted = (batches or {}).get("", self.batches)
        done = min(wanted, int(seconds) + 1) if seconds is not None and not batches else wanted
        self.now += done
        self.seen.append(done)
        return Evaluation(1.0, {}, {}, {"": done})


@pytest.mark.parametrize(("batches", "number", "each"), [(1, 10, 1), (10, 5, 10), (100, 2, 26)])
def test_validation_takes_about_half_the_time_of_training(
    batches: int, number: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget of 100 s, at a second a step: as many validations, on as many batches, as fit into about 50 s."""
    slow = Slow(monkeypatch, batches=batches)
    loader = Windows(np.arange(100, dtype=np.uint16) % 20, batch=1, window=8, seed=0)
    config = TrainConfig(budget="100s", rate=0.1)
    torch.manual_seed(0)
    model = create("nplm", {"vocabulary": 20}, size="tiny")
    learner = Learner(model, Causal())
    forward = learner.forward

    def second(*arguments: Any) -> Any:
        slow.now += 1
        return forward(*arguments)

    monkeypatch.setattr(learner, "forward", second)
    progress = Trainer(learner, loader, config, evaluate=slow).run()
    assert slow.seen == [each] * number
    assert sum(slow.seen) <= 0.55 * progress.seconds
    slow.seen.clear()
    Trainer(learner, loader, TrainConfig(budget="100steps", rate=0.1), evaluate=slow).run()
    assert slow.seen == [batches] * 10, "what other budgets give does not depend on the clock"


def test_a_validation_that_was_cut_short_reads_the_same_again(text: Path, tmp_path: Path) -> None:
    """Also after resuming, so that all losses of a run are of the same text."""
    start(recipe(text, "gpt2", budget="1s", evaluations=3), tmp_path / "run")
    progress = read_json(tmp_path / "run" / "last" / "progress.json")
    assert progress["evaluation_batches"][""] >= 1
    more = resume(tmp_path / "run", settings={"budget": "1.5s"}).progress
    assert more.evaluation_batches == progress["evaluation_batches"]


def test_a_changed_text_is_not_resumed(text: Path, tmp_path: Path) -> None:
    start(recipe(text), tmp_path / "run")
    text.write_text(TEXT + "One line more.\n")
    with pytest.raises(ValueError, match="has changed"):
        resume(tmp_path / "run", settings={"budget": "20steps"})


def test_a_run_is_not_overwritten_unasked(text: Path, tmp_path: Path) -> None:
    start(recipe(text), tmp_path / "run")
    with pytest.raises(ValueError, match="--overwrite"):
        start(recipe(text), tmp_path / "run")
    start(recipe(text, budget="5steps"), tmp_path / "run", overwrite=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="not a run directory"):
        start(recipe(text), tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "thesis.tex").read_text() == "precious"


def test_a_run_that_was_killed_before_it_began_can_be_started(text: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in (".lock", "tokenizer.json", ".config.json.new"):
        (tmp_path / "run" / name).write_text("")
    assert start(recipe(text), tmp_path / "run").progress.step == 12


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_a_flipped_bit_is_noticed_and_the_previous_checkpoint_taken(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(recipe(text), run)
    good = (run / "model.safetensors").read_bytes()
    flip_a_bit(run / "last" / "model.safetensors")
    with pytest.warns(UserWarning, match=r"last.model\.safetensors is damaged.*previous"):
        outcome = resume(run)
    assert outcome.progress.step == 12, "step 11 was read, step 12 done again"
    verify(run / "last")
    assert (run / "model.safetensors").read_bytes() == good

    flip_a_bit(run / "model.safetensors")
    with pytest.warns(UserWarning, match=r"model\.safetensors is damaged.*Taking the last checkpoint"):
        load_model(run)
    (run / "last" / "model.safetensors").write_bytes(b"short")
    flip_a_bit(run / "previous" / "training.safetensors")
    with pytest.raises(DamagedError, match="No complete checkpoint is left"):
        load_model(run)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_damaged_description_is_named(text: Path, tmp_path: Path, name: str) -> None:
    start(recipe(text), tmp_path / "run")
    (tmp_path / "run" / name).write_text("{")
    with pytest.raises(DamagedError, match=name):
        load_model(tmp_path / "run")


def test_a_folder_survives_a_crash_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever system call is the last one, the old or the new content is there, whole."""
    import os
    import shutil

    def write(value: int) -> None:
        write_folder(tmp_path / "last", lambda folder: write_json(folder / "value.json", value))

    def read() -> Any:
        return read_folder(tmp_path / "last", lambda folder: read_json(folder / "value.json"))

    write(0)
    write(1)
    for fatal in range(12):
        calls = 0

        def crashing(real: Any, fatal: int = fatal) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls > fatal:
                    raise SystemExit("crash")
                return real(*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            for module, name in ((os, "replace"), (os, "fsync"), (os, "rename"), (shutil, "rmtree"), (Path, "rename")):
                patch.setattr(module, name, crashing(getattr(module, name)))
            with contextlib.suppress(SystemExit):
                write(2)
        assert read() in (1, 2), f"after {fatal} calls"
        write(1)
        assert read() == 1


def test_unknown_settings_name_the_nearest(text: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'budget'"):
        recipe(text, budgte="3steps")
    with pytest.raises(ValueError, match="did you mean 'gpt2'"):
        recipe(text, "gtp2")
    with pytest.raises(ValueError, match=r"train\.rate.*greater than 0"):
        recipe(text, rate=-1.0)


def test_in_bf16_a_resumed_run_is_the_same_and_micro_batches_are_near(text: Path, tmp_path: Path) -> None:
    def weights(run: str) -> dict[str, torch.Tensor]:
        return read_tensors(tmp_path / run / "last" / "model.safetensors")

    settings = {"precision": "bf16", "schedule": "constant", "warmup": 0}
    start(recipe(text, "gpt2", **settings), tmp_path / "whole")
    start(recipe(text, "gpt2", **settings, budget="5steps"), tmp_path / "parts")
    resume(tmp_path / "parts", settings={"budget": "12steps"})
    start(recipe(text, "gpt2", **settings, micro_batches=2), tmp_path / "micro")
    whole, parts, micro = weights("whole"), weights("parts"), weights("micro")
    assert whole
    for name, tensor in whole.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, parts[name]), name
        if tensor.dim() > 1:  # biases of keys have no gradient but rounding
            assert (tensor - micro[name]).norm() < 0.1 * tensor.norm(), name


def test_auto_is_bf16_where_the_cpu_has_it_and_quality_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: True)
    assert devices.choose_dtype("auto", cpu, bf16_on_cpu=True) == torch.bfloat16
    assert devices.choose_dtype("auto", cpu) is None
    assert devices.choose_dtype("fp32", cpu, bf16_on_cpu=True) is None
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: False)
    assert devices.choose_dtype("auto", cpu, bf16_on_cpu=True) is None

    def gains(kind: str, **size: int) -> bool:
        return gains_from_bf16(Learner(create(kind, {"vocabulary": 9, **size}), Causal()))

    assert gains("gpt2", width=256, layers=2)
    assert not gains("gpt2", width=16, layers=1), "too small"
    assert not gains("lstm", width=512, hidden=512), "not measured"


@pytest.mark.parametrize("began", ["bf16", "fp32"])
def test_auto_keeps_the_precision_that_a_run_began_with(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began: str
) -> None:
    def chosen(name: str) -> Callable[..., torch.dtype | None]:
        return lambda precision, device, **_: devices.choose_dtype(name if precision == "auto" else precision, device)

    settings = {"schedule": "constant", "warmup": 0}
    start(recipe(text, "gpt2", **settings, precision=began), tmp_path / "whole")
    monkeypatch.setattr("lmlab.training.step.choose_dtype", chosen(began))
    start(recipe(text, "gpt2", **settings, precision="auto", budget="5steps"), tmp_path / "parts")
    monkeypatch.setattr("lmlab.training.step.choose_dtype", chosen("fp32" if began == "bf16" else "bf16"))
    resume(tmp_path / "parts", settings={"budget": "12steps"})
    whole, parts = (read_tensors(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())


def test_bf16_and_compile_fallback(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = start(recipe(text, "gpt2", precision="bf16"), tmp_path / "bf16")
    assert outcome.bits_per_byte is not None
    assert math.isfinite(outcome.bits_per_byte)

    def broken(*arguments: Any, **options: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            raise RuntimeError("no compiler here")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(UserWarning, match="no compiler here.*continuing without"):
        compiled = start(recipe(text, "gpt2", compile=True), tmp_path / "compiled")
    plain = start(recipe(text, "gpt2"), tmp_path / "plain")
    assert compiled.bits_per_byte == plain.bits_per_byte


def test_a_model_that_does_not_fit_is_refused_with_its_bytes(text: Path, tmp_path: Path) -> None:
    enormous = {"data": {"text": str(text)}, "model": {"kind": "gpt2", "width": 10**6, "heads": 1}}
    with pytest.raises(ValueError, match=r"gpt2 .* needs at least .* TB of memory \(.* for weights, .* are free"):
        start(make_recipe(enormous), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("optimizer", "parts"), [("adamw", 4), ("sgd", 2), ("adagrad", 2), (None, 1)])
def test_needed_memory_is_counted_by_optimizer(optimizer: str | None, parts: int) -> None:
    config = load_class("gpt2").Config(vocabulary=30, width=8, heads=2, layers=1, window=8)
    size = 4 * sum(each.numel() for each in load_class("gpt2")(config).parameters())
    settings = None if optimizer is None else TrainConfig(optimizer=optimizer)
    check_room("gpt2", config, settings, free=parts * size)
    with pytest.raises(ValueError, match="needs at least"):
        check_room("gpt2", config, settings, free=parts * size - 1)
