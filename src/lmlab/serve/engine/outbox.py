"""The outbox: how the engine's thread sends output to the event loops that wait for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

DELAY_PER_SEQUENCE = 0.002
"""Seconds for each running sequence, at least, between two deliveries …"""
LONGEST_DELAY = 0.064
"""… and the most seconds, for any number of sequences."""


class Outbox:
    """Collects calls for event loops and delivers those of a step together, and those of quick steps in bundles.

    Waking another thread costs each of the two a turn of the interpreter, and every message to a client is a system
    call: for each token of each sequence, that would take longer than to compute the tokens.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
        self._urgent = False
        self._delivered_at = 0.0

    def put(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None], *, urgent: bool) -> None:
        """Add a call for a loop; from any thread."""
        with self._lock:
            self._calls.setdefault(loop, []).append(call)
            self._urgent |= urgent

    def deliver(self, *, after: float = 0.0) -> None:
        """Make all calls in their loops, if `after` seconds have passed since the last time or one is urgent."""
        if not self._calls or not (self._urgent or time.monotonic() - self._delivered_at >= after):
            return
        with self._lock:
            calls_of, self._calls, self._urgent = self._calls, {}, False
        for loop, calls in calls_of.items():
            with suppress(RuntimeError):  # the loop has ended, and with it all that waited
                loop.call_soon_threadsafe(_call_all, calls)
        self._delivered_at = time.monotonic()


def delay_for(sequences: int) -> float:
    """The seconds that output may wait while this number of sequences is running."""
    return min(DELAY_PER_SEQUENCE * sequences, LONGEST_DELAY)


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
