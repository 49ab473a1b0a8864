"""Files of runs that are cut short, or in which one bit is flipped: each damage is noticed by what reads the file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.reliability.families import small_recipe, write_texts
from benchmarks.reliability.figures import Figure, Scale, shorten
from benchmarks.reliability.kills import train

import lmlab
from lmlab.runs.storage import read_sealed, verify, verify_metrics

KINDS = ("gpt2", "clip", "ngram")
"""Runs with a tokenizer, with a processor of pictures, and of counts."""
NOT_READ = ("README.md", ".lock")
"""The model card is for people, who may change it; nothing reads it."""


def damage(scale: Scale) -> Iterator[Figure]:
    """1,000 truncations and 10,000 flipped bits, spread over every file of three runs."""
    folder = scale.fresh("damage")
    texts, files = write_texts(folder), []
    for kind in KINDS[: scale.count(1, len(KINDS))]:
        train(small_recipe(kind, texts, steps=4), folder / kind)
        files += sorted(path for path in (folder / kind).rglob("*") if path.is_file() and path.name not in NOT_READ)
    cuts, flips = scale.count(60, 1000), scale.count(200, 10_000)
    for name, number, change in (("truncations", cuts, _cut), ("flipped bits", flips, _flip)):
        random, noticed, harmless, missed = scale.random(name), 0, 0, []
        for index in range(number):
            path = files[index % len(files)]
            content = path.read_bytes()
            path.write_bytes(change(content, random))
            found = _notice(path, folder)
            if found is None and _means_the_same(path, content):
                harmless += 1
            elif found is None:
                missed.append(f"{path.relative_to(folder)}: case {index}")
            else:
                noticed += 1
            path.write_bytes(content)
        result = f"{noticed:,} of {number:,} in {len(files)} files noticed"
        result += f", {harmless} change nothing that is read" if harmless else ""
        yield Figure(f"damage: {name}", number, result, shorten(missed))


def _cut(content: bytes, random: Any) -> bytes:
    return content[: random.randrange(len(content))]


def _flip(content: bytes, random: Any) -> bytes:
    made = bytearray(content)
    made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    return bytes(made)


def _notice(path: Path, folder: Path) -> str | None:
    """What is said about a damaged file by what reads it; None if nothing is."""
    run = folder / path.relative_to(folder).parts[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _reader(path, run)()
        except ValueError as error:
            return str(error)
        return next((str(each.message) for each in caught if path.name in str(each.message)), None)


def _reader(path: Path, run: Path) -> Callable[[], Any]:
    """What `lmlab generate`, `lmlab train --resume`, `lmlab average` and `lmlab report` read a file with."""
    if path.parent.name in ("last", "previous"):
        return lambda: verify(path.parent)
    if path.parent.name == "checkpoints":
        return lambda: read_sealed(path)
    if path.name in ("metrics.jsonl", "progress.json"):
        return lambda: (verify_metrics(run), verify(run))
    return lambda: lmlab.load(run)


def _means_the_same(path: Path, content: bytes) -> bool:
    """Whether a damaged file still has the value that it had: white space at its end, or an unused key."""
    if path.suffix == ".json":
        return bool(json.loads(path.read_bytes()) == json.loads(content))
    if path.suffix == ".safetensors":
        damaged, whole = read_sealed(path), path.with_suffix(".whole")
        whole.write_bytes(content)
        before = read_sealed(whole)
        whole.unlink()
        return damaged.keys() == before.keys() and all(torch.equal(damaged[name], before[name]) for name in before)
    return False
