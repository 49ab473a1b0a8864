"""Work in a forked copy of this process, in which everything is imported already: it can be killed at any moment."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Child:
    """A forked process."""

    def __init__(self, work: Callable[[], Any], *, log: Path) -> None:
        """Run `work`; it ends with status 0, with 2 for an error in words (ValueError), or with 1 for any other.

        What it prints goes to the file `log`.
        """
        sys.stdout.flush()
        self.log = log
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _run(work, log)
        self.descriptor = os.pidfd_open(self.pid)

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit status, negative for a signal; None if it runs still after so many seconds."""
        if self.status is None and select.select([self.descriptor], [], [], seconds)[0]:
            _, status, self.usage = os.wait4(self.pid, 0)
            os.close(self.descriptor)
            self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, and wait for the end."""
        if self.status is None:
            signal.pidfd_send_signal(self.descriptor, number)
        status = self.wait()
        assert status is not None
        return status

    @property
    def peak(self) -> int:
        """The largest memory that it took, in bytes."""
        return int(self.usage.ru_maxrss) * 1024

    def said(self) -> str:
        """What it printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def _run(work: Callable[[], Any], log: Path) -> None:
    status = 1
    try:
        number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(number, 1)
        os.dup2(number, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except ValueError as error:
        print(f"ValueError: {error}", file=sys.stderr)
        status = 2
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(work: Callable[[], Any], *, log: Path) -> Child:
    """A forked process that has ended; `status` is its exit status."""
    child = Child(work, log=log)
    child.wait()
    return child


def lmlab(*words: object, log: Path, environment: Mapping[str, str] | None = None) -> Child:
    """A command of lmlab in a forked process, which need not import anything again."""

    def work() -> None:
        from lmlab.cli import main

        os.environ.update(environment or {})
        os.setsid()
        sys.argv = ["lmlab", *map(str, words)]
        main()

    return Child(work, log=log)


def import_everything() -> None:
    """Import what commands import, so that forked processes have it."""
    import importlib

    from lmlab.cli.commands import COMMANDS

    for name in (*(f"lmlab.cli.{each.replace('-', '_')}" for each in COMMANDS), "lmlab.studio.app", "lmlab.serve.app"):
        importlib.import_module(name)
    for name in (
        "torch._dynamo",
        "torch.testing",
        "lmlab.runs.run",
        "lmlab.runs.train",
        "lmlab.language_model",
        "lmlab.comparison.folder",
        "uvicorn",
    ):
        importlib.import_module(name)


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def now() -> float:
    return time.monotonic()
