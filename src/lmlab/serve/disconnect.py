"""Clients that hang up before their response is ready. It imports no torch, so that the studio starts quickly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from lmlab.serve.errors import DisconnectedError

T = TypeVar("T")


async def wait_for_disconnect(request: Request) -> None:
    """Return when the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work; if the client hangs up first, the work is cancelled: a `DisconnectedError`."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise DisconnectedError
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
