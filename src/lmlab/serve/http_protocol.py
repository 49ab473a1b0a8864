"""Connections: none is held for ever by a client that sends or reads too slowly, and not too many at once.

uvicorn has no time limit for the head of a request, nor for a client that does not read, and an application cannot set
one: it is called when the head is there, and it cannot close a connection whose buffer is full. So the protocol of
uvicorn is wrapped by another one, which `uvicorn.Config(http=…)` takes; it uses no more of the inner one than the
methods of `asyncio.Protocol`. benchmarks/RELIABILITY.md has what happens without it.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from lmlab.serve.guard import App, Guard, Message, Receive, Send

HEADERS_WITHIN = 10.0
"""Seconds in which the head of a request must be there, from its first byte, or from the start of a connection."""
NEXT_WITHIN = 30.0
"""Seconds from the end of an answer in which it must be read, and the head of the next request be there."""
READ_WITHIN = 30.0
"""Seconds in which a client must take what waits to be sent."""
MOST_CONNECTIONS = 4096


class TimeLimits(asyncio.Protocol):
    """A connection that is dropped when its client takes too long to send the head of a request, or to read."""

    def __init__(self, **settings: Any) -> None:
        self._http = H11Protocol(**settings)
        self._context = copy_context()
        self._context.run(CONNECTION.set, self)
        self._waiting: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._answering = 0
        self._begun = False  # the first byte of a head was there
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._http.connection_made(self._transport)
        self._wait(HEADERS_WITHIN)

    def data_received(self, data: bytes) -> None:
        if not (self._answering or self._begun):
            self._begun = True
            self._wait(HEADERS_WITHIN)
        self._context.run(self._http.data_received, data)

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()
        if self._unread is None:
            self._unread = asyncio.get_running_loop().call_later(READ_WITHIN, self._transport.abort)

    def resume_writing(self) -> None:
        self._http.resume_writing()
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._stop_waiting()
        self._read()
        self._http.connection_lost(exc)

    def answer_begins(self) -> None:
        """The head of a request is there, and the application has been called."""
        self._answering += 1
        self._begun = False
        self._stop_waiting()

    def answer_ends(self) -> None:
        """The application has returned."""
        self._answering -= 1
        if not (self._answering or self._lost):
            self._wait(NEXT_WITHIN)

    def _wait(self, seconds: float) -> None:
        """Drop the connection after some seconds; closing it would wait until all is read."""
        self._stop_waiting()
        self._waiting = asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def _read(self) -> None:
        """The client has read enough."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


CONNECTION: ContextVar[TimeLimits] = ContextVar("CONNECTION")
"""The connection from which an application is called."""


class Timed:
    """An application that notifies its connection when a response starts and ends."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        connection = CONNECTION.get(None) if scope["type"] == "http" else None
        if connection is None:
            return await self.app(scope, receive, send)
        connection.answer_begins()
        try:
            await self.app(scope, receive, send)
        finally:
            connection.answer_ends()


class QuietServer(uvicorn.Server):
    """A server that ends without a traceback: after a while it drops the connections that are left, and at a second
    Ctrl-C at once, so that every request ends.

    uvicorn would cancel the requests, and log each with a traceback; and it raises every signal again when it has
    ended, and the second would interrupt the end of the event loop.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.hurried = False
        self._patience = config.timeout_graceful_shutdown or 0
        config.timeout_graceful_shutdown = self._patience + 2  # seconds after which uvicorn cancels what is left

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.hurried = True
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: Any = None) -> None:
        ending = asyncio.ensure_future(super().shutdown(sockets))
        last = time.monotonic() + self._patience
        while not ending.done():
            await asyncio.wait((ending,), timeout=0.05)
            if self.hurried or time.monotonic() > last:
                for connection in tuple(self.server_state.connections):
                    connection.transport.abort()
        await ending


def make_config(app: Guard, **settings: Any) -> uvicorn.Config:
    """How the web server runs an application; `settings` are further ones of uvicorn."""
    return uvicorn.Config(
        Timed(app),
        http=TimeLimits,
        ws="none",
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(NEXT_WITHIN),
        backlog=2048,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=32768,
        **{"log_level": "warning", "timeout_graceful_shutdown": 1, **settings},
    )
