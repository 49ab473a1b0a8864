"""The floating-point operations of a task: the part of a model that it reads, and its own head.

What a task does not compute is not counted: scores over the vocabulary, a decoder, ELECTRA's generator. Of a frozen
model it is one forward pass over each example, when the vectors are made; training then costs what the head costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, mean_flops
from lmlab.tasks.long_texts import LEARNT

if TYPE_CHECKING:
    from lmlab.tasks.task import Item, Task


def step_flops(task: Task, model: Model, heads: Mapping[str, nn.Module], loader: Any) -> float:
    """Of the forward and backward pass over one batch of a loader, on average."""

    def flops_of(part: Any, place: int) -> tuple[float, Mapping[str, int]]:
        batch = task.outline(part.batch(place))
        return batch_flops(task, model, heads, batch), batch.units

    return mean_flops(loader, flops_of)


def batch_flops(task: Task, model: Model, heads: Mapping[str, nn.Module], batch: Batch) -> float:
    """Of the forward and backward pass over a batch.

    All layers are counted as learning: while `gradual` has not yet thawed one, its gradients are computed all the same.
    """
    head = task.scored(batch) * head_flops(heads, frozen=not task.config.trains_model)
    if not task.config.trains_model:
        return head
    total = head + PASSES * model.embedding_flops_of(batch.inputs) + _body_flops(task, model, batch)
    if task.config.auxiliary:
        total += PASSES * model.head_flops() * batch.counts["language"]
    return total


def head_flops(heads: Mapping[str, nn.Module], *, frozen: bool) -> float:
    """Of the forward and backward pass of a head over one vector.

    A conditional random field and a mix of layers have no matrix products. Vectors that were computed once need no
    gradient, which saves the first layer a product; but those of a mix do, because the mix is learnt.
    """
    linear = [each for head in heads.values() for each in head.modules() if isinstance(each, nn.Linear)]
    total = PASSES * sum(2.0 * each.weight.numel() for each in linear)
    return total - 2.0 * linear[0].weight.numel() if frozen and "mix" not in heads else total


def frozen_flops(task: Task, model: Model, groups: Iterable[Sequence[Item]]) -> float:
    """Of the vectors of items, which a frozen model reads group by group: one forward pass.

    A word that is read by its letters is computed once for all groups.
    """
    total, words = 0.0, []
    for items in groups:
        inputs = (batch := task.outline(items)).inputs
        total += model.reading_flops(inputs, places=_places(task, batch))
        words.append(next(iter(inputs.values())).flatten())
    return total + (model.embedding_flops_of({"tokens": torch.cat(words)[None]}) if words else 0.0)


def _places(task: Task, batch: Batch) -> int | None:
    """How many vectors of each row are asked for; None where the model gives all of them."""
    at = batch.labels.get("at")
    return None if at is None or task.config.reads != "last" or task.config.auxiliary else at.shape[1]


def _body_flops(task: Task, model: Model, batch: Batch) -> float:
    rows, longest = next(iter(batch.inputs.values())).shape[:2]
    segment = task.config.segment
    if segment is None or longest <= segment or task.config.auxiliary:
        return model.training_passes(longest) * model.reading_flops(batch.inputs, places=_places(task, batch))
    total, starts = 0.0, range(0, longest, segment)
    for left, start in zip(range(len(starts), 0, -1), starts, strict=True):
        part = min(segment, longest - start)
        body = rows * part * model.body_flops(part, remembered=min(start, model.memory))
        total += body * (model.training_passes(part) if left <= LEARNT else 1.0)
    return total
