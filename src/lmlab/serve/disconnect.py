"""Clients that hang up before their response is ready. It imports no torch, so that the studio starts quickly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from lmlab.serve.errors import GoneError

T = TypeVar("T")


async def wait_until_gone(request: Request) -> None:
    """Return when the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work; if the client hangs up first, the work is cancelled and a `GoneError` is raised."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(wait_until_gone(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise GoneError
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
