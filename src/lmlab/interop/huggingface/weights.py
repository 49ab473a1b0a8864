"""Convert tensors of `transformers` to lmlab and back by a family's table; names without a row are reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lmlab.interop.huggingface.table import Family
from lmlab.interop.huggingface.transforms import Transform

if TYPE_CHECKING:
    pass


class WeightRow(NamedTuple):
    """A row of the table for one layer."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    transform: Transform


def rows(family: Family, names: Iterable[str]) -> Iterator[WeightRow]:
    """The rows for a model with these tensor names, one per layer for names with `{}`."""
    known = list(names)
    for weight in family.weights:
        pattern = re.compile(re.escape(weight.our_names[0]).replace(r"\{\}", r"(\d+)"))
        for match in filter(None, map(pattern.fullmatch, known)):
            layer = match[1] if match.groups() else ""
            yield WeightRow(
                tuple(name.replace("{}", layer) for name in weight.our_names),
                tuple(name.replace("{}", layer) for name in weight.their_names),
                weight.transform,
            )


def their_names(family: Family, names: Iterable[str]) -> dict[str, str]:
    """The names in a checkpoint by their names in the table.

    Old versions used other names for some tensors, and a model saved without a head has no prefix.
    """
    given = {_today(family, name): name for name in names}
    if any(name.startswith(family.prefix) for name in given):
        return given
    outside = [name for weight in family.weights for name in weight.their_names] + list(family.copies)
    kept = [_pattern(name) for name in outside if not name.startswith(family.prefix)]
    return {
        name if any(pattern.fullmatch(name) for pattern in kept) else family.prefix + name: original
        for name, original in given.items()
    }


def read(
    family: Family, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, where: str
) -> dict[str, Tensor]:
    """Convert tensors from `transformers`; a ValueError lists missing, unexpected and misshapen ones."""
    names = their_names(family, tensors)
    used: set[str] = set()
    found: dict[str, Tensor] = {}
    problems: dict[str, list[str]] = {"missing": [], "unexpected": [], "wrong": []}
    for row in rows(family, expected):
        used.update(row.theirs)
        absent = [name for name in row.theirs if name not in names]
        problems["missing"] += absent
        if absent:
            continue
        given = [tensors[names[name]] for name in row.theirs]
        wanted = row.transform.write([expected[name] for name in row.ours])
        wrong = [
            complaint
            for name, tensor, shape in zip(row.theirs, given, wanted, strict=True)
            if (complaint := _complain(names[name], tensor, shape))
        ]
        problems["wrong"] += wrong
        if not wrong:
            floats = [tensor.to(torch.float32) for tensor in given]
            found.update(zip(row.ours, row.transform.read(floats), strict=True))
    unread = set(names) - used
    problems["wrong"] += _check_copies(family, {name: tensors[names[name]] for name in names}, unread)
    copies = [_pattern(name) for name in family.copies]
    ignored = [re.compile(pattern) for pattern in family.ignored]
    problems["unexpected"] = [
        names[name] for name in sorted(unread) if not any(each.fullmatch(name) for each in (*copies, *ignored))
    ]
    _report(problems, where=where)
    lost = sorted(expected.keys() - found.keys())
    assert not lost, f"the table of {family.model_type} has no row for {lost}"
    return {name: found[name].contiguous() for name in expected}


def write(family: Family, tensors: Mapping[str, Tensor], *, prefixed: bool) -> dict[str, Tensor]:
    """Convert tensors to `transformers`, tied ones once."""
    result: dict[str, Tensor] = {}
    used: set[str] = set()
    for row in rows(family, tensors):
        used.update(row.ours)
        result |= zip(row.theirs, row.transform.write([tensors[name] for name in row.ours]), strict=True)
    lost = sorted(tensors.keys() - used)
    assert not lost, f"the table of {family.model_type} has no row for {lost}"
    # transforms return views; a checkpoint needs independent tensors
    return {
        name if prefixed else name.removeprefix(family.prefix): tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in result.items()
    }


def _today(family: Family, name: str) -> str:
    for old, new in family.renamed.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{\}", r"\d+"))


def _complain(name: str, tensor: Tensor, expected: Tensor) -> str:
    if tensor.shape != expected.shape:
        return f"{name} is {list(tensor.shape)}, not {list(expected.shape)}"
    if not tensor.is_floating_point():
        return f"{name} holds {str(tensor.dtype).removeprefix('torch.')}, not floating-point numbers"
    return ""


def _check_copies(family: Family, tensors: Mapping[str, Tensor], unread: set[str]) -> list[str]:
    problems = []
    for copy, first in family.copies.items():
        for name in sorted(filter(_pattern(copy).fullmatch, unread)):
            original = tensors.get(first)
            if original is not None and not torch.equal(tensors[name], original):
                problems.append(f"{name} differs from {first}, with which it is tied in lmlab")
    return problems


def _report(problems: Mapping[str, Sequence[str]], *, where: str) -> None:
    lines = [f"{what} {', '.join(names)}" for what, names in problems.items() if names and what != "wrong"]
    lines += problems["wrong"]
    if lines:
        raise ValueError(f"the weights in {where} do not fit its config.json: {'; '.join(lines)}")
