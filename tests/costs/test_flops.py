"""What we state of FLOPs is what torch counts for a training step: every system, in pre-training and on tasks.

`torch.utils.flop_counter` sees matrix products and convolutions, forwards and backwards. It does not see into fused
kernels and does not know products that are added in place, so here

- attention runs as plain products (`SDPBackend.MATH`) in texts of one tile, where nothing is left out as causal;
- oneDNN is off, with which torch's LSTM runs as plain products, too;
- `addmm_`, `baddbmm_` and `mv`, which our own kernels call, are given the formulas of their twins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lmlab.costs.design import describe
from lmlab.data.corpora.corpus import Split
from lmlab.models import LINEAGE, create, load_class
from lmlab.objectives.objective import Batch, weighted_mean
from lmlab.tasks.features import vectors_flops, with_vectors
from lmlab.tasks.flops import batch_flops
from lmlab.training.learner import Learner
from lmlab.training.settings import TrainConfig
from lmlab.training.trial import made_up_lesson
from toy_tasks import EXAMPLES, toy_task, toy_tokenizer

NETWORKS = [name for name in LINEAGE if name != "ngram"]
WITHIN = 0.02
aten = torch.ops.aten
UNKNOWN = {
    aten.addmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * b[1],
    aten.baddbmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * a[2] * b[2],
    aten.mv: lambda a, _, **__: 2 * a[0] * a[1],
}


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    with (
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False, custom_mapping=UNKNOWN) as counter,
    ):
        yield counter


def count_step(learner: Learner, batch: Batch, state: Any = None) -> tuple[int, Any]:
    """The FLOPs that torch counts for the forward and backward pass over a batch, and the state after it."""
    learner.train()
    with counting() as counter:
        loss = learner(batch, state)
        weighted_mean(loss.sums, batch.counts, learner.objective.weights).backward()  # type: ignore[no-untyped-call]
    learner.zero_grad()
    return counter.get_total_flops(), loss.state


def lesson(name: str, **settings: Any) -> tuple[Any, Any, Any]:
    """A small model of a system, its own objective, and a loader of made-up text."""
    design = describe(name, size="tiny", vocabulary=500, settings={**plain(name), **settings})
    model = create(name, design.settings or {}, size="tiny")
    objective, text = made_up_lesson(model, design, tokens=8_000, seed=0)
    streams = TrainConfig(**type(model).TRAINING).streams(carries=model.carries)
    loader = objective.loader(text, batch=16, window=min(64, design.window), seed=0, streams=streams)
    return model, objective, loader


def plain(name: str) -> dict[str, Any]:
    """Settings with which every system computes the same for each batch: without dropout, where it has any."""
    fields = load_class(name).Config.model_fields
    return {field: 0.0 for field in fields if field.endswith("dropout")}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_of_pre_training_is_what_torch_counts(name: str) -> None:
    """Of a whole epoch, the first batches left out where a memory fills up: padding, repeated words and all."""
    model, objective, loader = lesson(name)
    learner, state, counted, tokens = Learner(model, objective), None, 0, 0
    for place in range(min(6, int(loader.steps_per_epoch))):
        batch = objective.batch(loader.batch(place), np.random.default_rng([0, place]))
        state = None if not model.carries or loader.restarts(place) else state
        carried = model.memory if state is not None else 0
        found, state = count_step(learner, batch, state)
        if place == 0 or carried:
            stated = objective.batch_flops(model, batch, remembered=carried)
            assert stated == pytest.approx(found, rel=WITHIN), f"batch {place}"
        counted, tokens = counted + found, tokens + batch.units["tokens"]
    assert counted > 0
