"""The floating-point operations of a task: the part of a model that it reads, and its head.

What a task does not compute is not counted: scores over the vocabulary, a decoder, ELECTRA's generator. A frozen model
costs one forward pass over each example, when the vectors are computed; training then costs only the head.
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
    from lmlab.tasks.records import Item
    from lmlab.tasks.task import Task


def step_flops(task: Task, model: Model, heads: Mapping[str, nn.Module], loader: Any) -> float:
    """FLOPs of the forward and backward pass over one batch of a loader, on average."""

    def flops_of(part: Any, number: int) -> tuple[float, Mapping[str, int]]:
        batch = task.flops_batch(part.batch(number))
        return batch_flops(task, model, heads, batch), batch.units

    return mean_flops(loader, flops_of)


def batch_flops(task: Task, model: Model, heads: Mapping[str, nn.Module], batch: Batch) -> float:
    """FLOPs of the forward and backward pass over a batch.

    All layers count as trained: gradients of layers that `gradual` has not yet unfrozen are computed all the same.
    """
    head = task.scored(batch) * head_flops(heads, frozen=not task.config.trains_model)
    return head + task.model_flops(model, batch) if task.config.trains_model else head


def model_flops(model: Model, batch: Batch, *, positions: int | None) -> float:
    """FLOPs of a model over a batch, forward and backward; `positions` vectors of each row are read, None: all."""
    longest = next(iter(batch.inputs.values())).shape[1]
    body = model.training_passes(longest) * model.reading_flops(batch.inputs, positions=positions)
    return PASSES * model.embedding_flops_of(batch.inputs) + body


def segmented_flops(model: Model, batch: Batch, *, segment: int) -> float:
    """The same for long texts that are read segment by segment; gradients flow in the last LEARNT of them."""
    rows, longest = next(iter(batch.inputs.values())).shape[:2]
    total, starts = PASSES * model.embedding_flops_of(batch.inputs), range(0, longest, segment)
    for left, start in zip(range(len(starts), 0, -1), starts, strict=True):
        length = min(segment, longest - start)
        body = rows * length * model.body_flops(length, memory_length=min(start, model.memory))
        total += body * (model.training_passes(length) if left <= LEARNT else 1.0)
    return total


def head_flops(heads: Mapping[str, nn.Module], *, frozen: bool) -> float:
    """FLOPs of the forward and backward pass of a head over one vector.

    A conditional random field and a mix of layers have no matrix products. Vectors that were computed once need no
    gradient, which saves the first layer a product; but those of a mix do, because the mix is learnt.
    """
    linear = [each for head in heads.values() for each in head.modules() if isinstance(each, nn.Linear)]
    total = PASSES * sum(2.0 * each.weight.numel() for each in linear)
    return total - 2.0 * linear[0].weight.numel() if frozen and "mix" not in heads else total


def frozen_flops(task: Task, model: Model, groups: Iterable[Sequence[Item]]) -> float:
    """FLOPs of the vectors of items, which a frozen model reads group by group: one forward pass.

    A word that is read by its letters is computed once for all groups.
    """
    total, words = 0.0, []
    for items in groups:
        batch = task.flops_batch(items)
        total += model.reading_flops(batch.inputs, positions=task.positions_read(batch))
        words.append(next(iter(batch.inputs.values())).flatten())
    return total + (model.embedding_flops_of({"tokens": torch.cat(words)[None]}) if words else 0.0)
