"""Connections as all servers of lmlab hold them: none for ever, and not too many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from lmlab.serve.guard import Guard

HEADERS_WITHIN = 10.0
"""Seconds in which the head of a request must be there, from the first moment of a connection or its first byte."""
READ_WITHIN = 30.0
"""Seconds in which a client must take what waits to be sent."""
MOST_CONNECTIONS = 4096


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that waits for ever neither for the head of a request nor for a client to read the answer."""

    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    @property
    def _idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._waiting = self.loop.call_later(HEADERS_WITHIN, self._give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:  # the start of the next request came while this one was answered
            self._await_head()

    def handle_events(self) -> None:
        super().handle_events()
        if not self._idle and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(READ_WITHIN, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # closing would wait until all is read
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._taken()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._idle and self._waiting is None:
            self._waiting = self.loop.call_later(HEADERS_WITHIN, self._give_up)

    def _taken(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _give_up(self) -> None:
        self._waiting = None
        if self._idle and not self.transport.is_closing():
            self.transport.abort()


def make_config(app: Guard, **settings: Any) -> uvicorn.Config:
    """How the web server runs an application; `settings` are further ones of uvicorn."""
    return uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        backlog=2048,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=32768,
        **{"log_level": "warning", "timeout_graceful_shutdown": 1, **settings},
    )
