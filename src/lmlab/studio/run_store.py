"""The run store: the runs in one folder by name, and their models, loaded at the first request.

A name is the path of a run in the folder (`demo/lstm`). It is looked up among the names that were found, and is never
made into a path, so that no request reaches a file outside the folder. Torch is not imported before a model is opened.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.messages import suggest
from lmlab.models import lineage_number
from lmlab.pages.figures.palette import number_colours
from lmlab.progress import check_cancelled
from lmlab.serve.errors import NotANumberError, log_error
from lmlab.studio.entries import BOARD, CONDITIONS, METRICS, READ, WEIGHTS, describe, status, unreadable
from lmlab.studio.run_files import UnreadableError, check_files, is_inside, read_strictly

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel

DEEPEST = 5
"""Folders between the studio's and a run's."""
INSIDE = {"last", "last.new", "previous", "checkpoints", "tensorboard", "controls", "beside", "__pycache__"}
"""Folders inside a run that are not runs."""
RUN = ("config.json", "recipe.json", METRICS, WEIGHTS)
"""Files by which a folder is known to be a run."""
MOST_OPEN = 12
"""Models that are kept in memory; the least recently used one goes first."""
ODD = (TypeError, AttributeError, LookupError, RuntimeError, ArithmeticError)
"""Errors, besides ValueError, that unexpected values in the files of a run lead to."""
LOOK_EVERY = 0.1
"""Seconds between two checks for cancellation while another view uses the same model."""
SCAN_EVERY = 0.9
"""Seconds for which a scan of the folder is shared by all tabs; a tab asks once a second."""
SETTLED = 2.0
"""Seconds after which a file that has not changed is not read again: within them, a clock may not tell two changes."""
Stamps = tuple[tuple[int, int, int] | None, ...]


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
        self._listed: dict[Path, tuple[Stamps, list[Path]]] = {}
        self._recognized: dict[Path, tuple[Stamps, bool]] = {}
        self._described: dict[str, tuple[Stamps, dict[str, Any]]] = {}
        self.let_go: Callable[[str, LanguageModel], None] = lambda name, model: None
        """Called with a run and its model when the model leaves the memory."""

    def paths(self) -> dict[str, Path]:
        """Every run by its name, as it is on the disk now."""
        found: dict[str, Path] = {}
        if self._is_run(self.folder):
            found[self.folder.name] = self.folder
        self._look(self.folder, found, 0)
        return dict(sorted(found.items()))

    def _look(self, folder: Path, found: dict[str, Path], depth: int) -> None:
        for path in self._folders_in(folder):
            if self._is_run(path):
                found[path.relative_to(self.folder).as_posix()] = path
            if depth < DEEPEST:
                self._look(path, found, depth + 1)

    def _is_run(self, path: Path) -> bool:
        stamps = _stamps(path / name for name in RUN)
        known = self._recognized.get(path)
        if known is None or known[0] != stamps:
            known = stamps, _is_run(path)
            if _settled(stamps):
                self._recognized[path] = known
        return known[1]

    def _folders_in(self, folder: Path) -> list[Path]:
        """The folders in a folder that may be or contain runs; listed again only if the folder has changed."""
        stamps = _stamps((folder,))
        known = self._listed.get(folder)
        if known is not None and known[0] == stamps:
            return known[1]
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return []
        inside = [
            Path(entry.path)
            for entry in entries
            if not entry.name.startswith(".") and entry.name not in INSIDE and entry.is_dir(follow_symlinks=False)
        ]
        if _settled(stamps):
            self._listed[folder] = stamps, inside
        return inside

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

    def summaries(self) -> list[dict[str, Any]]:
        """The entry of each run in the list of runs, with the number of its colour."""
        paths = self.paths()
        found = [self.describe(name, path) for name, path in paths.items()]
        colours = number_colours(self._wanted_colours(paths, {each["name"]: str(each["kind"]) for each in found}))
        return [{**each, "colour": colours[each["name"]]} for each in found]

    def _wanted_colours(self, paths: Mapping[str, Path], kinds: Mapping[str, str]) -> dict[str, int]:
        """The colour that each run would have alone. The oldest come first, so that new runs change no colour; the
        runs of a comparison stay together, in the order of its report, where they have the same colours."""
        wanted = {name: lineage_number(kind) for name, kind in kinds.items()}
        groups: dict[str, list[str]] = {}
        for name, path in paths.items():
            compared = path != self.folder and any((path.parent / file).is_file() for file in (BOARD, CONDITIONS))
            groups.setdefault(str(path.parent) if compared else str(path), []).append(name)
        begun = {name: _begun(path) for name, path in paths.items()}
        order = sorted(groups.values(), key=lambda group: (min(begun[name] for name in group), group))
        return {name: wanted[name] for group in order for name in sorted(group, key=lambda each: (wanted[each], each))}

    def recent(self) -> list[dict[str, Any]]:
        """The same from a scan of the folder that is at most `SCAN_EVERY` old: all tabs that are open share it."""
        with self._scanning:
            if time.monotonic() - self._scanned_at > SCAN_EVERY:
                self._scanned, self._scanned_at = self.summaries(), time.monotonic()
            return self._scanned

    def describe(self, name: str, path: Path) -> dict[str, Any]:
        """The entry of a run in the list; for a damaged one, why it is unreadable. Files are read if they changed."""
        board = path.parent / BOARD if path != self.folder else None
        stamps = _stamps((*(path / file for file in READ), *([board] if board else [])))
        known = self._described.get(name)
        if known is not None and known[0] == stamps:
            entry = known[1]
        else:
            try:
                entry = describe(name, path, board=board)
            except UnreadableError as error:
                entry = unreadable(name, str(error))
            if _settled(stamps):
                self._described[name] = stamps, entry
        if "why" in entry:
            return entry
        return {**entry, "status": status(path), "weights": self.has_weights(path)}

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


def _stamps(paths: Iterable[Path]) -> Stamps:
    """Time, size and number of each file or folder; None for what is not there."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            now = path.lstat()
            found.append((now.st_mtime_ns, now.st_size, now.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _begun(path: Path) -> int:
    """When a run was begun: the time of the oldest of the files that are written first."""
    stamps = _stamps(path / name for name in ("config.json", "recipe.json", "frame.json", "tokenizer.json"))
    return min((each[0] for each in stamps if each), default=sys.maxsize)


def _settled(stamps: Stamps) -> bool:
    """Whether none of the files was changed just now."""
    return time.time() - max((each[0] for each in stamps if each), default=0) / 1e9 > SETTLED


def _is_run(path: Path) -> bool:
    try:
        return isinstance(read_strictly(path / "config.json").get("kind"), str)
    except UnreadableError:
        return any((path / name).is_file() for name in RUN[1:])
