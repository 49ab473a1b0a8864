"""Saving fails at every operation on files, one after the other: what was saved before still loads.

Each operation of a training run that opens, writes, syncs, renames, makes or removes a file is made to fail (an I/O
error), and in a second pass to be the last thing that the process does. Then the run is resumed, and ends with the same
bits.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.reliability.families import small_recipe, write_texts
from benchmarks.reliability.figures import Figure, Scale, shorten
from benchmarks.reliability.kills import result_of, train
from benchmarks.reliability.processes import Child
from benchmarks.reliability.processes import run as run_child

STEPS = 2
OPERATIONS = ("replace", "rename", "fsync", "mkdir", "unlink", "rmdir", "open", "ftruncate")
"""Functions of `os` that change files."""


class Operations:
    """Counts the operations on files in a folder, and acts at the one of a number."""

    def __init__(self, folder: Path, number: int, act: Callable[[], None]) -> None:
        self.folder, self.number, self.act, self.count = str(folder), number, act, 0

    def note(self) -> None:
        self.count += 1
        if self.count == self.number:
            self.act()

    def install(self) -> None:
        """Wrap the functions through which Python and safetensors write."""
        for name in OPERATIONS:
            setattr(os, name, self._wrap(getattr(os, name)))
        io.open = self._wrap_open(io.open)  # type: ignore[assignment]
        import builtins

        builtins.open = io.open  # type: ignore[assignment]
        from lmlab.runs import storage

        storage.save_file = self._save_file

    def _is_ours(self, path: Any) -> bool:
        return isinstance(path, int) or os.fspath(path).startswith(self.folder)  # type: ignore[no-any-return]

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Any, *rest: Any, **named: Any) -> Any:
            if self._is_ours(path):
                self.note()
            return function(path, *rest, **named)

        return wrapped

    def _wrap_open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
            writes = isinstance(path, (str, os.PathLike)) and self._is_ours(path) and set(mode) & set("wax+")
            if writes:
                self.note()
            file = function(path, mode, *rest, **named)
            return Watched(file, self) if writes else file

        return opened

    def _save_file(self, tensors: Any, path: Path, metadata: Any = None) -> None:
        """What safetensors does, in two writes."""
        from safetensors.torch import save

        content = save(tensors, metadata)
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
            file.write(content[len(content) // 2 :])


class Watched:
    """A file whose writes are counted; the write that fails has written half."""

    def __init__(self, file: Any, operations: Operations) -> None:
        self._file, self._operations = file, operations

    def write(self, content: Any) -> Any:
        operations = self._operations
        if operations.count + 1 == operations.number:
            self._file.write(content[: len(content) // 2])
            self._file.flush()
        operations.note()
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()


def _fail() -> None:
    raise OSError(errno.EIO, "Input/output error (injected)")


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def faults(scale: Scale) -> Iterator[Figure]:
    """Every operation of a run of two steps; in the tests every twentieth."""
    folder = scale.fresh("faults")
    os.environ.setdefault("LMLAB_CACHE", str(folder / "cache"))
    texts = write_texts(folder)
    for kind in ("gpt2", "ngram")[: scale.count(1, 2)]:
        recipe = small_recipe(kind, texts, steps=STEPS)
        train(recipe, folder / kind)
        expected, total = result_of(folder / kind), _count(recipe, folder)
        for name, act in (("fails", _fail), ("is the last", _crash)):
            wrong, tried = [], 0
            for number in range(1, total + 1, scale.count(max(1, total // 8), 1)):
                tried += 1
                if found := _try(recipe, folder / "run", number, act, expected):
                    wrong.append(f"operation {number}: {found}")
            yield Figure(
                f"faults: {kind}, operation k {name}",
                tried,
                f"{tried} of {total} operations; the run loads or is not there, and resuming ends with the same bits",
                shorten(wrong),
            )


def _count(recipe: Any, folder: Path) -> int:
    """The number of operations of a whole run."""
    path, log = folder / "counted", folder / "count"

    def work() -> None:
        operations = Operations(path, 0, lambda: None)
        operations.install()
        train(recipe, path)
        os.write(1, f"operations {operations.count}\n".encode())

    child = run_child(work, log=log)
    assert child.status == 0, child.said()
    return int(child.said().split("operations ")[1].split()[0])


def _try(recipe: Any, path: Path, number: int, act: Callable[[], None], expected: dict[str, Any]) -> str | None:
    """What is wrong after a fault at an operation; None if nothing is."""
    shutil.rmtree(path, ignore_errors=True)

    def work() -> None:
        Operations(path, number, act).install()
        train(recipe, path)

    child = run_child(work, log=path.with_name("fault.log"))
    if child.status not in (1, 2, -signal.SIGKILL, 0):
        return f"ended with status {child.status}"
    loadable = (path / "model.safetensors").is_file()
    if loadable and (bad := _load(path)):
        return bad
    child = run_child(lambda: train(recipe, path), log=path.with_name("resumed.log"))
    if child.status != 0:
        return f"cannot be resumed: {child.said()[-300:]}"
    found = result_of(path)
    different = [name for name in expected if found.get(name) != expected[name]]
    left = [each.name for each in path.rglob("*") if each.name.endswith((".new", ".staged"))]
    return f"differs: {different}, left: {left}" if different or left else None


def _load(path: Path) -> str | None:
    import lmlab

    try:
        lmlab.load(path)
    except ValueError as error:
        return f"does not load: {error}"
    return None


def full_disk(scale: Scale) -> Iterator[Figure]:
    """No file may grow beyond a limit (RLIMIT_FSIZE), at sizes up to that of the largest file."""
    folder = scale.fresh("full")
    os.environ.setdefault("LMLAB_CACHE", str(folder / "cache"))
    texts = write_texts(folder)
    recipe = small_recipe("gpt2", texts, steps=4)
    train(recipe, folder / "whole")
    expected = result_of(folder / "whole")
    half = folder / "half"
    Child(lambda: _train_some(recipe, half), log=folder / "half.log").wait()
    largest = max(path.stat().st_size for path in (folder / "whole").rglob("*") if path.is_file())
    number, wrong = scale.count(5, 64), []
    sizes = [max(1024, largest * index // number) for index in range(number)]
    for size in sizes:
        path = folder / "run"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(half, path)
        child = run_child(lambda path=path, size=size: _limited(recipe, path, size), log=folder / "full.log")  # type: ignore[misc]
        if child.status != 2 or "ValueError" not in child.said():
            wrong.append(f"{size} bytes: status {child.status}: {child.said()[-300:]}")
        elif left := [each.name for each in path.rglob("*") if each.name.endswith((".new", ".staged"))]:
            wrong.append(f"{size} bytes: left {left}")
        elif (bad := _load(path)) or run_child(lambda path=path: train(recipe, path), log=folder / "more.log").status:  # type: ignore[misc]
            wrong.append(f"{size} bytes: {bad or 'cannot be resumed'}")
        elif result_of(path) != expected:
            wrong.append(f"{size} bytes: the resumed run differs")
    yield Figure(
        "disk full",
        len(sizes),
        f"{len(sizes)} sizes up to {sizes[-1]:,} bytes: an error in words, nothing temporary left, the last "
        "checkpoint resumes with the same bits",
        shorten(wrong),
    )


def _train_some(recipe: Any, path: Path) -> None:
    from lmlab.runs import run

    calls = iter(range(100))
    run.start(recipe, path, interrupted=lambda: next(calls) >= 2)


def _limited(recipe: Any, path: Path, size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    train(recipe, path)
