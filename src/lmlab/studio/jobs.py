"""Training runs and comparisons that were started from the browser: each is the command that a user would type.

A work is a process of its own, which is stopped as by Ctrl-C: it finishes its step and saves, so that it can be
resumed. What is still running when the studio ends is stopped in this way. Where the studio itself was killed, its
works run on, and the next studio over the same folder finds them by what the folder `.studio` says of them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from lmlab.config import Config
from lmlab.models import LINEAGE, find
from lmlab.runs.run_files import BOARD, CONDITIONS, OWN, STUDY, SWEEP, TRIALS
from lmlab.studio.lecture import FILE as LECTURE
from lmlab.studio.processes import Process
from lmlab.studio.run_files import read
from lmlab.studio.run_store import INSIDE
from lmlab.studio.sets import FOLDER as SETS

BUILTIN = "builtin"
"""Python's documentation, which is always there."""
MOST_RUNNING = 2
TAIL = 6000
"""Bytes of what a work has said that are shown."""
PATIENCE = 20.0
"""Seconds in which a work that is stopped has to save, when the studio ends."""
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
RECORDS = ".studio"
"""The folder beside the runs that keeps the process and the output of each work."""
RESERVED = {
    name.casefold()
    for name in (*OWN, *INSIDE, *BOARD, TRIALS, STUDY, SWEEP, CONDITIONS, "scores", "plots", SETS, LECTURE)
}
"""Names that files and folders of runs and studies have, so that no run can have them."""
TRAINED = tuple(name for name, system in LINEAGE.items() if "target text" not in system.does)
"""What learns from plain text."""


class Wanted(Config):
    """What is to be trained: the options of `lmlab train`, or of `lmlab compare`."""

    what: Literal["train", "compare"] = "train"
    name: str = Field("new", pattern=r"^[A-Za-z0-9_][\w.-]{0,59}$", description="the folder, among those of other runs")
    models: list[str] = Field(["lstm"], min_length=1, max_length=20, description="one to train, or several to compare")
    text: int = Field(0, ge=0, le=1000, description="which of the texts that the studio was given; 0 is built in")
    budget: str = Field(
        "30s",
        pattern=r"^\d{1,9}(\.\d{1,3})?(s|min|h|steps|epochs|tokens|ktokens|Mtokens)$",
        description="what to spend",
    )
    size: Literal["tiny", "small", "base"] = "tiny"
    tokenizer: str = Field(
        "bpe:1024",
        pattern=r"^(characters|bytes|words(:\d{1,7})?|(bpe|wordpiece|unigram):\d{1,7})$",
        description="how text is cut",
    )
    seed: int = Field(0, ge=0, lt=2**31)

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name.casefold() in RESERVED:
            raise ValueError(f"{name!r} is the name of a file or folder in runs; choose another")
        return name

    @field_validator("models")
    @classmethod
    def _are_known(cls, models: list[str]) -> list[str]:
        for name in models:
            if find(name).name not in TRAINED:
                raise ValueError(f"{name} learns from pairs of texts: train it with lmlab train {name} --source …")
        return models


def command_of(wanted: Wanted, *, folder: Path, texts: Sequence[str]) -> list[str]:
    """The command line that a wish stands for."""
    if wanted.what == "train" and len(wanted.models) != 1:
        raise ValueError(f"{len(wanted.models)} models: train one, or compare several")
    if wanted.text >= len(texts):
        raise ValueError(f"text = {wanted.text}: there are {len(texts)}, from 0 on")
    shared = ["--tokenizer", wanted.tokenizer, "--budget", wanted.budget, "--size", wanted.size]
    shared += ["--seed", str(wanted.seed)] if wanted.seed else []
    output = ["-o", str(folder / wanted.name)]
    text = texts[wanted.text]
    if wanted.what == "train":
        return ["lmlab", "train", wanted.models[0], text, *output, *shared]
    return ["lmlab", "compare", text, "--models", ",".join(wanted.models), *output, *shared]


@dataclass
class Work:
    """One command that is running, or has ended."""

    number: int
    wanted: Wanted
    command: list[str]
    output: Path
    """The file that has what it prints; what says which process it is lies beside it."""
    process: Process | None
    child: subprocess.Popen[bytes] | None = None
    """None of a work that another studio has started."""
    own: bool = True
    """Whether it ends with this studio."""

    @property
    def running(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return self.process is not None and self.process.running

    def stop(self) -> None:
        """Let it finish its step and save; a second time ends it at once."""
        self._send(signal.SIGINT)

    def wait(self, *, within: float) -> None:
        """Wait until it has ended; it is killed where that takes longer than `within` seconds."""
        end = time.monotonic() + within
        while self.running and time.monotonic() < end:
            time.sleep(0.02)
        self._send(KILL)
        if self.child is not None:
            self.child.wait()

    def _send(self, number: signal.Signals) -> None:
        if self.child is not None and self.running:
            self.child.send_signal(number)
        elif self.child is None and self.process is not None:
            self.process.send(number)

    def tail(self) -> str:
        """The last that it has printed."""
        try:
            with open(self.output, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                return file.read(TAIL).decode("utf-8", "replace").replace("\r", "\n")
        except OSError:
            return ""

    def forget(self) -> None:
        """Remove its output, and what says which process it is."""
        for path in (self.output, self.output.with_suffix(".json")):
            path.unlink(missing_ok=True)


class Works:
    """All that was started since the studio is open, and what earlier studios have left running."""

    def __init__(self, folder: Path, texts: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.texts = [BUILTIN, *(str(path.resolve()) for path in texts)]
        for path in texts:
            if not path.exists():
                raise ValueError(f"{path} does not exist; name a text, or a folder of texts, that is there")
        self._works: list[Work] = []
        self._lock = threading.Lock()
        for record in sorted(self._records.glob("*.json")):
            self._find_again(record)

    @property
    def _records(self) -> Path:
        return self.folder / RECORDS

    def names(self) -> list[str]:
        """The texts as they are offered."""
        return [BUILTIN, *(Path(text).name for text in self.texts[1:])]

    def command(self, wanted: Wanted) -> str:
        """What to type to get the same, from the folder above that of the runs."""
        parts = command_of(wanted, folder=Path(self.folder.name), texts=self.names())
        return shlex.join(parts)

    def start(self, wanted: Wanted) -> Work:
        """Begin it, unless too much is running or its folder is taken."""
        with self._lock:
            if sum(work.running for work in self._works) >= MOST_RUNNING:
                raise ValueError(f"{MOST_RUNNING} works are running: wait until one is done, or stop it")
            if (self.folder / wanted.name).exists():
                raise ValueError(f"there is a {wanted.name} already in {self.folder.name}; choose another name")
            command = command_of(wanted, folder=self.folder, texts=self.texts)
            output, child = self._start(wanted.name, command)
            work = Work(len(self._works) + 1, wanted, command, output, Process.find(child.pid), child)
            _write_record(work)
            self._works.append(work)
            return work

    def _start(self, name: str, command: list[str]) -> tuple[Path, subprocess.Popen[bytes]]:
        """Where the process of a command writes, and the process."""
        self._records.mkdir(mode=0o700, exist_ok=True)
        if self._records.is_symlink():
            raise ValueError(f"{self.folder.name}/{RECORDS} is a link; remove it, so that output can be written there")
        environment = {key: value for key, value in os.environ.items() if key != "LMLAB_TOKEN"}
        handle, output = tempfile.mkstemp(prefix=f"{name}.", suffix=".log", dir=self._records)
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", *command],  # -P: what lies in this folder is never imported
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                env={**environment, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"},
                start_new_session=True,
            )
        finally:
            os.close(handle)  # the process has its own, so none is held for a work that has ended
        return Path(output), child

    def _find_again(self, record: Path) -> None:
        """Take in a work that another studio has started, if it is still running; else remove its traces."""
        if not hasattr(os, "getuid") or record.lstat().st_uid != os.getuid() or self._records.is_symlink():
            return
        told = read(record)
        try:
            wanted, process = Wanted(**told["wanted"]), Process(int(told["pid"]), str(told["started"]))
            studio, command = Process(*told["studio"]), [str(word) for word in told["command"]]
        except (KeyError, TypeError, ValueError):
            return
        work = Work(len(self._works) + 1, wanted, command, record.with_suffix(".log"), process, own=not studio.running)
        if work.running and self._is_meant(work, process):
            self._works.append(work)
        elif work.own and not work.running:  # the studio that started it may still show what it has printed
            work.forget()

    def _is_meant(self, work: Work, process: Process) -> bool:
        """Whether a process is `lmlab` at work in the folder that a record names, and nothing else of the user."""
        command, target = work.command, str(self.folder / work.wanted.name)
        ours = command[:1] == ["lmlab"] and target in command
        return ours and " ".join(process.command()).endswith(" ".join(["-m", *command]))

    def find(self, number: int) -> Work:
        """The work of that number."""
        if not 1 <= number <= len(self._works):
            raise ValueError(f"there is no work {number}; {len(self._works)} were started")
        return self._works[number - 1]

    def about(self) -> list[dict[str, Any]]:
        """All works for a list, the last one first."""
        return [self.describe(work) for work in reversed(self._works)]

    def describe(self, work: Work) -> dict[str, Any]:
        """A work as it is shown: paths are those under the folder."""
        return {
            "number": work.number,
            "name": work.wanted.name,
            "what": work.wanted.what,
            "command": self.shorten_paths(shlex.join(work.command)),
            "running": work.running,
            "status": None if work.child is None else work.child.poll(),
            "said": self.shorten_paths(work.tail()),
        }

    def shorten_paths(self, text: str) -> str:
        """A text with paths as they lie beside the folder; of others, which lead through the machine, the last part."""
        for path in sorted(self.texts[1:], key=len, reverse=True):
            text = _wrapped(path).sub(Path(path).name, text)
        text = _wrapped(f"{self.folder.parent}{os.sep}").sub("", text)
        return re.sub(r"(?<![\w./:~-])/(?:[\w.@+~-]+/)+", "…/", text)

    def close(self) -> None:
        """Stop what is running, and wait until it has saved; a second time does nothing."""
        own = [work for work in self._works if work.own]
        for work in own:
            work.stop()
        for work in own:
            work.wait(within=PATIENCE)
            work.forget()


def _write_record(work: Work) -> None:
    """Write down which process a work is, so that another studio finds it."""
    here = Process.find(os.getpid())
    if work.process is None or here is None:  # it has ended already, or the system does not say when it was started
        return
    told = {"wanted": work.wanted.model_dump(), "command": work.command, **work.process._asdict(), "studio": here}
    record = work.output.with_suffix(".json")
    new = record.with_suffix(".new")
    new.write_text(json.dumps(told))
    new.replace(record)


def _wrapped(path: str) -> re.Pattern[str]:
    """A pattern that finds a path also where a line was wrapped within it."""
    return re.compile("\n?".join(map(re.escape, path)))
