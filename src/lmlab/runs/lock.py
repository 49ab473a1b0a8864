"""One trainer per run directory."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold(run: Path) -> Iterator[None]:
    """Hold a run directory; a ValueError says who holds it. The lock ends with its process, however that ends."""
    path = run / ".lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _lock(descriptor):
            raise ValueError(f"{run} is being trained by {_holder(path)}; wait for it, or end it first")
        os.ftruncate(descriptor, 0)
        who = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.write(descriptor, json.dumps(who).encode())
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has no flock: there, two trainers are the user's own care
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        who = json.loads(path.read_text())
        return f"process {who['pid']} on {who['host']} (since {who['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
