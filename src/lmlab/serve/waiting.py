"""Work for a request in other threads; it is cancelled when the client hangs up."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TypeVar

from fastapi import Request

from lmlab.progress import cancellable
from lmlab.serve.disconnect import cancel_on_disconnect
from lmlab.serve.errors import APIError, ClosedError, DisconnectedError, OverloadedError
from lmlab.serve.served import Served

T = TypeVar("T")


def too_many(name: str, waiting: int) -> APIError:
    """The error for a full queue."""
    return APIError(
        f"{name} is busy: {waiting} texts wait already; try again",
        status=429,
        code="overloaded",
        headers={"Retry-After": "1"},
    )


@contextmanager
def queue_errors_as_responses(served: Served) -> Iterator[None]:
    """Answer a full queue by 429, with the seconds after which to try again, and a closed engine by 503."""
    try:
        yield
    except OverloadedError:
        raise too_many(served.name, served.limits.queue) from None
    except ClosedError as error:
        raise APIError(str(error), status=503, headers={"Retry-After": "10"}) from None


async def run_in(executor: Executor | None, request: Request, function: Callable[[], T]) -> T:
    """The result of a function in a thread; if the client hangs up first, it is cancelled: a `DisconnectedError`."""
    cancelled = threading.Event()
    with cancellable(cancelled.is_set):
        run = contextvars.copy_context().run
    future = asyncio.get_running_loop().run_in_executor(executor, run, function)
    try:
        return await cancel_on_disconnect(request, _await(future))
    finally:
        cancelled.set()
        future.cancel()


async def call(served: Served, request: Request, function: Callable[[Callable[[], None]], T]) -> T:
    """Run a function with a run's model in the engine's thread, with a `pause` to call now and then.

    Input from the client is checked before: an exception of the function is an internal error.
    """
    stopped = False

    def guarded(pause: Callable[[], None]) -> T:
        def check() -> None:
            if stopped:
                raise DisconnectedError
            pause()

        check()
        return function(check)

    with queue_errors_as_responses(served):
        future = served.engine.call(guarded)
    try:
        return await cancel_on_disconnect(request, _await(asyncio.wrap_future(future)))
    finally:
        stopped = True
        future.cancel()


async def _await(future: asyncio.Future[T]) -> T:
    return await future
