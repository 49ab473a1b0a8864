"""Progress of long work: how it is reported, and how the work is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ReportProgress = Callable[[int, int], None]
"""Called with the amount that is done and the total: tokens read or scored, texts translated."""


class CancelledError(Exception):
    """The work was cancelled: its result is not needed any more."""


_is_cancelled: ContextVar[Callable[[], bool]] = ContextVar("is_cancelled", default=lambda: False)


@contextmanager
def cancellable(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Make `check_cancelled` call `is_cancelled` in this block, also in threads and tasks that copy the context."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def check_cancelled() -> None:
    """Raise a `CancelledError` if the work was cancelled; loops call it before each batch."""
    if _is_cancelled.get()():
        raise CancelledError("the work was cancelled")
