"""Jobs: training runs and comparisons that were started from the browser, each the command that a user would type.

A job is a separate process, which is stopped as by Ctrl-C: it finishes its step and saves, so that it can be resumed.
Jobs that are running when the studio ends are stopped in this way. If the studio itself is killed, its jobs run on, and
the next studio over the same folder finds them by their records in the folder `.studio`.
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

from fastapi import APIRouter
from pydantic import Field, field_validator
from starlette.responses import Response

from lmlab.config import Config
from lmlab.files import write_text
from lmlab.models import LINEAGE, find, systems_that_read
from lmlab.runs.run_files import BOARD, CONDITIONS, OWN, STUDY, SWEEP, TRIALS
from lmlab.studio.lecture import FILE as LECTURE
from lmlab.studio.processes import Process
from lmlab.studio.responses import respond
from lmlab.studio.run_files import read
from lmlab.studio.run_store import INSIDE
from lmlab.studio.sets import FOLDER as SETS

BUILTIN = "builtin"
"""The built-in corpus: Python's documentation."""
MOST_RUNNING = 2
TAIL = 6000
"""Bytes of a job's output that are shown."""
PATIENCE = 20.0
"""Seconds that a stopped job has to save when the studio ends."""
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
RECORDS = ".studio"
"""The folder next to the runs with the record and the output of each job."""
RESERVED = {
    name.casefold()
    for name in (*OWN, *INSIDE, *BOARD, TRIALS, STUDY, SWEEP, CONDITIONS, "scores", "plots", SETS, LECTURE)
}
"""Names of files and folders in runs and studies, which no run may have."""
TRAINED = tuple(name for name in systems_that_read("text") if "target text" not in LINEAGE[name].does)
"""Systems that learn from plain text."""


class JobRequest(Config):
    """What to train: the options of `lmlab train`, or of `lmlab compare`."""

    what: Literal["train", "compare"] = "train"
    name: str = Field("new", pattern=r"^[A-Za-z0-9_][\w.-]{0,59}$", description="folder of the new run")
    models: list[str] = Field(["lstm"], min_length=1, max_length=20, description="one to train, or several to compare")
    text: int = Field(0, ge=0, le=1000, description="index of a text of the studio; 0 is the built-in corpus")
    budget: str = Field(
        "30s",
        pattern=r"^\d{1,9}(\.\d{1,3})?(s|min|h|steps|epochs|tokens|ktokens|Mtokens)$",
        description="training budget",
    )
    size: Literal["tiny", "small", "base"] = "tiny"
    tokenizer: str = Field(
        "bpe:1024",
        pattern=r"^(characters|bytes|words(:\d{1,7})?|(bpe|wordpiece|unigram):\d{1,7})$",
        description="tokenizer",
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
                pairs = "text" in find(name).reads
                what = "pairs of texts" if pairs else " and ".join(find(name).reads)
                option = "--source …" if pairs else "DATA"
                raise ValueError(f"{name} learns from {what}: train it in a terminal, lmlab train {name} {option}")
        return models


def command_of(request: JobRequest, *, folder: Path, texts: Sequence[str]) -> list[str]:
    """The command line of a request."""
    if request.what == "train" and len(request.models) != 1:
        raise ValueError(f"{len(request.models)} models: train one, or compare several")
    if request.text >= len(texts):
        raise ValueError(f"text = {request.text}: there are {len(texts)}, from 0 on")
    shared = ["--tokenizer", request.tokenizer, "--budget", request.budget, "--size", request.size]
    shared += ["--seed", str(request.seed)] if request.seed else []
    output = ["-o", str(folder / request.name)]
    text = texts[request.text]
    if request.what == "train":
        return ["lmlab", "train", request.models[0], text, *output, *shared]
    return ["lmlab", "compare", text, "--models", ",".join(request.models), *output, *shared]


@dataclass
class Job:
    """One command that is running, or has ended."""

    number: int
    request: JobRequest
    command: list[str]
    output: Path
    """The file with its output; the record of the process is in the same folder."""
    process: Process | None
    child: subprocess.Popen[bytes] | None = None
    """None for a job of an earlier studio."""
    own: bool = True
    """Whether it ends with this studio."""

    @property
    def running(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return self.process is not None and self.process.running

    def stop(self) -> None:
        """Let it finish its step and save; a second call ends it at once."""
        self._send(signal.SIGINT)

    def wait(self, *, within: float) -> None:
        """Wait until it has ended; kill it after `within` seconds."""
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
        """The end of its output."""
        try:
            with open(self.output, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                return file.read(TAIL).decode("utf-8", "replace").replace("\r", "\n")
        except OSError:
            return ""

    def forget(self) -> None:
        """Remove its output and its record."""
        for path in (self.output, self.output.with_suffix(".json")):
            path.unlink(missing_ok=True)


class Jobs:
    """The jobs of this studio, and those that earlier studios left running."""

    def __init__(self, folder: Path, texts: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.texts = [BUILTIN, *(str(path.resolve()) for path in texts)]
        for path in texts:
            if not path.exists():
                raise ValueError(f"{path} does not exist; name a text, or a folder of texts, that is there")
        self._jobs: list[Job] = []
        self._lock = threading.Lock()
        for record in sorted(self._records.glob("*.json")):
            self._find_again(record)

    @property
    def _records(self) -> Path:
        return self.folder / RECORDS

    def names(self) -> list[str]:
        """The names of the texts to train on."""
        return [BUILTIN, *(Path(text).name for text in self.texts[1:])]

    def command(self, request: JobRequest) -> str:
        """The command line of a request, as typed in the parent of the folder of runs."""
        parts = command_of(request, folder=Path(self.folder.name), texts=self.names())
        return shlex.join(parts)

    def start(self, request: JobRequest) -> Job:
        """Start a job, unless too many are running or its folder exists."""
        with self._lock:
            if sum(job.running for job in self._jobs) >= MOST_RUNNING:
                raise ValueError(f"{MOST_RUNNING} jobs are running: wait until one is done, or stop it")
            if (self.folder / request.name).exists():
                raise ValueError(f"there is a {request.name} already in {self.folder.name}; choose another name")
            command = command_of(request, folder=self.folder, texts=self.texts)
            output, child = self._start(request.name, command)
            job = Job(len(self._jobs) + 1, request, command, output, Process.find(child.pid), child)
            _write_record(job)
            self._jobs.append(job)
            return job

    def _start(self, name: str, command: list[str]) -> tuple[Path, subprocess.Popen[bytes]]:
        """Start the process of a command; returns its output file and the process."""
        self._records.mkdir(mode=0o700, exist_ok=True)
        if self._records.is_symlink():
            raise ValueError(f"{self.folder.name}/{RECORDS} is a link; remove it, so that output can be written there")
        environment = {key: value for key, value in os.environ.items() if key != "LMLAB_TOKEN"}
        handle, output = tempfile.mkstemp(prefix=f"{name}.", suffix=".log", dir=self._records)
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", *command],  # -P: nothing is imported from the current folder
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                env={**environment, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"},
                start_new_session=True,
            )
        finally:
            os.close(handle)  # the process has its own handle
        return Path(output), child

    def _find_again(self, record: Path) -> None:
        """Add a job of an earlier studio, if it is still running; else remove its files."""
        if not hasattr(os, "getuid") or record.lstat().st_uid != os.getuid() or self._records.is_symlink():
            return
        values = read(record)
        try:
            request = JobRequest(
                **values["request" if "request" in values else "wanted"]
            )  # "wanted" before version 0.6
            process = Process(int(values["pid"]), str(values["started"]))
            studio, command = Process(*values["studio"]), [str(word) for word in values["command"]]
        except (KeyError, TypeError, ValueError):
            return
        job = Job(len(self._jobs) + 1, request, command, record.with_suffix(".log"), process, own=not studio.running)
        if job.running and self._is_job(job, process):
            self._jobs.append(job)
        elif job.own and not job.running:  # the studio that started it may still show its output
            job.forget()

    def _is_job(self, job: Job, process: Process) -> bool:
        """Whether a process is really `lmlab`, running in the folder that the record names."""
        command, target = job.command, str(self.folder / job.request.name)
        ours = command[:1] == ["lmlab"] and target in command
        return ours and " ".join(process.command()).endswith(" ".join(["-m", *command]))

    def find(self, number: int) -> Job:
        """The job of that number."""
        if not 1 <= number <= len(self._jobs):
            raise ValueError(f"there is no job {number}; {len(self._jobs)} were started")
        return self._jobs[number - 1]

    def summaries(self) -> list[dict[str, Any]]:
        """All jobs for a list, the last one first."""
        return [self.describe(job) for job in reversed(self._jobs)]

    def describe(self, job: Job) -> dict[str, Any]:
        """A job for the page; paths are relative to the folder."""
        return {
            "number": job.number,
            "name": job.request.name,
            "what": job.request.what,
            "command": self.shorten_paths(shlex.join(job.command)),
            "running": job.running,
            "status": None if job.child is None else job.child.poll(),
            "output": self.shorten_paths(job.tail()),
        }

    def shorten_paths(self, text: str) -> str:
        """A text with paths relative to the parent of the folder; of other paths only the last part is kept."""
        for path in sorted(self.texts[1:], key=len, reverse=True):
            text = _wrapped(path).sub(Path(path).name, text)
        text = _wrapped(f"{self.folder.parent}{os.sep}").sub("", text)
        return re.sub(r"(?<![\w./:~-])/(?:[\w.@+~-]+/)+", "…/", text)

    def close(self) -> None:
        """Stop the running jobs and wait until they have saved; a second call does nothing."""
        own = [job for job in self._jobs if job.own]
        for job in own:
            job.stop()
        for job in own:
            job.wait(within=PATIENCE)
            job.forget()


def _write_record(job: Job) -> None:
    """Write the record of a job's process, so that another studio finds it."""
    here = Process.find(os.getpid())
    if job.process is None or here is None:  # it has ended already, or the system does not say when it was started
        return
    values = {"request": job.request.model_dump(), "command": job.command, **job.process._asdict(), "studio": here}
    record = job.output.with_suffix(".json")
    write_text(record, json.dumps(values))


def _wrapped(path: str) -> re.Pattern[str]:
    """A pattern that finds a path, also with a line break in it."""
    return re.compile("\n?".join(map(re.escape, path)))


class JobNumber(Config):
    """A job by its number."""

    number: int = Field(ge=1, le=100_000)


def make_router(jobs: Jobs) -> APIRouter:
    """The routes that start, watch and stop jobs."""
    router = APIRouter()

    @router.get("/jobs")
    def list_jobs() -> Response:
        return respond({"jobs": jobs.summaries(), "texts": jobs.names(), "models": list(TRAINED)})

    @router.post("/jobs/command")
    def command(request: JobRequest) -> Response:
        return respond({"command": jobs.command(request)})

    @router.post("/jobs")
    def start(request: JobRequest) -> Response:
        return respond(jobs.describe(jobs.start(request)))

    @router.post("/jobs/stop")
    def stop(request: JobNumber) -> Response:
        job = jobs.find(request.number)
        job.stop()
        return respond(jobs.describe(job))

    return router
