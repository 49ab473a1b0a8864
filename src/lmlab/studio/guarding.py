"""What stands between the network and the studio: who may ask, how much, and what a page may load.

A page of another site must neither read nor start anything: requests are answered only where they name this machine
(`Host`, against DNS rebinding) and come from our own pages (`Origin`); what changes something needs the token, too. Off
this machine everything needs it.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST = 1 << 20
"""Bytes of a request."""
HERE = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
CHANGES = "/studio/api/jobs"
"""What changes something on this machine is below this path."""


class Guard:
    """Refuses what does not come from our own page, and puts the headers on every answer."""

    def __init__(self, app: App, *, token: str, host: str = "127.0.0.1") -> None:
        self.app, self.token, self.host = app, token, host
        self.at_home = host in ("127.0.0.1", "localhost", "::1")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refuse(scope, headers)
        if refused is not None:
            code, message = refused
            await JSONResponse({"error": {"message": message}}, status_code=code)(scope, receive, with_headers)
            return
        await self.app(scope, _bounded(receive), with_headers)

    def _refuse(self, scope: Scope, headers: MutableMapping[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self.at_home and _name_of(host) not in HERE:
            return 400, f"the studio answers on {', '.join(HERE)} only, not as {host[:80]!r}"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, "this request comes from a page of another site"
        if headers.get("sec-fetch-site") == "cross-site" and scope["path"].startswith("/studio/api"):
            return 403, "this request comes from a page of another site"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST:
            return 413, f"the request is too large; at most {LARGEST:,} bytes are read"
        changes = scope["path"].startswith(CHANGES) and scope["method"] != "GET"
        static = scope["path"] == "/" or scope["path"].startswith("/studio/static/")
        if (changes or (not self.at_home and not static)) and not self._knows(headers):
            return 401, "this needs the token that `lmlab studio` printed: open the address that it named"
        return None

    def _knows(self, headers: MutableMapping[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ").strip()
        return secrets.compare_digest(given.encode(), self.token.encode())


def _name_of(host: str) -> str:
    """A host without its port."""
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _bounded(receive: Receive) -> Receive:
    """Reading a body that does not say how long it is ends at the limit."""
    seen = 0

    async def read() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b"") or b"")
        if seen > LARGEST:
            return {"type": "http.disconnect"}
        return message

    return read
