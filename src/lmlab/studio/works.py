"""Training runs and comparisons that were started from the browser: each is the command that a user would type.

A work is a process of its own, which is told to stop as by Ctrl-C: it finishes its step and saves, so that it can be
resumed. What is still running when the studio ends is stopped in this way.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from lmlab.config import Config
from lmlab.models import LINEAGE, find

BUILTIN = "builtin"
"""Python's documentation, which is always there."""
MOST_RUNNING = 2
TAIL = 6000
"""Bytes of what a work has said that are shown."""
PATIENCE = 20.0
"""Seconds in which a work that is stopped has to save, when the studio ends."""
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


class Work:
    """One command that is running, or has ended."""

    def __init__(self, number: int, wanted: Wanted, command: Sequence[str]) -> None:
        self.number, self.wanted, self.command = number, wanted, list(command)
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 (held as long as the work)
        environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", *self.command],  # -P: what lies in this folder is never imported
            stdin=subprocess.DEVNULL,
            stdout=self.said,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Tell it to finish its step and save; a second time ends it at once."""
        if self.running:
            self.process.send_signal(signal.SIGINT)

    def tail(self) -> str:
        """The last that it has said."""
        size = os.fstat(self.said.fileno()).st_size
        raw = os.pread(self.said.fileno(), TAIL, max(0, size - TAIL))
        return raw.decode("utf-8", "replace").replace("\r", "\n")

    def about(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "name": self.wanted.name,
            "what": self.wanted.what,
            "command": shlex.join(self.command),
            "running": self.running,
            "status": self.process.poll(),
            "said": self.tail(),
        }


class Works:
    """All that was started since the studio is open."""

    def __init__(self, folder: Path, texts: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.texts = [BUILTIN, *(str(path.resolve()) for path in texts)]
        for path in texts:
            if not path.exists():
                raise ValueError(f"{path} does not exist; name a text, or a folder of texts, that is there")
        self._works: list[Work] = []
        self._lock = threading.Lock()

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
            work = Work(len(self._works) + 1, wanted, command_of(wanted, folder=self.folder, texts=self.texts))
            self._works.append(work)
            return work

    def find(self, number: int) -> Work:
        """The work of that number."""
        if not 1 <= number <= len(self._works):
            raise ValueError(f"there is no work {number}; {len(self._works)} were started")
        return self._works[number - 1]

    def about(self) -> list[dict[str, Any]]:
        return [work.about() for work in reversed(self._works)]

    def close(self) -> None:
        """Stop what is running, and wait until it has saved; a second time does nothing."""
        for work in self._works:
            work.stop()
        for work in self._works:
            try:
                work.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                work.process.kill()
                work.process.wait()
            work.said.close()
