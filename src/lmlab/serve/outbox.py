"""How an engine's thread tells something to those who wait in another one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

TELL = 0.002
"""Seconds for each text that is being written, at least, between two times that their tokens are told …"""
TELL_WITHIN = 0.064
"""… and seconds within which they are told, however many there are."""


class Post:
    """What is told in a step is brought to the loops of events together, and that of quick steps a few at a time.

    To wake another thread costs each of the two a turn of the interpreter, and every message to a client a call of the
    system: once for each token of each text would take longer than to compute them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
        self._urgent = False
        self._latest = 0.0

    def put(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None], *, urgent: bool) -> None:
        """Keep something that is to be called in a loop; from any thread."""
        with self._lock:
            self._kept.setdefault(loop, []).append(call)
            self._urgent |= urgent

    def deliver(self, *, after: float = 0.0) -> None:
        """Let all that is kept be called, if it is so many seconds since the last time, or something is urgent."""
        if not self._kept or not (self._urgent or time.monotonic() - self._latest >= after):
            return
        with self._lock:
            kept, self._kept, self._urgent = self._kept, {}, False
        for loop, calls in kept.items():
            with suppress(RuntimeError):  # the loop has ended, and with it all who waited
                loop.call_soon_threadsafe(_call_all, calls)
        self._latest = time.monotonic()


def patience_for(texts: int) -> float:
    """How long what so many texts have to tell may wait."""
    return min(TELL * texts, TELL_WITHIN)


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
