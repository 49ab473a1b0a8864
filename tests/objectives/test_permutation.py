"""Permutation language modelling: what is predicted, in which order, and how often; and what training records of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from lmlab.data.loaders.streams import Streams
from lmlab.models import create, frame_of
from lmlab.models.abilities import FillsInOrder, require
from lmlab.objectives import create_objective
from lmlab.objectives.objective import IGNORE
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from lmlab.tokenizers import Tokenizer, train
from losses import loss_of, mean_of

ROLES = ("pad", "cls", "sep", "mask")
TEXT = [f"the planet number {number} goes round the sun, and so do {number % 7} moons." for number in range(80)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train("words", TEXT).with_specials(ROLES)


def objective(tokenizer: Tokenizer, **settings: Any) -> Any:
    model = create("xlnet", {"vocabulary": tokenizer.vocabulary, "width": 8, "heads": 2}, size="tiny")
    return create_objective({"kind": "permutation", **settings}, tokenizer, frame_of(model, tokenizer))


def rows(tokenizer: Tokenizer, count: int, window: int) -> torch.Tensor:
    stream = np.concatenate([tokenizer.encode_batch([" ".join(TEXT * 40)])[0]])
    return torch.from_numpy(stream[: count * (window + 1)].reshape(count, window + 1).astype(np.int64))


@pytest.mark.parametrize("predicted", [2, 6])
def test_the_last_part_of_a_random_order_is_predicted(tokenizer: Tokenizer, predicted: int) -> None:
    task, raw = objective(tokenizer, predicted=predicted), rows(tokenizer, 40, 48)
    batch = task.batch(raw, np.random.default_rng(0))
    order, places, targets = batch.inputs["order"], batch.labels["positions"], batch.labels["targets"]
    assert torch.equal(batch.inputs["tokens"], raw[:, :-1])  # nothing is hidden or reordered
    assert places.shape == (40, 48 // predicted)
    assert torch.equal(targets, raw.gather(1, places))
    expected = torch.arange(1, 48 // predicted + 1).expand(40, -1)
    assert torch.equal(order.gather(1, places).sort(1).values, expected)
    assert int((order > 0).sum()) == places.numel() == batch.counts["masked"]
    assert len({tuple(row) for row in order.gather(1, places).tolist()}) > 30  # each row has its own
    again = task.batch(raw, np.random.default_rng(0))
    assert torch.equal(again.inputs["order"], order)


def test_special_tokens_are_given_and_documents_are_segments(tokenizer: Tokenizer) -> None:
    task, raw = objective(tokenizer), rows(tokenizer, 3, 12)
    raw[1, 4] = raw[2, 0] = tokenizer.boundary
    raw[0, 1:] = tokenizer.boundary  # one token is left, which cannot fill two places
    batch = task.batch(raw, np.random.default_rng(1))
    assert batch.labels["targets"][0].tolist().count(IGNORE) == 1
    assert batch.counts["masked"] == 5
    assert not batch.inputs["order"][raw[:, :-1] == tokenizer.boundary].any()
    assert batch.inputs["segments"][1].tolist() == [0] * 4 + [1] * 8
    assert batch.inputs["segments"][2].tolist() == [0] * 12
    assert "segments" not in task.batch(rows(tokenizer, 3, 12), np.random.default_rng(1)).inputs


def test_spans_are_whole_and_short_ones_are_frequent(tokenizer: Tokenizer) -> None:
    """One to five words that stand together, P(n) ∝ 1/n, in stretches six times as long: a sixth of the text."""
    task, raw = objective(tokenizer, unit="span"), rows(tokenizer, 60, 120)
    batch = task.batch(raw, np.random.default_rng(2))
    chosen = (batch.inputs["order"] > 0).numpy()
    assert 0.10 < chosen.mean() <= 1 / 6
    runs: list[int] = []
    for row in chosen:
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(int), [0]))))
        runs += (edges[1::2] - edges[::2]).tolist()
    counts = np.bincount(runs, minlength=6)
    assert max(runs) <= 10  # two that touch
    assert counts[1] > counts[2] > counts[4]
    assert counts[3] + counts[4] + counts[5] > 0.2 * len(runs)


def test_a_model_with_a_memory_reads_streams_and_learns(tokenizer: Tokenizer) -> None:
    """Batch by batch the memory is carried on, and the loss is the surprisal of the targets in their order."""
    torch.manual_seed(0)
    task = objective(tokenizer)
    model: Any = create("xlnet", {"vocabulary": tokenizer.vocabulary}, size="tiny").eval()
    split: Any = type("Split", (), {"tokens": rows(tokenizer, 1, 700)[0].numpy()})()
    loader = task.loader(split, batch=4, window=24, seed=0, streams=True)
    assert isinstance(loader, Streams)
    first, second = (task.batch(loader.batch(step), np.random.default_rng(step)) for step in range(2))
    carried = loss_of(task, model, first).state
    found = loss_of(task, model, second, carried)
    filler: Any = require(model, FillsInOrder)
    with torch.no_grad():
        hidden = filler.read_in_order(**second.inputs, at=second.labels["positions"], state=carried)[0]
        nats = filler.nll(hidden.flatten(0, 1), second.labels["targets"].flatten()).sum()
    torch.testing.assert_close(found.sums["masked"], nats)
    fresh = mean_of(task, second, loss_of(task, model, second))
    assert abs(float(fresh.detach() - mean_of(task, second, found).detach())) > 1e-6  # the memory matters
    assert task.loader(split, batch=4, window=24, seed=0, streams=False).restarts(1)


def test_half_of_the_rows_are_read_backwards(tokenizer: Tokenizer) -> None:
    """The last rows go on from batch to batch towards the beginning of the text, and are marked so."""
    task, text = objective(tokenizer, directions="both"), rows(tokenizer, 1, 700)[0].numpy()
    text[::31] = tokenizer.boundary
    split: Any = type("Split", (), {"tokens": text})()
    loader = task.loader(split, batch=4, window=24, seed=0, streams=True)
    assert (loader.batch_size, loader.units_per_step["tokens"], loader.steps_per_epoch) == (4, 96.0, 14.0)
    assert [loader.restarts(step) for step in (0, 1, 14)] == [True, False, True]
    steps = [task.batch(loader.batch(step), np.random.default_rng(step)) for step in range(14)]
    assert all(step.inputs["backwards"].tolist() == [False, False, True, True] for step in steps)
    assert steps[0].units["tokens"] == 96
    read = torch.cat([step.inputs["tokens"] for step in steps], 1).numpy()  # [4, 14 windows]
    reported = "".join(f"{token:05d}" for token in text)
    for row in (*read[:2], *read[2:, ::-1]):
        assert "".join(f"{token:05d}" for token in row) in reported
    for batch in steps[:3]:  # a document and the boundary that begins it are one segment, from either end
        for row, segments in zip(batch.inputs["tokens"][2:], batch.inputs["segments"][2:], strict=True):
            ends = [0, *(row == tokenizer.boundary).cumsum(0)[:-1].tolist()]
            assert segments.tolist() == ends
    assert task.loader(split, batch=5, window=24, seed=0, streams=True).batch_size == 4
    assert task.loader(split, batch=1, window=24, seed=0, streams=True).batch_size == 2
    with pytest.raises(ValueError, match=r"leave it at 'auto', or set objective\.directions=forward"):
        task.loader(split, batch=4, window=24, seed=0, streams=False)


def test_spans_of_backward_rows_are_whole_words() -> None:
    """Pieces of a word stay together from either end: at most one word of a row is cut, and keeps its beginning."""
    tokenizer = train("wordpiece:80", TEXT).with_specials(ROLES)
    task, text = objective(tokenizer, unit="span", directions="both"), rows(tokenizer, 1, 4000)[0].numpy()
    split: Any = type("Split", (), {"tokens": text})()
    loader = task.loader(split, batch=20, window=60, seed=0, streams=True)
    batch = task.batch(loader.batch(0), np.random.default_rng(0))
    tokens, order, targets = batch.inputs["tokens"], batch.inputs["order"], batch.labels["targets"]
    assert torch.equal(targets, tokens.gather(1, batch.labels["positions"]).where(targets != IGNORE, IGNORE))
    several = 0
    for row, chosen, backwards in zip(tokens.tolist(), order.tolist(), batch.inputs["backwards"].tolist(), strict=True):
        words: list[list[bool]] = []
        for token, number in list(zip(row, chosen, strict=True))[:: -1 if backwards else 1]:
            if not words or not tokenizer.show(token).startswith("##"):
                words.append([])
            words[-1].append(number > 0)
        cut = [word for word in words if any(word) and not all(word)]
        assert len(cut) <= 1
        assert all(word == sorted(word, reverse=True) for word in cut)
        several += sum(all(word) and len(word) > 1 for word in words) if backwards else 0
    assert several > 5


def test_segments_of_a_row_do_not_depend_on_the_others(tokenizer: Tokenizer) -> None:
    """Who reads backwards leaves a document after its boundary, also where that is the first token of a row."""
    task, raw = objective(tokenizer, directions="both"), rows(tokenizer, 2, 12)
    raw[1, 0] = tokenizer.boundary
    alone = task.batch((raw[:1], raw[1:]), np.random.default_rng(0)).inputs["segments"]
    assert alone.tolist() == [[0] * 12, [0] + [1] * 11]
    raw[0, 5] = tokenizer.boundary
    beside = task.batch((raw[:1], raw[1:]), np.random.default_rng(0)).inputs["segments"]
    assert torch.equal(beside[1], alone[1])


@pytest.mark.parametrize("directions", ["forward", "both"])
def test_an_interrupted_run_is_resumed_to_the_bit(directions: str, tmp_path: Path) -> None:
    """Orders, spans and memory are all functions of the step, or saved with it."""
    path = tmp_path / "text.txt"
    path.write_text("\n".join(TEXT * 6))
    values: dict[str, Any] = {
        "data": {"text": [str(path)]},
        "tokenizer": {"spec": "words"},
        "model": {"kind": "xlnet", "size": "tiny", "width": 16, "heads": 2, "inner": 24, "memory": 16},
        "objective": {"unit": "span", "directions": directions},
        "train": {"budget": "12steps", "batch": 4, "window": 16, "evaluations": 2, "save_seconds": 0},
    }
    run.start(make_recipe(values), tmp_path / "whole")
    steps = iter(range(100))
    run.start(make_recipe(values), tmp_path / "cut", interrupted=lambda: next(steps) >= 5)
    run.resume(tmp_path / "cut")
    assert (tmp_path / "cut" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()
    model = lmlab.load(tmp_path / "whole")
    assert model.score("the planet number 3").bits_per_byte < 20
    assert model.fill("the [MASK] number [MASK]", jointly=True, order="2,1").fillings[0].joint > 0


@pytest.mark.parametrize(
    ("objective_settings", "reported"),
    [({"predicted": 1}, "objective.predicted = 1"), ({"unit": "word"}, "objective.unit = 'word'")],
)
def test_bad_settings_are_one_line(tokenizer: Tokenizer, objective_settings: dict[str, Any], reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        objective(tokenizer, **objective_settings)
