"""A studio in a process of its own, as users have it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from patience import PATIENCE
from studio_texts import TOKEN


class Opened(NamedTuple):
    """Where a studio answers, and its process."""

    address: str
    process: subprocess.Popen[str]


@contextmanager
def open_studio(folder: Path, *options: str) -> Iterator[Opened]:
    """A studio over a folder; it is ended at the end, if it has not ended by then."""
    command = [sys.executable, "-m", "lmlab", "studio", str(folder), "--port", "0", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LMLAB_TOKEN": TOKEN}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        found = re.search(r"http://[^/\s]+/", server.stdout.readline())
        assert found is not None
        yield Opened(found[0], server)
    finally:
        server.terminate()
        server.wait(PATIENCE)
