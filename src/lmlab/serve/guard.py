"""The guard in front of every route: it checks host, origin, token and size of a request before the route runs.

A browser can be made to send requests to this machine by any page it shows (CSRF), even under another name for it (DNS
rebinding), so Host and Origin are checked as well as the token. Nothing is read of a body that is too large.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.middleware.trustedhost import TrustedHostMiddleware

from lmlab.serve.access_token import has_cookie, make_cookie, same_token, split_query, token_of
from lmlab.serve.errors import APIError, DisconnectedError, internal_error, log_error

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = dict[bytes, bytes]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPEN = ("/health",)
"""The routes that need no token."""
SINGLE = (b"host", b"authorization", b"content-length", b"transfer-encoding", b"origin", b"cookie")
"""Headers that may be given once."""
HEADERS = (
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the guard lets pass."""

    hosts: frozenset[str] = frozenset()
    """Host names of the server besides those of `LOOPBACK`, without the port."""
    token: str | None = field(default=None, repr=False)
    """What every request but those for `OPEN` must bring; None where nothing is needed."""
    pages: frozenset[str] = frozenset(("/",))
    """Paths of pages: a link on another site may open them, and with `?token=` they sign a browser in."""
    body: int = 2**20
    """Bytes of a body, at most."""
    bodies: Mapping[str, int] = field(default_factory=dict)
    """Paths whose bodies may be larger, such as recordings, with their bytes."""
    patience: float = 10.0
    """Seconds in which a body must be there."""


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(names: Iterable[str]) -> frozenset[str]:
    """The names of this machine and further ones, as Host headers have them: IPv6 in brackets, no port."""
    found = {*LOOPBACK}
    for name in names:
        bare = name.strip().lower().removeprefix("[").removesuffix("]")
        if ":" in bare:
            try:
                ipaddress.IPv6Address(bare)
            except ValueError:
                raise ValueError(f"--allow-host {name}: give only the name, without http:// or a port") from None
            bare = f"[{bare}]"
        if not bare or "/" in bare or "*" in bare.removeprefix("*."):
            raise ValueError(f"--allow-host {name}: give a name such as lab.example.org or *.example.org")
        found.add(bare)
    return frozenset(found)


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, rules: Rules, *, admit: Callable[[Message], None] = lambda scope: None) -> None:
        self.app, self.rules = app, rules
        self.admit = admit
        """Raises an `APIError` for what is refused by its head alone, before anything of the body is read."""
        self._hosts = TrustedHostMiddleware(
            _mark_host, allowed_hosts=sorted(allowed_hosts(rules.hosts)), www_redirect=False
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # there are no web sockets here
            await receive()
            return await send({"type": "websocket.close", "code": 1008})
        answer = _Answer(send, whole=scope["method"] != "HEAD")
        headers: Headers = {}
        try:
            headers = _read_headers(scope)
            await self._check(scope, headers)
            if (cookie := self._sign_in(scope, headers)) is not None:
                return await _redirect(scope, cookie, answer)
            body = await self._read(scope, receive)
            if scope["method"] == "HEAD":  # the same as GET, without the content
                scope, body = {**scope, "method": "GET"}, answer.until_begun(body)
            await self.app(scope, body, answer)
        except APIError as error:
            await self._refuse(error, scope, headers, answer)
            if error.status == 413:
                await _drain(receive)
        except DisconnectedError:
            pass
        except Exception as error:
            log_error(error, f"{scope['method']} {scope['path'][:200]}")
            await self._refuse(internal_error(error), scope, headers, answer)

    async def _check(self, scope: Message, headers: Headers) -> None:
        if b"content-length" in headers and b"transfer-encoding" in headers:  # servers disagree where it ends
            raise APIError(
                "Content-Length and Transfer-Encoding are both given; send one of them", headers={"Connection": "close"}
            )
        if not scope["path"].startswith("/"):
            raise APIError("the path must begin with /; absolute URLs are for proxies", headers={"Connection": "close"})
        await self._check_host(headers)
        self._check_origin(scope, headers)
        self._check_token(scope, headers)
        if scope["method"] in ("POST", "PUT", "PATCH"):
            self._check_body(scope, headers)
        self.admit(scope)

    async def _check_host(self, headers: Headers) -> None:
        host = headers.get(b"host", b"")
        request: Message = {"type": "http", "headers": [(b"host", host)]}
        await self._hosts(request, _no_receive, _no_send)
        if "known_host" not in request:
            raise APIError(
                f"the host {host.decode('latin-1')[:80]!r} is not this server's name; to allow it, start with "
                "--allow-host NAME",
                status=403,
                code="host_not_allowed",
            )

    def _check_origin(self, scope: Message, headers: Headers) -> None:
        """Refuse what a page of another site requests, but for a link that opens a page of ours."""
        if b"origin" not in headers:
            site = headers.get(b"sec-fetch-site", b"none")
            if site in (b"none", b"same-origin") or self._opens_page(scope, headers):
                return
            raise APIError("requests from another site are not answered", status=403, code="origin_not_allowed")
        origin, host = headers[b"origin"].decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
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

    def _opens_page(self, scope: Message, headers: Headers) -> bool:
        """Whether a browser opens a page of ours in a tab of its own, as Fetch Metadata says."""
        return (
            self._is_page(scope)
            and headers.get(b"sec-fetch-mode") == b"navigate"
            and headers.get(b"sec-fetch-dest") == b"document"
        )

    def _is_page(self, scope: Message) -> bool:
        return scope["method"] in ("GET", "HEAD") and scope["path"] in self.rules.pages

    def _check_token(self, scope: Message, headers: Headers) -> None:
        token = self.rules.token
        if token is None or scope["path"] in OPEN or has_cookie(headers, token):
            return
        given = token_of(headers.get(b"authorization", b""))
        if self._is_page(scope) and not given:
            given = (split_query(scope["query_string"])[0] or "").encode()
        if same_token(given, token):
            return
        how = 'Basic realm="lmlab", charset="UTF-8"' if self._is_page(scope) else 'Bearer realm="lmlab"'
        raise APIError(
            "the token is missing or wrong: send the header  Authorization: Bearer TOKEN, or open the page with the "
            "link that was printed in the terminal",
            status=401,
            code="invalid_api_key",
            headers={"WWW-Authenticate": how},
        )

    def _sign_in(self, scope: Message, headers: Headers) -> str | None:
        """The cookie for a browser that opens a page with `?token=`; None for every other request."""
        token = self.rules.token
        if token is None or not self._is_page(scope) or b"token=" not in scope["query_string"]:
            return None
        given = split_query(scope["query_string"])[0] or ""
        return make_cookie(headers, token) if same_token(given.encode(), token) else None

    def _most(self, scope: Message) -> int:
        """Bytes of the body of a request, at most."""
        return self.rules.bodies.get(scope["path"], self.rules.body)

    def _check_body(self, scope: Message, headers: Headers) -> None:
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._most(scope):
            raise self._too_large(self._most(scope))
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
                    if message["type"] == "http.disconnect":
                        raise DisconnectedError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._most(scope):
                        raise self._too_large(self._most(scope))
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

    @staticmethod
    def _too_large(most: int) -> APIError:
        return APIError(
            f"the body is larger than {most} bytes",
            status=413,
            code="body_too_large",
            headers={"Connection": "close"},
        )

    async def _refuse(self, error: APIError, scope: Message, headers: Headers, answer: _Answer) -> None:
        """Send an error, unless a response has started: as text for a page in a browser, as JSON otherwise."""
        if answer.begun:
            return
        content, kind = json.dumps(error.body()).encode(), b"application/json"
        if self._is_page(scope) and b"text/html" in headers.get(b"accept", b""):
            content, kind = f"{error.message}\n".encode(), b"text/plain; charset=utf-8"
        given = [(b"content-type", kind), (b"content-length", str(len(content)).encode())]
        given += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        await answer({"type": "http.response.start", "status": error.status, "headers": given})
        await answer({"type": "http.response.body", "body": content})


class _Answer:
    """A `send` that adds our headers, leaves the content out where it is not `whole`, and knows whether it began."""

    def __init__(self, send: Send, *, whole: bool) -> None:
        self.send, self.whole = send, whole
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            given = {name for name, _ in message.get("headers", ())}
            extra = [pair for pair in HEADERS if pair[0] not in given]
            await self.send({**message, "headers": [*message.get("headers", ()), *extra]})
            if not self.whole:
                await self.send({"type": "http.response.body", "body": b""})
        elif self.whole:
            await self.send(message)
        else:
            await asyncio.sleep(0)  # a stream that never waits is cancelled all the same

    def until_begun(self, receive: Receive) -> Receive:
        """A `receive` that reports a disconnect once the answer has begun, so that no stream is computed for HEAD."""

        async def listen() -> Message:
            return {"type": "http.disconnect"} if self.begun else await receive()

        return listen


def _read_headers(scope: Message) -> Headers:
    headers: Headers = {}
    for name, value in scope["headers"]:
        if name in headers and name in SINGLE:
            raise APIError(f"the header {name.decode()} is given twice")
        headers[name] = value
    return headers


async def _redirect(scope: Message, cookie: str, answer: _Answer) -> None:
    """Send a browser to the same page without the token in its address, with the cookie."""
    rest = split_query(scope["query_string"])[1]
    given = [
        (b"location", (scope["path"] + (f"?{rest}" if rest else "")).encode("latin-1")),
        (b"set-cookie", cookie.encode()),
        (b"content-length", b"0"),
    ]
    await answer({"type": "http.response.start", "status": 303, "headers": given})
    await answer({"type": "http.response.body", "body": b""})


async def _mark_host(scope: Any, receive: Any, send: Any) -> None:
    """What Starlette's check of the Host header calls for a name that is allowed."""
    scope["known_host"] = True


async def _no_receive() -> Message:
    return {"type": "http.disconnect"}


async def _no_send(message: Message) -> None:
    """Starlette's own answer to another name says nothing of --allow-host, so ours is sent."""


async def _drain(receive: Receive) -> None:
    """Take what is on its way for a moment, so that the client comes to read the answer."""
    try:
        async with asyncio.timeout(0.2):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        pass
