"""How work is ended before its time: Ctrl-C or a request to end lets it finish a step and save."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmlab.runs.jobs import Reporter


def catch_interrupts() -> Callable[[], bool]:
    """Whether somebody has asked to stop: work is to finish its step and save then; a second time ends it at once."""
    caught: list[int] = []

    def catch(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)

    signal.signal(signal.SIGINT, catch)
    signal.signal(signal.SIGTERM, catch)
    return lambda: bool(caught)


class Stopping:
    """Passes on what a run reports; where somebody wants to stop while the text is prepared, that ends it."""

    def __init__(self, display: Reporter, interrupted: Callable[[], bool]) -> None:
        self.display, self.interrupted = display, interrupted
        self.begin, self.log = display.begin, display.log

    def stage(self, name: str, done: int, total: int) -> None:
        if self.interrupted():
            raise KeyboardInterrupt("Interrupted while the text was being prepared: nothing was written.")
        self.display.stage(name, done, total)
