"""One run in several processes: the same weights for any number of them, resumed with another number, or sharded."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.runs.run import resume, start
from lmlab.runs.storage import read_json, read_tensors
from lmlab.training.distributed.world import ALONE, World
from worlds import run_processes

TEXT = "".join(f"Line {i} of {i * 7 % 11} has {i % 13} words.\n\n" for i in range(200))
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"width": 16, "heads": 2, "layers": 2, "window": 16, "dropout": 0.2},
    "llama": {"width": 16, "heads": 2, "layers": 2, "window": 16},
    "bert": {"width": 16, "heads": 2, "layers": 2, "window": 32, "dropout": 0.2},
    "albert": {"width": 16, "heads": 2, "layers": 2, "window": 32},
    "bart": {"width": 16, "heads": 2, "layers": 1, "window": 32, "dropout": 0.0},
    "lstm": {"width": 16, "layers": 1, "dropout": 0.2},
}
SKIPPED = ("cost", "parameters")
EXACT: dict[str, Any] = {"exact": True, "micro_batches": 4, "optimizer": "adamw", "rate": 0.01, "momentum": 0.0}
KINDS = ("gpt2", "lstm")
SHARDED = ("gpt2", "llama", "bert", "albert", "bart", "lstm")


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


def weights_of(run: Path) -> str:
    return hashlib.sha256((run / "last" / "model.safetensors").read_bytes()).hexdigest()


def compare(one: Path, other: Path) -> None:
    """Two runs are equal, except for rounding."""
    ours, theirs = (read_tensors(run / "last" / "model.safetensors") for run in (one, other))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5, msg=name)
    for mine, yours in zip(lines(one), lines(other), strict=True):
        assert mine == pytest.approx(yours, rel=1e-4, abs=1e-5)


def interrupt(settings: Recipe, run: Path, world: World) -> None:
    """Begin a run that one process, which is not the first, is asked to stop after two steps."""
    asked = iter([False, False, world.rank == world.size - 1])
    outcome = start(settings, run, world=world, interrupted=lambda: next(asked))
    assert (outcome.interrupted, outcome.progress.step) == (True, 2)


def train_in_two(world: World, folder: Path) -> None:
    check_exchange(world)
    for kind in KINDS:
        start(recipe(kind, folder, **EXACT), folder / f"{kind}-exact-2", world=world)
        interrupt(recipe(kind, folder, **EXACT, save_seconds=0.0), folder / f"{kind}-interrupted", world)
        assert resume(folder / f"{kind}-begun-alone", world=world).progress.step == 4
        start(recipe(kind, folder, micro_batches=3, batch=6), folder / f"{kind}-uneven-2", world=world)
        start(recipe(kind, folder), folder / f"{kind}-usual-2", world=world)
    start(recipe("gpt2", folder, unfreeze=2, layer_decay=0.5), folder / "unfrozen-2", world=world)


def check_exchange(world: World) -> None:
    """What processes tell each other."""
    own = [{"rank": world.rank, "text": "ä" * 3000 * world.rank}]
    assert [each[0]["rank"] for each in world.gather(own)] == [0, 1]
    assert len(world.gather(own)[1][0]["text"]) == 3000
    assert world.broadcast({"from": world.rank}) == {"from": 0}
    assert world.any(world.rank == 1)
    assert not world.any(False)
    totals = world.totals({"a": 2**53 if world.rank else 1, f"only {world.rank}": [0.5, 1.0]})
    assert totals == {"a": 2**53 + 1, "only 0": 1.5, "only 1": 1.5}
    tensors = {"x": torch.full((1 + world.rank, 2), world.rank), "y": torch.tensor(world.rank > 0)}
    assert [each["x"].tolist() for each in world.gather_tensors(tensors)] == [[[0, 0]], [[1, 1], [1, 1]]]
    assert [each["y"].item() for each in world.gather_tensors(tensors)] == [False, True]
    collected = world.collect({f"of {world.rank}": torch.tensor([world.rank], dtype=torch.bfloat16)})
    assert not world.writes or collected["of 1"].tolist() == [1.0]
    order: list[int] = []
    world.first(lambda: order.append(world.rank))
    assert order == [world.rank]


def train_in_three(world: World, folder: Path) -> None:
    for kind in KINDS:
        start(recipe(kind, folder, **EXACT), folder / f"{kind}-exact-3", world=world)
        assert resume(folder / f"{kind}-interrupted-2", world=world).progress.step == 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("processes")
    for kind in KINDS:
        start(recipe(kind, made, **EXACT), made / f"{kind}-exact-1")
        interrupt(recipe(kind, made, **EXACT, save_seconds=0.0), made / f"{kind}-begun-alone", ALONE)
        start(recipe(kind, made, micro_batches=3, batch=6), made / f"{kind}-uneven-1")
        start(recipe(kind, made, micro_batches=2), made / f"{kind}-usual-1")
    start(recipe("gpt2", made, unfreeze=2, layer_decay=0.5, micro_batches=2), made / "unfrozen-1")
    run_processes(2, train_in_two, made)
    for kind in KINDS:
        shutil.copytree(made / f"{kind}-interrupted", made / f"{kind}-interrupted-2")
    return made


@pytest.fixture(scope="module")
def three(folder: Path) -> Path:
    run_processes(3, train_in_three, folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_processes_has_the_same_weights(kind: str, three: Path) -> None:
    """Also the losses, with dropout, gradient clipping and Adam."""
    one, two, other = (three / f"{kind}-exact-{size}" for size in (1, 2, 3))
    assert weights_of(one) == weights_of(two) == weights_of(other)
    assert lines(one) == lines(two) == lines(other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_resumed_exactly_with_another_number_of_processes(kind: str, three: Path) -> None:
    expected = weights_of(three / f"{kind}-exact-1")
    assert weights_of(three / f"{kind}-begun-alone") == expected  # and resumed with two
    assert weights_of(three / f"{kind}-interrupted-2") == expected  # begun with two, and resumed with three
    assert weights_of(three / f"{kind}-interrupted") != expected
    resume(three / f"{kind}-interrupted")
    assert weights_of(three / f"{kind}-interrupted") == expected
    assert lines(three / f"{kind}-interrupted") == lines(three / f"{kind}-exact-1")


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_need_not_be_shared_evenly(kind: str, folder: Path) -> None:
    compare(folder / f"{kind}-uneven-1", folder / f"{kind}-uneven-2")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_as_many_micro_batches_as_it_began_with(kind: str, folder: Path) -> None:
    assert read_json(folder / f"{kind}-usual-2" / "recipe.json")["train"]["micro_batches"] == 2
    compare(folder / f"{kind}-usual-1", folder / f"{kind}-usual-2")


def test_layers_are_unfrozen_in_all_processes(folder: Path) -> None:
    """DDP does not allow it: the learner is wrapped again."""
    compare(folder / "unfrozen-1", folder / "unfrozen-2")


def shard(world: World, folder: Path) -> None:
    for kind in SHARDED:
        settings = recipe(kind, folder, micro_batches=2, optimizer="adamw", momentum=0.0, rate=0.01, save_seconds=0.0)
        start(settings, folder / f"{kind}-sharded", world=world)
        interrupt(settings, folder / f"{kind}-parts", world)
        resume(folder / f"{kind}-parts", world=world)
    with pytest.raises(ValueError, match="--exact adds up whole gradients"):
        start(recipe("gpt2", folder, **EXACT), folder / "exact-sharded", world=world)


def test_weights_can_be_divided_among_processes(tmp_path: Path) -> None:
    """FSDP2: runs, checkpoints and resumed runs are those of one process."""
    run_processes(2, shard, tmp_path, sharded=True)
    for kind in SHARDED:
        settings = recipe(kind, tmp_path, micro_batches=2, optimizer="adamw", momentum=0.0, rate=0.01)
        start(settings, tmp_path / f"{kind}-alone")
        compare(tmp_path / f"{kind}-alone", tmp_path / f"{kind}-sharded")
        compare(tmp_path / f"{kind}-sharded", tmp_path / f"{kind}-parts")
        names = [
            read_tensors(tmp_path / f"{kind}-{how}" / "last" / "training.safetensors") for how in ("alone", "parts")
        ]
        assert {name: each.shape for name, each in names[0].items()} == {n: each.shape for n, each in names[1].items()}
