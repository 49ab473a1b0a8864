"""One limit over everything heavy that clients ask for: views, models that are loaded, held-out text that is read.

A few requests are worked on at once and some wait; others are refused with 503 before anything is done for them. When
the client of a request is gone, its place in the queue is given up, or the work is cancelled before its next batch
(`lmlab.progress.check_cancelled`). Pages, lists and `/health` do not pass through here, so they never wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from lmlab.progress import CancelledError, cancellable
from lmlab.serve.disconnect import wait_for_disconnect
from lmlab.serve.errors import APIError, DisconnectedError

MOST_WORKING = 4
"""Requests that are worked on at once."""
MOST_WAITING = 32
"""Requests that wait for their turn; a class that opens the same view at the same time fits in."""
T = TypeVar("T")


class Workers:
    """Places for heavy work; the same for all routes of a studio, whichever event loop they run in."""

    def __init__(self, *, working: int = MOST_WORKING, waiting: int = MOST_WAITING) -> None:
        self._free, self._most_waiting = working, waiting
        self._waiting: deque[Future[None]] = deque()
        self._flags: set[threading.Event] = set()
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, gone: Coroutine[Any, Any, Any]) -> T:
        """The result of the work when its turn has come; a `DisconnectedError` as soon as the client is `gone`."""
        cancelled, working = threading.Event(), None
        leaving, turn = asyncio.ensure_future(gone), asyncio.ensure_future(self._enter())
        try:
            await asyncio.wait((turn, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                raise DisconnectedError
            turn.result()
            self._flags.add(cancelled)
            with cancellable(cancelled.is_set):
                working = asyncio.ensure_future(work())
            working.add_done_callback(lambda task: self._leave(task, cancelled))
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise DisconnectedError
            try:
                return working.result()
            except CancelledError:  # the studio ends
                raise DisconnectedError from None
        finally:
            cancelled.set()
            leaving.cancel()
            if working is None:
                turn.cancel()
                turn.add_done_callback(self._return_unused)

    async def _enter(self) -> None:
        """Wait for a free place; an `APIError` where too many wait already."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            self._waiting = deque(each for each in self._waiting if not each.cancelled())
            if len(self._waiting) >= self._most_waiting:
                raise APIError(
                    f"{self._most_waiting} requests wait already; try again in a moment",
                    status=503,
                    code="overloaded",
                    headers={"Retry-After": "1"},
                )
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel():  # its turn came at the same moment
                self._give_slot()
            raise

    def _return_unused(self, turn: asyncio.Task[None]) -> None:
        if not turn.cancelled() and turn.exception() is None:
            self._give_slot()

    def _leave(self, task: asyncio.Task[Any], cancelled: threading.Event) -> None:
        self._flags.discard(cancelled)
        self._give_slot()
        if not task.cancelled():
            task.exception()  # of a request whose client is gone nobody else asks for it

    def _give_slot(self) -> None:
        """Let the request that has waited longest take the place."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1

    def close(self) -> None:
        """Cancel what is worked on: the studio ends."""
        for cancelled in tuple(self._flags):
            cancelled.set()


class HeavyRoute(APIRoute):
    """A route whose POST requests are heavy: they pass through the workers of the application."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_in_turn(request: Request) -> Response:
            workers: Workers | None = getattr(request.app.state, "workers", None)
            if request.method != "POST" or workers is None:
                return await handle(request)
            await request.body()  # so that what is received from now on can only be that the client is gone
            return await workers.run(lambda: handle(request), gone=wait_for_disconnect(request))

        return handle_in_turn
