"""Processes that outlive the program that started them: known by their number and their start, so none is mistaken.

The number of a process is used again after it has ended, so the number alone never says which process is meant.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

TRIES = 100
"""How often the command line of a running process is read before it counts as unknown."""


class Process(NamedTuple):
    """A process of this machine."""

    pid: int
    started: str
    """When it was started, as the system writes it: together with the number, of no other process."""

    @classmethod
    def find(cls, pid: int) -> Process | None:
        """The process with this id; None if there is none, or if the system does not say when it started."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    @property
    def running(self) -> bool:
        return _started(self.pid) == self.started

    def command(self) -> list[str]:
        """Its command line; empty if unknown. Linux has none for a moment after a process was started."""
        if Path("/proc/self/cmdline").exists():
            for _ in range(TRIES):
                try:
                    found = Path(f"/proc/{self.pid}/cmdline").read_text().split("\0")[:-1]
                except (OSError, ValueError):
                    return []
                if found or not self.running:
                    return found
                time.sleep(0.02)
            return []
        return _ask_ps(self.pid, "args=").split()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to exactly this process; does nothing if it has ended."""
        if not hasattr(os, "pidfd_open"):
            if self.running:
                os.kill(self.pid, number)
            return
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            if self.running:  # the handle was made before, so it is the same process that the signal goes to
                signal.pidfd_send_signal(handle, number)
        except OSError:
            return
        finally:
            os.close(handle)


def _started(pid: int) -> str | None:
    """When a process was started; None if it has ended."""
    if Path("/proc/self/stat").exists():
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            return None
        return None if fields[0] in "ZX" else f"{boot} {fields[19]}"
    return _ask_ps(pid, "lstart=") or None


def _ask_ps(pid: int, what: str) -> str:
    """What `ps` says of a process, on systems without /proc."""
    try:
        return subprocess.run(["ps", "-o", what, "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""
