"""Waiting for the engine without holding up others, and no longer than the client does."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, TypeVar

from fastapi import Request

from lmlab.progress import cancellable
from lmlab.serve.errors import APIError, ClosedError, GoneError, OverloadedError
from lmlab.serve.served import Served

T = TypeVar("T")


def too_many(name: str, waiting: int) -> APIError:
    """What is said where the queue is full."""
    return APIError(
        f"{name} is busy: {waiting} texts wait already; try again",
        status=429,
        code="overloaded",
        headers={"Retry-After": "1"},
    )


@contextmanager
def refusing(served: Served) -> Iterator[None]:
    """A full queue as 429 with the seconds after which to try again; a closed engine as 503."""
    try:
        yield
    except OverloadedError:
        raise too_many(served.name, served.limits.queue) from None
    except ClosedError as error:
        raise APIError(str(error), status=503, headers={"Retry-After": "10"}) from None


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What comes of the work; a `GoneError` where the client hangs up before."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise GoneError
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def run_in(executor: Executor | None, request: Request, function: Callable[[], T]) -> T:
    """The result of a function in a thread; where the client hangs up before, it is cancelled: a `GoneError`."""
    cancelled = threading.Event()
    with cancellable(cancelled.is_set):
        run = contextvars.copy_context().run
    future = asyncio.get_running_loop().run_in_executor(executor, run, function)
    try:
        return await unless_gone(request, _await(future))
    finally:
        cancelled.set()
        future.cancel()


async def call(served: Served, request: Request, function: Callable[[Callable[[], None]], T]) -> T:
    """Do something with a run's model in its own thread. What the client gave is checked before."""
    stopped = False

    def guarded(pause: Callable[[], None]) -> T:
        def check() -> None:
            if stopped:
                raise GoneError
            pause()

        check()
        return function(check)

    with refusing(served):
        future = served.engine.call(guarded)
    try:
        return await unless_gone(request, _await(asyncio.wrap_future(future)))
    finally:
        stopped = True
        future.cancel()


async def _await(future: asyncio.Future[T]) -> T:
    return await future
