"""Waiting in tests: for a state, never for a time. The limit only ends what hangs: no slow machine comes near it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 300.0
"""Seconds after which something hangs."""


def wait_until(state: Callable[[], Any], *, says: Callable[[], str] = lambda: "nothing happened") -> None:
    """Return as soon as the state is reached."""
    end = time.monotonic() + PATIENCE
    while not state():
        assert time.monotonic() < end, says()
        time.sleep(0.005)
