"""Vectors of a frozen model: as of a live pass, computed once, found again by all they depend on, in bounded room."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmlab.data.loaders.bucketing import in_batches
from lmlab.data.loaders.examples import ExampleLoader
from lmlab.data.readers.files import cache_folder
from lmlab.models import load_class
from lmlab.objectives.objective import weighted_mean
from lmlab.tasks import frozen_vectors
from lmlab.tasks.frozen_vectors import hash_weights, with_vectors
from lmlab.training.learner import Learner
from tolerances import of_blocks
from toy_tasks import EXAMPLES, toy_model, toy_task, toy_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
TOLERANCE = of_blocks(2, width=16, growth=8)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items vectors were computed for, each time."""
    counted: list[int] = []
    compute = frozen_vectors._compute

    def count(task: Any, model: Any, items: Any, *rest: Any) -> None:
        counted.append(len(items))
        compute(task, model, items, *rest)

    monkeypatch.setattr(frozen_vectors, "_compute", count)
    return counted


@pytest.mark.parametrize("layers", ["last", "mix", "second-to-last", "sum:all", "concat:-2:"])
@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_vectors_are_those_of_a_live_pass(kind: str, layers: str) -> None:
    tokenizer = toy_tokenizer()
    how = {"method": "mix"} if layers == "mix" else {"method": "frozen", "layers": layers}
    both = {"both_orders": True, "pool": "mean"} if kind in ("regression", "choice") else {}
    task = toy_task(kind, load_class("bert"), tokenizer=tokenizer, **how, **both)
    model = toy_model("bert", tokenizer).train()
    items = task.items(EXAMPLES[kind])
    found = with_vectors(task, model, items, weights="w")
    assert model.training, "as it was"
    model.eval()
    for item, own in zip(items, found, strict=True):
        assert isinstance(own.vectors, np.memmap)
        with torch.no_grad():
            live = task.read(model, task.batch([item]))
        expected = live.flatten(0, 1).numpy()[: task.vectors_of(item)]
        np.testing.assert_allclose(own.vectors, expected, atol=TOLERANCE, rtol=TOLERANCE)
        assert replace(own, vectors=None) == item


def test_a_second_run_reads_the_cache(passes: list[int]) -> None:
    """Other weights, layers, pools, frames or examples are other vectors; labels are not looked at."""
    tokenizer, cls = toy_tokenizer(), load_class("bert")
    model = toy_model("bert", tokenizer)
    usual: dict[str, Any] = {"method": "frozen", "pool": "mean", "tokenizer": tokenizer}
    task = toy_task("classification", cls, **usual)
    examples = EXAMPLES["classification"]
    weights = hash_weights(model)
    with_vectors(task, model, task.items(examples), weights=weights)
    with_vectors(task, model, task.items(examples), weights=hash_weights(toy_model("bert", tokenizer)))
    relabelled = [example._replace(label="pos") for example in examples]
    with_vectors(task, model, task.items(relabelled), weights=weights)
    assert len(passes) == 1
    with torch.no_grad():
        next(iter(model.parameters())).flatten()[0] += 1e-3
    assert hash_weights(model) != weights
    with_vectors(task, model, task.items(examples), weights=hash_weights(model))
    assert len(passes) == 2
    for number, change in enumerate(
        ({"layers": "first"}, {"pool": "max"}, {"window": 5}, {"frame": {"tokens": "cls:0 a:0"}}, {"method": "mix"})
    ):
        other = toy_task("classification", cls, **{**usual, **change})
        with_vectors(other, model, other.items(examples), weights=weights)
        assert len(passes) == 3 + number, change
    with_vectors(task, model, task.items(examples[1:]), weights=weights)
    assert len(passes) == 8
    assert hash_weights(toy_model("bert", tokenizer, heads=4)) != hash_weights(toy_model("bert", tokenizer)), "settings"


@pytest.mark.parametrize("kind", ["bert", "lstm"])
def test_nothing_is_drawn_on_the_way(kind: str) -> None:
    """What a head learns must not depend on whether its vectors were in the cache."""
    tokenizer = toy_tokenizer()
    task = toy_task("classification", load_class(kind), tokenizer=tokenizer, method="frozen", pool="mean")
    model = toy_model(kind, tokenizer, dropout=0.5).train()
    before = torch.get_rng_state()
    with_vectors(task, model, task.items(EXAMPLES["classification"]), weights="w")
    assert torch.get_rng_state().equal(before)


def test_numbers_of_new_words_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """New words have numbers by the order in which a process meets them; only their letters count."""
    tokenizer = toy_tokenizer()
    task = toy_task("classification", load_class("bert"), tokenizer=tokenizer, method="frozen")
    item, first = task.items(EXAMPLES["classification"])[0], tokenizer.vocabulary

    def key(number: int, word: str) -> str:
        monkeypatch.setattr(type(tokenizer), "new_words", lambda _, ids: [word for each in ids if each >= first])
        return frozen_vectors._key(task, [replace(item, parts={"a": [3, first + number, 4]})], "w")

    assert key(0, "unicorn") == key(7, "unicorn") != key(0, "dragon")


def test_where_a_text_ends_matters() -> None:
    """The same tokens, cut in other places, are other items."""
    tokenizer = toy_tokenizer()
    task = toy_task("regression", load_class("bert"), tokenizer=tokenizer, method="frozen")
    first, *_ = EXAMPLES["regression"]
    keys = {
        frozen_vectors._key(task, task.items([first._replace(a=a, b=b)]), "w")
        for a, b in (("a cat sat", "on the mat"), ("a cat", "sat on the mat"), ("a cat sat on the mat", ""))
    }
    assert len(keys) == 3


def test_the_oldest_vectors_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = toy_tokenizer()
    model = toy_model("bert", tokenizer)
    task = toy_task("classification", load_class("bert"), tokenizer=tokenizer, method="frozen")
    items, folder = task.items(EXAMPLES["classification"]), cache_folder() / "vectors"
    for number in range(3):
        with_vectors(task, model, items, weights=str(number))
        os.utime(folder / frozen_vectors._key(task, items, str(number)), (number, number))
    with_vectors(task, model, items, weights="0")  # used again: no longer the oldest
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) // 3
    monkeypatch.setattr(frozen_vectors, "LIMIT", int(3.5 * size))
    kept = with_vectors(task, model, items, weights="3")
    left = {number for number in "0123" if (folder / frozen_vectors._key(task, items, number)).is_dir()}
    assert left == {"0", "2", "3"}
    monkeypatch.setattr(frozen_vectors, "LIMIT", 1)
    with_vectors(task, model, items, weights="4")
    assert [each.name for each in folder.iterdir()] == [frozen_vectors._key(task, items, "4")], (
        "what is needed now stays"
    )
    assert np.isfinite(kept[0].vectors).all(), "what was mapped can still be read"  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["frozen", "mix"])
@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_the_head_learns_as_if_the_model_were_read_each_time(kind: str, how: str) -> None:
    tokenizer = toy_tokenizer()
    heads = []
    for cached in (True, False):
        task, model = toy_task(kind, load_class("gpt2"), tokenizer=tokenizer, method=how), toy_model("gpt2", tokenizer)
        torch.manual_seed(1)
        learner = Learner(model.requires_grad_(False), task, task.heads(model))
        items = task.items(EXAMPLES[kind])
        if cached:
            items = with_vectors(task, model, items, weights=hash_weights(model))
        loader = ExampleLoader(items, batch=3, window=0, seed=0, tokens=task.length_of)
        optimizer = torch.optim.SGD(learner.heads.parameters(), 0.05)
        for step in range(8):
            batch = task.batch(loader.batch(step))
            optimizer.zero_grad()
            weighted_mean(learner(batch).sums, batch.counts, task.loss_weights).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        heads.append(learner.heads.state_dict())
    for name, value in heads[0].items():
        torch.testing.assert_close(value, heads[1][name], atol=10 * TOLERANCE, rtol=10 * TOLERANCE)


def test_batches_have_every_item_once() -> None:
    lengths = [3, 50, 7, 7, 1, 20, 0, 9]
    groups = list(in_batches(lengths, tokens=40))
    assert sorted(number for group in groups for number in group) == list(range(8))
    assert all(len(group) == 1 or len(group) * (max(lengths[n] for n in group) + 4) <= 40 for group in groups)
    assert list(in_batches([], tokens=40)) == []


def test_an_epoch_has_every_example_once() -> None:
    items = list(range(23))
    loader = ExampleLoader(items, batch=5, window=0, seed=3, tokens=lambda item: item % 7)
    epochs = [[loader.batch(epoch * 5 + step) for step in range(5)] for epoch in range(3)]
    for batches in epochs:
        assert sorted(item for batch in batches for item in batch) == items
    assert epochs[0] != epochs[1]
    again = ExampleLoader(items, batch=5, window=0, seed=3, tokens=lambda item: item % 7)
    assert again.batch(13) == epochs[2][3], "batch k is a pure function of k"
