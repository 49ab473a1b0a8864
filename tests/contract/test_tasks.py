"""Every system that has vectors learns every task, in every way; padding and other rows of the batch change nothing."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest
import torch
from lineage_models import NETWORKS, make
from torch import nn

from lmlab.models import load_class
from lmlab.objectives.objective import weighted_mean
from lmlab.tasks.frozen_vectors import hash_weights, with_vectors
from lmlab.tasks.predicting import Predictor
from lmlab.training.learner import Learner
from tolerances import of_blocks
from toy_tasks import EXAMPLES, toy_heads, toy_task, toy_tokenizer

TASKS = list(EXAMPLES)
TOLERANCE = of_blocks(2, width=20)


@cache
def tokenizer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return toy_tokenizer()


def model_of(name: str) -> Any:
    own = tokenizer()
    return make(name, vocabulary=own.vocabulary, boundary=own.boundary, window=32, source_vocabulary=None)


@pytest.mark.parametrize("how", ["full", "frozen", "mix"])
@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_loss_falls(name: str, kind: str, how: str) -> None:
    pooled = kind in ("classification", "regression", "choice") and how != "full"
    usual: dict[str, Any] = {"pool": "mean", "activation": None} if pooled else {}
    task, model = toy_task(kind, load_class(name), tokenizer=tokenizer(), method=how, **usual), model_of(name)
    learner = Learner(model, task, task.heads(model))
    items = task.items(EXAMPLES[kind])
    if how != "full":
        model.requires_grad_(False)
        items = with_vectors(task, model, items, weights=hash_weights(model))
    batch = task.batch(items)
    optimizer = torch.optim.Adam([each for each in learner.parameters() if each.requires_grad], 1e-2)
    losses = []
    for _ in range(6):
        loss = weighted_mean(learner(batch).sums, batch.counts, task.loss_weights)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert all(torch.isfinite(torch.tensor(losses)))
    assert losses[-1] < losses[0]
    moved = any(parameter.grad is not None for parameter in model.parameters())
    assert moved == (how == "full")


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", NETWORKS)
def test_batching_changes_nothing(name: str, kind: str) -> None:
    """Micro-batches, padding, whatever stands in it, and the order of examples; no token is there for padding."""
    assert not tokenizer().has_special("pad")
    for how, pool in (("full", None), ("mix", "concat")):
        pooled = {"pool": pool} if pool and kind in ("classification", "regression", "choice") else {}
        task, model = toy_task(kind, load_class(name), tokenizer=tokenizer(), method=how, **pooled), model_of(name)
        heads, items = toy_heads(task, model), task.items(EXAMPLES[kind])
        whole = task.batch(items)
        scores, sums = task.scores_and_losses(model, heads, whole)
        parts = [task.batch(part) for part in (items[:1], items[1:3], items[3:])]
        cut = sum(float(task.scores_and_losses(model, heads, part)[1]["label"].detach()) for part in parts)
        assert cut == pytest.approx(float(sums["label"].detach()), rel=TOLERANCE, abs=TOLERANCE)
        assert sum(part.counts["label"] for part in parts) == whole.counts["label"]
        for row, item in zip(scores, items, strict=True):
            (alone,), _ = task.scores_and_losses(model, heads, task.batch([item]))
            torch.testing.assert_close(row[: len(alone)], alone, atol=TOLERANCE, rtol=TOLERANCE)
        text = next(iter(task.frame.templates))
        filled = dict(whole.inputs)
        beyond = torch.arange(filled[text].shape[1]) >= filled["lengths"][:, None]
        filled[text] = filled[text].masked_fill(beyond, 7)
        again, _ = task.scores_and_losses(model, heads, whole._replace(inputs=filled))
        torch.testing.assert_close(again, scores, atol=TOLERANCE, rtol=TOLERANCE)
        _check_predictions(task, model, heads, kind)


def _check_predictions(task: Any, model: Any, heads: nn.ModuleDict, kind: str) -> None:
    predictor = Predictor(task=task, model=model, heads=heads, batch_tokens=16)
    order = [3, 0, 2, 1]
    examples = [EXAMPLES[kind][number] for number in range(4)]
    found = predictor.predict(examples)
    other = predictor.predict([examples[number] for number in order])
    for place, number in enumerate(order):
        ours, theirs = found[number], other[place]
        if kind == "regression":
            assert ours.value == pytest.approx(theirs.value, rel=TOLERANCE, abs=TOLERANCE)
        else:
            assert ours.value == theirs.value
            assert ours.probability == pytest.approx(theirs.probability, rel=10 * TOLERANCE)
            assert ours.span == theirs.span
