"""The run store: the runs in one folder by name, and their models, loaded at the first request.

A name is the path of a run in the folder (`demo/lstm`). It is looked up among the names that were found, and is never
made into a path, so that no request reaches a file outside the folder. Torch is not imported before a model is opened.
"""

from __future__ import annotations

import math
import os
import platform
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.messages import suggest
from lmlab.models import LINEAGE
from lmlab.progress import check_cancelled
from lmlab.runs.run_files import LOCK
from lmlab.runs.upgrade import upgrade_task
from lmlab.serve.errors import NotANumberError, log_error
from lmlab.studio.run_files import UnreadableError, check_files, is_inside, is_number, read, read_strictly, read_tail

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel

DEEPEST = 5
"""Folders between the studio's and a run's."""
INSIDE = {"last", "last.new", "previous", "checkpoints", "tensorboard", "controls", "beside", "__pycache__"}
"""Folders inside a run that are not runs."""
WEIGHTS = "model.safetensors"
UNKNOWN = ("kind", "year", "paper", "summary", "task", "how", "window", "heads", "parameters", "valid")
"""Fields of the entry of a run that is unreadable, all null."""
MOST_OPEN = 12
"""Models that are kept in memory; the least recently used one goes first."""
ODD = (TypeError, AttributeError, LookupError, RuntimeError, ArithmeticError)
"""Errors, besides ValueError, that unexpected values in the files of a run lead to."""
LOOK_EVERY = 0.1
"""Seconds between two checks for cancellation while another view uses the same model."""
SCAN_EVERY = 0.9
"""Seconds for which a scan of the folder is shared by all tabs; a tab asks once a second."""


class _Opened:
    """A model in memory, and the file that it was read from."""

    def __init__(self, model: LanguageModel, stamp: tuple[int, int]) -> None:
        self.model, self.stamp, self.lock = model, stamp, threading.Lock()


class RunStore:
    """All runs under a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise ValueError(f"{folder} is not a folder; name one that holds runs, for instance: lmlab studio runs")
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._loading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._scanning, self._scanned, self._scanned_at = threading.Lock(), list[dict[str, Any]](), -math.inf
        self.let_go: Callable[[str, LanguageModel], None] = lambda name, model: None
        """Called with a run and its model when the model leaves the memory."""

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
        """The folder of the run of that name; a ValueError if there is none."""
        paths = self.paths()
        if name not in paths:
            shown = name if len(name) <= 80 else name[:79] + "…"
            raise ValueError(f"there is no run {shown!r} in {self.folder.name}{suggest(name[:200], paths)}")
        return paths[name]

    def find_checked(self, name: str) -> Path:
        """The same where all files that loading the run reads are regular files in the folder; else a ValueError."""
        path = self.find(name)
        try:
            check_files(path, self.folder)
        except UnreadableError as error:
            raise UnreadableError(f"{name}: {error}") from None
        return path

    def about(self) -> list[dict[str, Any]]:
        """The entry of each run in the list of runs."""
        return [self.describe(name, path) for name, path in self.paths().items()]

    def recent(self) -> list[dict[str, Any]]:
        """The same from a scan of the folder that is at most `SCAN_EVERY` old: all tabs that are open share it."""
        with self._scanning:
            if time.monotonic() - self._scanned_at > SCAN_EVERY:
                self._scanned, self._scanned_at = self.about(), time.monotonic()
            return self._scanned

    def describe(self, name: str, path: Path) -> dict[str, Any]:
        """The entry of a run in the list; for a damaged one, why it is unreadable."""
        try:
            return describe(name, path, weights=self.has_weights(path))
        except UnreadableError as error:
            return {
                "name": name,
                **dict.fromkeys(UNKNOWN),
                "does": [],
                "weights": False,
                "status": "unreadable",
                "why": str(error),
            }

    def has_weights(self, path: Path) -> bool:
        """Whether a run has weights, in a file inside the folder."""
        return is_inside(path / WEIGHTS, self.folder) and (path / WEIGHTS).is_file()

    @contextmanager
    def using(self, name: str) -> Iterator[LanguageModel]:
        """The model of a run, locked for this thread; loaded again if its file has changed."""
        opened = self._open(name)
        while not opened.lock.acquire(timeout=LOOK_EVERY):
            check_cancelled()
        try:
            check_cancelled()
            yield opened.model
        finally:
            opened.lock.release()

    def open(self, name: str) -> LanguageModel:
        """The model of a run, not locked: several requests may use it at the same time."""
        return self._open(name).model

    def held(self, name: str, path: Path) -> LanguageModel | None:
        """The model of a run if it is in memory and its file has not changed; `path` is that of `paths`."""
        opened = self._opened.get(name)
        return opened.model if opened is not None and opened.stamp == _stamp(path) else None

    def _open(self, name: str) -> _Opened:
        path = self.find_checked(name)
        if not (path / WEIGHTS).is_file():
            raise ValueError(f"{name} has no weights yet: it is being trained, or was stopped before it saved any")
        stamp = _stamp(path)
        with self._lock:
            loading = self._loading.setdefault(name, threading.Lock())
        with loading:  # requests for other runs do not wait
            held = self._opened.get(name)
            if held is None or held.stamp != stamp:
                held = _Opened(self._load(path), stamp)
            gone = self._keep(name, held)
        for other, left in gone:
            self.let_go(other, left.model)
        return held

    def _load(self, path: Path) -> LanguageModel:
        """Load the model of a run; errors name files by their path in the folder."""
        from lmlab.language_model import load
        from lmlab.runs.model_files import NotFiniteWeightsError

        try:
            return load(path)
        except NotFiniteWeightsError as error:
            raise NotANumberError(path.name, "weights") from error
        except ValueError as error:
            raise ValueError(str(error).replace(f"{self.folder}{os.sep}", "")) from None
        except ODD as error:
            log_error(error, f"loading {path.name}")
            raise UnreadableError(
                f"{path.name} cannot be loaded: its files are damaged ({type(error).__name__})"
            ) from None

    def _keep(self, name: str, opened: _Opened) -> list[tuple[str, _Opened]]:
        """Mark a model as the last used; returns those that leave the memory."""
        with self._lock:
            before = self._opened.get(name, opened)
            self._opened[name] = opened
            self._opened.move_to_end(name)
            gone = [(name, before)] if before is not opened else []
            while len(self._opened) > MOST_OPEN:
                gone.append(self._opened.popitem(last=False))
        return gone


def _stamp(path: Path) -> tuple[int, int]:
    """Time and size of the file of weights: they change when the run is trained further."""
    now = (path / WEIGHTS).stat()
    return now.st_mtime_ns, now.st_size


def _is_run(path: Path) -> bool:
    try:
        return isinstance(read_strictly(path / "config.json").get("kind"), str)
    except UnreadableError:
        return any((path / name).is_file() for name in ("recipe.json", "metrics.jsonl", WEIGHTS))


def describe(name: str, path: Path, *, weights: bool) -> dict[str, Any]:
    """The entry of a run: its system, abilities, status and scores, read without its weights.

    Damaged JSON is found here. Weights that are cut off or not finite are found only when the run is loaded.
    """
    for file in ("recipe.json", "frame.json"):
        read_strictly(path / file)
    config, tuned = read_strictly(path / "config.json"), upgrade_task(read_strictly(path / "task.json"))
    kind, settings = config.get("kind"), config.get("model")
    if not all(isinstance(value, str) for value in (kind, tuned.get("kind", ""), tuned.get("method") or "")):
        raise UnreadableError("config.json or task.json is damaged: the kind of model or of task is not a name")
    system, task = LINEAGE.get(str(kind)), tuned.get("kind")
    sizes = settings if isinstance(settings, dict) else {}
    parameters = _last_line(path).get("parameters")
    total = parameters.get("total") if isinstance(parameters, dict) else None
    return {
        "name": name,
        "kind": kind,
        "year": system.year if system else None,
        "paper": system.paper if system else None,
        "summary": system.summary if system else None,
        "does": list(system.does) if system and task is None else ["vectors"],
        "pictures": isinstance(sizes.get("image"), list) and "patch" in sizes,
        "task": task,
        "how": tuned.get("method"),
        **{size: value if isinstance(value := sizes.get(size), int) else None for size in ("window", "heads")},
        "status": status(path),
        "weights": weights,
        "parameters": total if is_number(total) else None,
        "valid": _best(path),
    }


def status(path: Path) -> str:
    """`training`, `ready` (it has weights) or `begun`."""
    holder = read(path / LOCK)
    if holder.get("host") == platform.node() and _alive(holder.get("pid")):
        return "training"
    return "ready" if (path / WEIGHTS).is_file() else "begun"


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
    lines = read_tail(path / "metrics.jsonl")
    return lines[-1] if lines else {}


def _best(path: Path) -> float | None:
    values: list[Any] = [line.get("valid_bits_per_byte") for line in read_tail(path / "metrics.jsonl")]
    return min((float(value) for value in values if is_number(value)), default=None)
