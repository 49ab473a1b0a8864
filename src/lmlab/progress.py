"""How work that takes a while reports how far it is, and how it is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ReportProgress = Callable[[int, int], None]
"""Is told how much is done, and of how much: tokens read or scored, texts translated."""


class CancelledError(Exception):
    """Nobody waits for the result any more."""


_is_cancelled: ContextVar[Callable[[], bool]] = ContextVar("is_cancelled", default=lambda: False)


@contextmanager
def cancellable(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Within this block `check_cancelled` asks `is_cancelled`; threads and tasks that copy the context do so too."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def check_cancelled() -> None:
    """Raise a `CancelledError` where the work was cancelled; loops call it before each batch."""
    if _is_cancelled.get()():
        raise CancelledError("the work was cancelled")
