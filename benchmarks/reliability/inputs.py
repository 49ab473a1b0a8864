"""Unusual input: runs of earlier versions, weights that become NaN, odd texts, and models that no memory holds."""

from __future__ import annotations

import functools
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.reliability.families import FAMILIES, small_recipe, write_texts
from benchmarks.reliability.figures import Figure, Scale, shorten
from benchmarks.reliability.kills import result_of, train
from benchmarks.reliability.processes import resident
from benchmarks.reliability.processes import run as run_child

RELEASES = Path(__file__).parents[2] / "tests" / "golden" / "releases"
NOBODY = 65534
"""The number of a user who may read nothing."""
ENORMOUS = {"width": 10**7, "hidden": 10**8, "cells": 10**8, "inner": 10**11, "embedding_width": 10**9}
"""Sizes of models, each of which takes more than the memory of a machine."""

REFUSALS = ("of memory (", "too large for any machine", "less than or equal to")
"""What an error says: the bytes that are needed, that no tensor has this size, or the largest value."""


def releases(scale: Scale) -> Iterator[Figure]:
    """Runs that earlier versions have made are verified, loaded, and score or translate a text."""
    folder, wrong, tried = scale.fresh("releases"), [], 0
    for run in sorted(path.parent for path in RELEASES.glob("*/*/recipe.json")):
        tried += 1
        path = folder / f"{run.parent.name}-{run.name}"
        shutil.copytree(run, path)
        child = run_child(functools.partial(_use, path), log=folder / "log")
        if child.status != 0:
            wrong.append(f"{path.name}: {child.said()[-300:]}")
    result = f"{tried} runs of 0.2 to 0.5: verified, loaded, and used to score or translate"
    yield Figure("runs of earlier versions", tried, result, shorten(wrong))


def _use(path: Path) -> None:
    import lmlab
    from lmlab.runs.storage import verify

    warnings.simplefilter("ignore")
    verify(path)
    model: Any = lmlab.load(path)
    if path.name.endswith("transformer"):
        assert isinstance(model.translate("say 1 and 2"), str)
    else:
        assert 0 < model.score("line 3 of 4 says that 5 is not 6.").nats < float("inf")


def nan(scale: Scale) -> Iterator[Figure]:
    """In every system, a weight becomes NaN before the seventh of 12 steps.

    Training stops with an error that names the step; no file has a NaN; the run loads; resumed, it ends with the same
    bits as a run in which nothing went wrong.
    """
    folder, wrong, tried = scale.fresh("nan"), [], 0
    texts = write_texts(folder)
    for kind in ("gpt2",) if scale.quick else FAMILIES:
        if kind == "ngram":  # counts cannot become NaN
            continue
        tried += 1
        if found := _poison(kind, texts, folder):
            wrong.append(f"{kind}: {found}")
        shutil.rmtree(folder / "run", ignore_errors=True)
        shutil.rmtree(folder / "whole", ignore_errors=True)
    result = f"{tried} systems: stopped with the step, nothing saved is NaN, resumed with the same bits"
    yield Figure("NaN in a weight", tried, result, shorten(wrong))


def _poison(kind: str, texts: Path, folder: Path) -> str | None:
    recipe, path, log = small_recipe(kind, texts), folder / "run", folder / "log"
    whole = run_child(lambda: train(recipe, folder / "whole"), log=log)
    if whole.status != 0:
        return f"could not be trained: {whole.said()[-300:]}"
    poisoned = run_child(functools.partial(_train_poisoned, recipe, path), log=log)
    if poisoned.status != 2 or "at step" not in poisoned.said():
        return f"ended with status {poisoned.status}: {poisoned.said()[-300:]}"
    from lmlab.runs.storage import read_tensors

    for file in path.rglob("*.safetensors"):
        if bad := [
            name for name, each in read_tensors(file).items() if each.is_floating_point() and each.isnan().any()
        ]:
            return f"{file.name} was saved with NaN in {bad[0]}"
    resumed = run_child(lambda: train(recipe, path), log=log)
    if resumed.status != 0:
        return f"cannot be resumed: {resumed.said()[-300:]}"
    found, expected = result_of(path), result_of(folder / "whole")
    different = [name for name in expected if name != "metrics" and found.get(name) != expected[name]]
    return f"{different} differ after resuming" if different else None


def _train_poisoned(recipe: Any, path: Path) -> None:
    from lmlab.training.step import Step

    take = Step.__call__

    def poisoned(self: Any, number: int, *rest: Any, **named: Any) -> Any:
        if number == 6:
            weights = max((each for each in self.learner.parameters() if each.requires_grad), key=torch.Tensor.numel)
            with torch.no_grad():
                weights.fill_(float("nan"))
        return take(self, number, *rest, **named)

    Step.__call__ = poisoned  # type: ignore[method-assign]
    train(recipe, path)


def corpora(scale: Scale) -> Iterator[Figure]:
    """Odd texts are trained on, or refused with an error of ours in one line, within 1 GB of memory.

    Each is tried with three systems and tokenizers. The long version has a line of 1 GB too.
    """
    folder, wrong, counts = scale.fresh("corpora"), [], Counter[str]()
    made = _make_corpora(folder, line=scale.count(2_000_000, 1_000_000_000), words=scale.count(20_000, 1_000_000))
    systems = (("ngram", "words:8000"), ("lstm", "bpe:300"), ("gpt2", "characters"))
    for name, path in made.items():
        for kind, tokenizer in systems[:1] if scale.quick or name == "one line" else systems:
            work = functools.partial(
                _train_on, path, kind, tokenizer, folder / "run", unprivileged=name == "unreadable"
            )
            child = run_child(work, log=folder / "log")
            counts["trained" if child.status == 0 else "refused"] += 1
            lines = child.said().strip().splitlines()
            if child.status not in (0, 2) or (child.status == 2 and (len(lines) != 1 or not lines[0])):
                wrong.append(f"{name}, {kind}: status {child.status}: {child.said()[-300:]}")
            elif child.peak - resident() > 1 << 30:
                wrong.append(f"{name}, {kind}: {child.peak >> 20} MB")
            shutil.rmtree(folder / "run", ignore_errors=True)
    shutil.rmtree(folder)
    result = f"{len(made)} texts: {counts['trained']} times trained, {counts['refused']} times an error in one line"
    yield Figure("odd texts", sum(counts.values()), result, shorten(wrong))


def _train_on(path: Path, kind: str, tokenizer: str, run: Path, *, unprivileged: bool) -> None:
    from lmlab.runs.recipe import make_recipe

    warnings.simplefilter("ignore")
    if unprivileged:
        os.environ["LMLAB_CACHE"] = "/tmp"
        os.setuid(NOBODY)
    train_settings = {"budget": "2steps", "batch": 2, "window": 16, "device": "cpu", "evaluation_tokens": 64}
    model = {"kind": kind, **({"window": 16} if kind == "gpt2" else {}), **({"width": 8} if kind != "ngram" else {})}
    values = {"data": {"text": str(path)}, "tokenizer": {"spec": tokenizer}, "model": model, "train": train_settings}
    try:
        train(make_recipe(values), run)
    except OSError as error:
        from lmlab.cli.errors import in_words

        raise ValueError(in_words(error)) from None


def _make_corpora(folder: Path, *, line: int, words: int) -> dict[str, Path]:
    """Odd texts by name; some are no texts."""
    contents: dict[str, bytes] = {
        "empty": b"",
        "one byte": b"a",
        "a space": b" ",
        "line ends": b"\n" * 1000,
        "no line end": b"one two three four " * 50,
        "CRLF": b"one two three\r\n" * 100,
        "CR": b"one two three\r" * 100,
        "byte order mark": b"\xef\xbb\xbf" + b"one two three\n" * 100,
        "UTF-16": ("one two three\n" * 100).encode("utf-16"),
        "UTF-32": ("one two three\n" * 100).encode("utf-32"),
        "NUL": b"one\x00two three\n" * 100,
        "only NUL": bytes(5000),
        "invalid UTF-8": b"one \xff\xfe two \xc3\x28 three \xe2\x82\n" * 100,
        "lone surrogates": b"one \xed\xa0\x80 two \xed\xbf\xbf three\n" * 100,
        "binary": np.random.default_rng(0).bytes(50_000),
        "escapes": b"\x1b[31mred\x1b[0m \x07 \x08 text\n" * 100,
        "no characters": "\u200b\u200d\ufeff\u2060\n".encode() * 100,
        "combining": ("a" + "\u0301" * 500 + "\n").encode() * 20,
        "right to left": "\u202eabc \u05d0\u05d1\n".encode() * 100,
        "all the same": b"a" * 100_000,
        "special tokens": b"<|endoftext|> [MASK] <s> </s> [CLS] <unk> <pad>\n" * 100,
        "one word": b"word " * 1000,
        "a wrong gzip": b"\x1f\x8b\x08\x00 this is not gzip\n" * 10,
        "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.",
    }
    made = {}
    for name, content in contents.items():
        made[name] = folder / f"{name.replace(' ', '-')}.txt"
        made[name].write_bytes(content)
    made["distinct words"] = folder / "distinct.txt"
    made["distinct words"].write_text("\n".join(f"word{number}" for number in range(words)) + "\n")
    made["one line"] = folder / "line.txt"
    with open(made["one line"], "wb") as file:
        for _ in range(line // 1_000_000):
            file.write(b"some more words " * 62_500)
    for name in ("folder", "no folder", "loop", "dangling", "device", "unreadable", "long"):
        made[name] = folder / name
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "dangling").symlink_to(folder / "nothing")
    made["device"] = Path("/dev/zero")
    made["long"] = folder / ("x" * 5000)
    (folder / "unreadable").write_text("one two three\n" * 100)
    (folder / "unreadable").chmod(0)
    return made


def widths(scale: Scale) -> Iterator[Figure]:
    """Settings for which no machine has the memory are refused before training, with the bytes that they would take."""
    folder, wrong, tried = scale.fresh("widths"), [], 0
    texts = write_texts(folder)
    for kind, name, value in _enormous(("gpt2", "lstm") if scale.quick else FAMILIES):
        tried += 1
        work = functools.partial(_train_wide, kind, texts, name, value, folder / "run")
        child = run_child(work, log=folder / "log")
        if child.status != 2 or not any(words in child.said() for words in REFUSALS):
            wrong.append(f"{kind}, {name} = {value}: status {child.status}: {child.said()[-300:]}")
        elif (folder / "run").exists() or child.peak - resident() > 400 << 20:
            wrong.append(f"{kind}, {name} = {value}: {child.peak >> 20} MB, or the run was begun")
        shutil.rmtree(folder / "run", ignore_errors=True)
    result = f"{tried} settings: refused before training, in words, within 400 MB"
    yield Figure("enormous widths", tried, result, shorten(wrong))


def _enormous(kinds: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Systems with a setting each that is enormous."""
    from lmlab.models import load_class

    for kind in kinds:
        for name, value in ENORMOUS.items():
            if kind != "ngram" and name in load_class(kind).Config.model_fields:
                yield kind, name, value


def _train_wide(kind: str, texts: Path, name: str, value: int, run: Path) -> None:
    recipe = small_recipe(kind, texts)
    train(recipe.model_copy(update={"model": {**recipe.model, name: value}}), run)
