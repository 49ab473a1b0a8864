"""What stands before every route: who may ask, from where, how much, and how slowly.

A browser can be made to send requests to this machine by any page it shows (CSRF), even under another name for it (DNS
rebinding), so Host and Origin are checked as well as the token. Nothing is read of a body that is too large.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from lmlab.serve.errors import APIError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
OPEN = ("/health",)
"""The routes that need no token."""
HEADERS = (
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the guard lets pass."""

    hosts: frozenset[str] = frozenset(LOOPBACK)
    """Names under which the server may be asked, without the port."""
    token: str | None = field(default=None, repr=False)
    body: int = 2**20
    """Bytes of a body, at most."""
    patience: float = 10.0
    """Seconds in which a body must be there."""


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, rules: Rules, *, admit: Callable[[Message], None] = lambda scope: None) -> None:
        self.app, self.rules = app, rules
        self.admit = admit
        """Raises an `APIError` for what is refused by its head alone, before anything of the body is read."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # there are no web sockets here
            await receive()
            return await send({"type": "websocket.close", "code": 1008})
        began = False

        async def answer(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                given = {name for name, _ in message.get("headers", ())}
                extra = [pair for pair in HEADERS if pair[0] not in given]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, await self._read(scope, receive), answer)
        except APIError as error:
            if not began:
                await _refuse(error, answer)
                if error.status == 413:
                    await _drain(receive)

    def _check(self, scope: Message) -> None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"host", b"authorization", b"content-length", b"origin"):
                raise APIError(f"the header {name.decode()} is given twice")
            headers[name] = value
        self._check_host(headers)
        self._check_token(scope, headers)
        self._check_origin(headers)
        if scope["method"] in ("POST", "PUT", "PATCH"):
            self._check_body(headers)
        self.admit(scope)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        host = _name_of(headers.get(b"host", b"").decode("latin-1"))
        if _bare(host) not in {_bare(name) for name in self.rules.hosts}:
            raise APIError(
                f"the host {host[:80]!r} is not this server's name; to allow it, start with --allow-host NAME",
                status=403,
                code="host_not_allowed",
            )

    def _check_token(self, scope: Message, headers: dict[bytes, bytes]) -> None:
        if self.rules.token is None or scope["path"] in OPEN:
            return
        given = token_of(headers.get(b"authorization", b""))
        if not hmac.compare_digest(given, self.rules.token.encode()):
            raise APIError(
                "the token is missing or wrong: send the header  Authorization: Bearer TOKEN",
                status=401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": 'Basic realm="lmlab", charset="UTF-8"'},
            )

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        site = headers.get(b"sec-fetch-site", b"none")
        if site == b"cross-site" and b"origin" not in headers:
            raise APIError("requests from another site are not answered", status=403, code="origin_not_allowed")
        if b"origin" not in headers:
            return
        origin = headers[b"origin"].decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        try:
            parts = urlsplit(origin)
            same = parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
        except ValueError:
            same = False
        if not same:
            raise APIError(
                f"the origin {origin[:80]!r} is another site, which may not use this server",
                status=403,
                code="origin_not_allowed",
            )

    def _check_body(self, headers: dict[bytes, bytes]) -> None:
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self.rules.body:
            raise self._too_large()
        if kind != b"application/json" and not kind.endswith(b"+json"):
            raise APIError("send JSON, with the header  Content-Type: application/json", status=415)

    async def _read(self, scope: Message, receive: Receive) -> Receive:
        """The body, unless it is too large or takes too long; then a `receive` that gives it as a whole."""
        if scope["method"] in ("GET", "HEAD"):
            return receive
        parts: list[bytes] = []
        size, message = 0, None
        try:
            async with asyncio.timeout(self.rules.patience):
                while message is None or message.get("more_body", False):
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.rules.body:
                        raise self._too_large()
        except TimeoutError:
            raise APIError(
                f"the body was not there after {self.rules.patience:g} seconds",
                status=408,
                headers={"Connection": "close"},
            ) from None
        whole: list[Message] = [{**message, "body": b"".join(parts)}]

        async def once() -> Message:
            return whole.pop() if whole else await receive()

        return once

    def _too_large(self) -> APIError:
        return APIError(
            f"the body is larger than {self.rules.body} bytes",
            status=413,
            code="body_too_large",
            headers={"Connection": "close"},
        )


async def _refuse(error: APIError, send: Send) -> None:
    content = json.dumps(error.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _drain(receive: Receive) -> None:
    """Take what is on its way for a moment, so that the client comes to read the answer."""
    try:
        async with asyncio.timeout(0.2):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        pass


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.rsplit(":", 1)[0] if host.count(":") == 1 else host


def _bare(host: str) -> str:
    """An address of IPv6 without its brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def token_of(header: bytes) -> bytes:
    """The token of an Authorization header: Bearer, or the password of Basic, for which browsers ask by themselves."""
    kind, _, rest = header.partition(b" ")
    if kind.lower() == b"bearer":
        return rest.strip()
    if kind.lower() == b"basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
