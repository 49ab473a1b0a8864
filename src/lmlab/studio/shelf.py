"""The runs under one folder, by name, and their models, loaded when they are first asked for.

A name is where a run lies under the folder (`demo/lstm`). It is looked up among the names that were found there, and is
never made into a path: so no request reaches a file outside the folder. Nothing here imports torch before a model is
opened.
"""

from __future__ import annotations

import json
import os
import platform
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lmlab.models import LINEAGE
from lmlab.names import suggest
from lmlab.own_files import LOCK
from lmlab.serve.errors import APIError

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel

DEEPEST = 5
"""Folders between the studio's and a run's."""
INSIDE = {"last", "last.new", "previous", "checkpoints", "tensorboard", "beside", "__pycache__"}
"""What lies in a run and is none of its own."""
LARGEST = 2**24
"""Bytes of a JSON file; what is larger is no table."""
MOST_OPEN = 12
"""Models that are kept in memory; the one that was not used for longest goes first."""

MOST_VIEWS = 24
"""Questions about models that are answered, or wait, at once: of the server's 40 threads, others must stay free."""


class _Opened:
    """A model in memory, and the file that it was read from."""

    def __init__(self, model: LanguageModel, stamp: tuple[int, int]) -> None:
        self.model, self.stamp, self.lock = model, stamp, threading.Lock()


class Shelf:
    """All runs under a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise ValueError(f"{folder} is not a folder; name one that holds runs, for instance: lmlab studio runs")
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._loading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._views = threading.BoundedSemaphore(MOST_VIEWS)
        self.let_go: Callable[[str, LanguageModel], None] = lambda name, model: None
        """Is told of a run and its model that leaves the memory, for others or for newer weights."""

    def paths(self) -> dict[str, Path]:
        """Every run by its name, as it is on the disk now."""
        found: dict[str, Path] = {}
        if _is_run(self.folder):
            found[self.folder.name] = self.folder
        self._look(self.folder, found, 0)
        return dict(sorted(found.items()))

    def _look(self, folder: Path, found: dict[str, Path], depth: int) -> None:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if entry.name.startswith(".") or entry.name in INSIDE or not entry.is_dir(follow_symlinks=False):
                continue
            path = Path(entry.path)
            if _is_run(path):
                found[path.relative_to(self.folder).as_posix()] = path
            if depth < DEEPEST:
                self._look(path, found, depth + 1)

    def find(self, name: str) -> Path:
        """The folder of the run of that name; a ValueError where there is none."""
        paths = self.paths()
        if name not in paths:
            shown = name if len(name) <= 80 else name[:79] + "…"
            raise ValueError(f"there is no run {shown!r} in {self.folder.name}{suggest(name[:200], paths)}")
        return paths[name]

    def about(self) -> list[dict[str, Any]]:
        """What a list of runs shows of each."""
        return [describe(name, path) for name, path in self.paths().items()]

    @contextmanager
    def using(self, name: str) -> Iterator[LanguageModel]:
        """The model of a run, for this thread alone; it is read anew where the run was trained further."""
        if not self._views.acquire(blocking=False):
            raise APIError(
                f"{MOST_VIEWS} questions are being answered already; ask again in a moment",
                status=503,
                code="overloaded",
                headers={"Retry-After": "1"},
            )
        try:
            opened = self._open(name)
            with opened.lock:
                yield opened.model
        finally:
            self._views.release()

    def open(self, name: str, path: Path | None = None) -> LanguageModel:
        """The model of a run, for passes that go on beside those of others; `path` is that of `paths`, if known."""
        return self._open(name, path).model

    def _open(self, name: str, path: Path | None = None) -> _Opened:
        path = path or self.find(name)
        weights = path / "model.safetensors"
        if not weights.is_file():
            raise ValueError(f"{name} has no weights yet: it is being trained, or was stopped before it saved any")
        now = weights.stat()
        stamp = now.st_mtime_ns, now.st_size
        with self._lock:
            loading = self._loading.setdefault(name, threading.Lock())
        with loading:  # others may go on with other runs meanwhile
            held = self._opened.get(name)
            if held is None or held.stamp != stamp:
                from lmlab.language_model import load

                held = _Opened(load(path), stamp)
            gone = self._keep(name, held)
        for other, left in gone:
            self.let_go(other, left.model)
        return held

    def _keep(self, name: str, opened: _Opened) -> list[tuple[str, _Opened]]:
        """Keep a model as the one used last; which leave for it."""
        with self._lock:
            before = self._opened.get(name, opened)
            self._opened[name] = opened
            self._opened.move_to_end(name)
            gone = [(name, before)] if before is not opened else []
            while len(self._opened) > MOST_OPEN:
                gone.append(self._opened.popitem(last=False))
        return gone


def _is_run(path: Path) -> bool:
    return isinstance(read(path / "config.json").get("kind"), str)


def read(path: Path) -> dict[str, Any]:
    """A JSON file that is a table; an empty one where it is none."""
    try:
        with open_inside(path) as file:
            found = json.loads(file.read(LARGEST))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def open_inside(path: Path) -> BinaryIO:
    """A file of a run; an OSError where it is a link, which may lead out of the folder, or a pipe, which may hang."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(number, "rb")


def describe(name: str, path: Path) -> dict[str, Any]:
    """A run for a list: what it is, what can be done with it, how far it is; without reading its weights."""
    kind = str(read(path / "config.json").get("kind"))
    system = LINEAGE.get(kind)
    told = read(path / "task.json")
    task = told.get("kind")
    last = _last_line(path)
    return {
        "name": name,
        "kind": kind,
        "year": system.year if system else None,
        "paper": system.paper if system else None,
        "summary": system.summary if system else None,
        "does": list(system.does) if system and task is None else ["vectors"],
        "task": task,
        "how": told.get("how"),
        "status": status(path),
        "weights": (path / "model.safetensors").is_file(),
        "parameters": (last.get("parameters") or {}).get("total"),
        "valid": _best(path),
    }


def status(path: Path) -> str:
    """`training`, `ready` (it has weights) or `begun`."""
    holder = read(path / LOCK)
    if holder.get("host") == platform.node() and _alive(holder.get("pid")):
        return "training"
    return "ready" if (path / "model.safetensors").is_file() else "begun"


def _alive(pid: Any) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _last_line(path: Path) -> dict[str, Any]:
    """The last whole line of the metrics, from the end of the file."""
    lines = _tail(path / "metrics.jsonl")
    return lines[-1] if lines else {}


def _best(path: Path) -> float | None:
    values = [line["valid_bits_per_byte"] for line in _tail(path / "metrics.jsonl") if "valid_bits_per_byte" in line]
    return min((value for value in values if isinstance(value, (int, float))), default=None)


def _tail(path: Path, size: int = 65536) -> list[dict[str, Any]]:
    try:
        with open_inside(path) as file:
            file.seek(0, os.SEEK_END)
            start = max(0, file.tell() - size)
            file.seek(start)
            raw = file.read().split(b"\n")
    except OSError:
        return []
    return list(parse_lines(raw[1 if start else 0 : -1]))


def parse_lines(raw: list[bytes]) -> Iterator[dict[str, Any]]:
    """Lines of JSON that are tables; others are passed over."""
    for line in raw:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
