"""Convert the heads of fine-tuned runs to the task classes of `transformers` and back.

A task class has a fixed form: it reads one vector, has one activation, and gives numbers on the scale of the data. A
head with another form is refused; the error names the options to fine-tune with. Bias and scale are folded into the
weights; the originals are kept in `lmlab.safetensors`, to restore the run exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lmlab.interop.huggingface.frames import same_frame, shift_frame
from lmlab.interop.huggingface.table import Family, TaskHead

WEIGHT, BIAS = "label.out.weight", "label.out.bias"
SPANS = ("start", "end")
MOST_LABELS = 1_000_000
"""Names of the two scores of an answer span."""
OPTIONS = {
    "pool": "--pool {}",
    "activation": "--set objective.activation={}",
    "both_orders": "--set objective.both_orders=false",
    "crf": "no --crf",
    "method": "--how full",
    "layers": "--layers last",
    "frame": "--set 'objective.frame={}'",
}
"""The options of `lmlab finetune` for a head that can be exported, by setting."""
EXACT = 1e-6
"""Relative tolerance for folding a bias into another tensor."""


def find_head(family: Family, task: Mapping[str, Any]) -> TaskHead:
    """The task class for a head; a ValueError says what it lacks and how to fine-tune without it."""
    kind = task["kind"]
    for head in family.heads:
        if kind in head.tasks:
            break
    else:
        names = ", ".join(head.name for head in family.heads)
        known = f"it has only {names}" if names else "it has no task class that gives the same scores"
        raise ValueError(f"transformers has no {family.model_type} for {kind}: {known}")
    wanted: dict[str, Any] = {"both_orders": False, "crf": False, "method": "full", "layers": "last"}
    if head.pool is not None:
        wanted |= {"pool": head.pool, "activation": head.activation}
    given = {name: task.get(name, value) for name, value in wanted.items()}
    given["method"] = (
        "mix" if given["method"] == "mix" else "full"
    )  # which weights are trained does not change the network
    given["layers"] = given["layers"] if task.get("method") == "frozen" else "last"
    if head.shifted:
        wanted["frame"] = shift_frame(task["frame"]["source"])
        given["frame"] = wanted["frame"] if same_frame(task["frame"], wanted["frame"]) else task["frame"]
    wrong = {name: value for name, value in given.items() if value != wanted[name]}
    if wrong:
        has = " and ".join(f"{name} = {value!r}" for name, value in wrong.items())
        options = " ".join(_option(name, wanted[name]) for name in wrong)
        why = ", which reads the decoder," if "frame" in wrong else ""
        raise ValueError(f"{head.name}{why} cannot hold a head with {has}; for one that fits, fine-tune with {options}")
    return head


def _option(name: str, value: Any) -> str:
    """A setting as an option of `lmlab finetune`."""
    if isinstance(value, Mapping):
        value = "{" + ", ".join(f'{key} = "{each}"' for key, each in value.items()) + "}"
    return OPTIONS[name].format("none" if value is None else value)


def fold(head: TaskHead, task: Mapping[str, Any], tensors: Mapping[str, Tensor], *, layers: int) -> dict[str, Tensor]:
    """The tensors of a run that differ in the task class, whose outputs are on the scale of the data."""
    std, mean = float(task.get("std", 1.0)), float(task.get("mean", 0.0))
    weight = tensors[WEIGHT].double() * std
    bias = tensors[BIAS].double() * std if BIAS in tensors else weight.new_zeros(len(weight))
    bias = bias + mean
    changed = {} if std == 1.0 else {WEIGHT: weight.float()}
    if head.bias:
        same = BIAS in tensors and torch.equal(tensors[BIAS], bias.float())
        return changed if same else {**changed, BIAS: bias.float()}
    if not bias.any():
        return changed
    shift = torch.linalg.pinv(weight) @ bias  # W (h + shift) = W h + b
    if head.absorbs is None or not torch.allclose(weight @ shift, bias, rtol=0, atol=EXACT * float(bias.abs().max())):
        raise ValueError(
            f"{head.name} has no bias, and that of this head cannot be folded into another tensor; for a head without "
            f"one, fine-tune with --set objective.bias=false"
        )
    name = head.absorbs.format(layers - 1)
    return {**changed, name: (tensors[name].double() + shift).float()}


def unfold(
    head: TaskHead, task: Mapping[str, Any], tensors: Mapping[str, Tensor], kept: Mapping[str, Tensor], *, layers: int
) -> dict[str, Tensor] | None:
    """The tensors before folding; None if the exported ones have changed since."""
    used = folded_names(head, layers=layers)
    before = {**tensors, **{name: tensor for name, tensor in kept.items() if name in used}}
    if not task.get("bias", True):
        before.pop(BIAS, None)
    there = used & tensors.keys()
    if any(name in before and before[name].shape != tensors[name].shape for name in there):
        return None
    again = {**before, **fold(head, task, before, layers=layers)}
    return before if all(torch.equal(again[name], tensors[name]) for name in there) else None


def recall(
    head: TaskHead,
    task: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    known: Mapping[str, Any] | None,
    kept: Mapping[str, Tensor],
    layers: int,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A task and its tensors: those of the original run (`known`, `kept`) if unchanged, else those of the folder."""
    if not known or known.get("kind") != task["kind"] or len(describe_labels(known)) != len(describe_labels(task)):
        return dict(task), dict(tensors)
    labels = {"labels": task["labels"]} if "labels" in task else {}
    before = unfold(head, known, tensors, kept, layers=layers)
    if before is not None:
        return {**known, **labels}, before
    plain: dict[str, Any] = {"mean": 0.0, "std": 1.0, "bias": head.bias}
    return {**known, **labels, **{name: plain[name] for name in plain if name in known}}, dict(tensors)


def folded_names(head: TaskHead, *, layers: int) -> set[str]:
    """The tensors that may differ in the task class."""
    return {WEIGHT, BIAS, *([head.absorbs.format(layers - 1)] if head.absorbs else [])}


def describe_labels(task: Mapping[str, Any]) -> list[str]:
    """The names of a head's outputs; never LABEL_0."""
    names = {"regression": ["score"], "choice": ["choice"], "spans": list(SPANS)}
    return names.get(task["kind"]) or [str(label) for label in task["labels"]]


def write_head_config(head: TaskHead, task: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a `config.json` for a head."""
    labels = describe_labels(task)
    config: dict[str, Any] = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    if task["kind"] in ("classification", "regression", "picture_classification"):
        regression = task["kind"] == "regression"
        config["problem_type"] = "regression" if regression else "single_label_classification"
    if head.dropout is not None:
        config[head.dropout] = task.get("dropout", 0.1)
    return config | {option.theirs: option.choices(config)[0] for option in head.options}


def read_task(head: TaskHead, config: Mapping[str, Any], *, dropout: float, where: str) -> dict[str, Any]:
    """The settings of a task, without its frame, from a `config.json`."""
    labels, kind = read_labels(config, where=where), head.tasks[0]
    problem = config.get("problem_type")
    if kind == "classification":
        if problem == "multi_label_classification" or (problem == "regression" and len(labels) > 1):
            raise ValueError(
                f"{where}: problem_type = {problem!r} with {len(labels)} labels is not supported (allowed: "
                f"'single_label_classification', or 'regression' with one)"
            )
        kind = "regression" if len(labels) == 1 else kind
    task: dict[str, Any] = {"kind": kind, "method": "full"}
    if kind in ("classification", "tagging", "picture_classification"):
        task["labels"] = labels
    if kind == "tagging":
        task["scheme"] = find_scheme(labels)
    if head.pool is not None:
        task |= {"pool": head.pool, "activation": head.activation}
        task |= {} if kind == "picture_classification" else {"bias": head.bias}
    given = None if head.dropout is None else config.get(head.dropout, dropout)
    return {**task, "dropout": 0.0 if head.dropout is None else dropout if given is None else given}


def read_labels(config: Mapping[str, Any], *, where: str) -> list[str]:
    """The names of the classes in order; a ValueError if the table is damaged."""
    given = config.get("id2label")
    if given is None:
        count = config.get("num_labels") or config.get("_num_labels") or 2
        if not isinstance(count, int) or not 1 <= count <= MOST_LABELS:
            raise ValueError(f"{where}: num_labels = {count!r} must be a number from 1 to {MOST_LABELS:,}")
        return [f"LABEL_{number}" for number in range(count)]
    try:
        table = {int(number): str(label) for number, label in given.items()}
    except (AttributeError, ValueError):
        raise ValueError(f"{where}: id2label is not a table from numbers to labels") from None
    if sorted(table) != list(range(len(table))) or len(set(table.values())) < len(table):
        raise ValueError(f"{where}: id2label needs the numbers from 0 to {len(table) - 1}, each with a different label")
    return [table[number] for number in range(len(table))]


def find_scheme(labels: list[str]) -> str | None:
    """The span scheme of tags, detected from their names; None for tags of single words."""
    for scheme, letters in (("IOB2", "BI"), ("IOBES", "BIES")):
        if "O" in labels and all(label == "O" or re.fullmatch(f"[{letters}]-.+", label) for label in labels):
            return scheme
    return None


def expected_head(head: TaskHead, task: Mapping[str, Any], *, width: int) -> dict[str, Tensor]:
    """The tensors of a head, without values."""
    outputs = len(describe_labels(task))
    shapes: dict[str, tuple[int, ...]] = {WEIGHT: (outputs, width)}
    if head.bias:
        shapes[BIAS] = (outputs,)
    if head.dense:
        shapes |= {"label.dense.weight": (width, width), "label.dense.bias": (width,)}
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


def with_head(family: Family, head: TaskHead) -> Family:
    """The table of a family with the rows and options of a head."""
    return replace(family, weights=family.weights + head.weights, options=family.options + head.options)
