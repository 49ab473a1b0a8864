"""Who may ask, from where, how much and how slowly."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from serving import Running, connect, get, post, read_all, read_until, serving

from lmlab.serve import http_protocol
from lmlab.serve.guard import Rules, is_loopback
from patience import PATIENCE, wait_until

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def locked(models: Any) -> Iterator[Running]:
    rules = Rules(token="sesame-open", body=4096, patience=PATIENCE)
    with serving({"ngram": models["ngram"]}, rules=rules) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(models: Any) -> Iterator[Running]:
    with serving({"ngram": models["ngram"]}, rules=Rules(patience=0.1)) as running:
        yield running


def paths(running: Running, headers: dict[str, str] | None = None) -> list[tuple[str, str]]:
    """Every route that there is."""
    app: Any = get(f"{running.address}/openapi.json", headers=headers).json()
    listed = [(method.upper(), path) for path, methods in app["paths"].items() for method in methods]
    return [*listed, ("GET", "/"), ("GET", "/openapi.json"), ("GET", "/docs")]


def test_every_route_but_health_needs_the_token(locked: Running) -> None:
    assert get(f"{locked.address}/health").status_code == 200
    right = {"Authorization": "Bearer sesame-open"}
    for method, path in paths(locked, right):
        if path == "/health":
            continue
        for wrong in ({}, {"Authorization": "Bearer sesame-opem"}, {"Authorization": "Basic ????"}, {"X": "y"}):
            answer = httpx.request(method, locked.address + path, timeout=PATIENCE, headers={**JSON, **wrong})
            assert answer.status_code == 401, (method, path)
            assert answer.json()["error"]["code"] == "invalid_api_key"
        assert (
            httpx.request(method, locked.address + path, timeout=PATIENCE, headers={**JSON, **right}).status_code != 401
        )
    assert get(f"{locked.address}/v1/models", auth=("anyone", "sesame-open")).status_code == 200


def test_other_sites_are_refused(server: Running) -> None:
    body = json.dumps({"model": "ngram", "prompt": "a", "max_tokens": 1})
    url = f"{server.address}/v1/completions"
    for headers in (
        {**JSON, "Origin": "https://evil.example"},
        {**JSON, "Origin": "null"},
        {**JSON, "Origin": "http://127.0.0.1:1"},
        {**JSON, "Origin": "http://[::1"},
        {**JSON, "Sec-Fetch-Site": "cross-site"},
    ):
        assert post(url, content=body, headers=headers).status_code == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert post(url, content=body, headers={"Content-Type": kind}).status_code == 415
    assert post(url, content=body, headers={**JSON, "Origin": server.address}).status_code == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_read(locked: Running) -> None:
    right = {**JSON, "Authorization": "Bearer sesame-open"}
    url = f"{locked.address}/v1/completions"
    assert post(url, content=b"x" * 5000, headers=right).status_code == 413
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(20_000):
            sent += 65536
            yield b" " * 65536

    try:
        answer = post(url, content=endless(), headers=right)
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # the connection was closed while we still sent
    assert sent < 20_000 * 65536
    with connect(locked) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sesame-open\r\n"
        connection.sendall((head + f"Content-Type: application/json\r\nContent-Length: {10**9}\r\n\r\n").encode())
        assert read_all(connection).startswith(b"HTTP/1.1 413")


def test_half_sent_heads_are_dropped(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADERS_WITHIN", 0.1)
    with connect(server) as connection:
        with suppress(ConnectionError):  # it may be dropped before anything is sent
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127")
        assert read_all(connection) == b""


def test_half_sent_bodies_are_refused(hasty: Running) -> None:
    with connect(hasty) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        assert read_all(connection).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("when", ["with the request before it", "after the answer"])
def test_a_later_request_that_is_half_sent_is_dropped_too(
    server: Running, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    whole, half = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: 127"
    with connect(server) as connection:
        connection.sendall(whole)
        answer = read_until(connection, b"}")
        for name in ("HEADERS_WITHIN", "NEXT_WITHIN"):  # only now: the first head had all the time it needs
            monkeypatch.setattr(http_protocol, name, 0.1)
        connection.sendall(half if when == "after the answer" else whole + half)
        answer += read_all(connection)
    assert answer.count(b"HTTP/1.1 200") == (1 if when == "after the answer" else 2)


def test_an_idle_connection_is_dropped(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "NEXT_WITHIN", 0.1)
    with connect(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_the_end_of_an_answer_is_dropped(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left fits into the buffer of the connection, so that nothing waits to be written; closing would wait."""
    monkeypatch.setattr(http_protocol, "NEXT_WITHIN", 0.2)
    held: list[Any] = []
    begun = http_protocol.TimeLimits.connection_made
    monkeypatch.setattr(
        http_protocol.TimeLimits, "connection_made", lambda self, made: (held.append(made), begun(self, made))
    )
    head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with slow_reader(server) as connection:
        for last in (b"\r\n", b"Connection: close\r\n\r\n"):
            with suppress(ConnectionError):
                connection.sendall((head + b"\r\n") * 60 + head + last)
        wait_until(lambda: held and held[0].get_extra_info("socket").fileno() == -1)


def slow_reader(server: Running) -> socket.socket:
    """A connection whose own buffer is small, so that the server's fills up."""
    parts = urlsplit(server.address)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE)
    connection.connect((parts.hostname, parts.port))
    return connection


def test_a_client_that_never_reads_is_dropped(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "READ_WITHIN", 0.2)
    body = json.dumps({"model": "ngram", "prompt": "x" * 10**6}).encode()
    head = "POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    request = (head + f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body
    count = 12  # their answers are more than the buffers of the machine hold
    with slow_reader(server) as connection, pytest.raises(ConnectionError):
        connection.sendall(request * count)


MALFORMED = [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"prompt": NaN}', b'{"temperature": Infinity}', b"1e999"]


@pytest.mark.parametrize("content", MALFORMED, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/fill", "/tokenize"])
def test_what_is_no_request_is_refused_in_words(server: Running, path: str, content: bytes) -> None:
    answer = post(server.address + path, content=content, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_deep_and_long_json(server: Running) -> None:
    for content in (
        b"[" * 100_000,
        b'{"prompt":' * 100_000,
        b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"seed":' + b"9" * 100_000 + b"}",
        b'{"prompt":[' + b'"a",' * 100_000 + b"1]}",
        b'{"prompt":[' + b"-1," * 100_000 + b"1]}",
    ):
        answer = post(f"{server.address}/v1/completions", content=content, headers=JSON)
        assert answer.status_code == 400, content[:20]


def test_paths_lead_nowhere(server: Running) -> None:
    tricks = [
        "../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..\\..\\x",
        "/etc/passwd",
        "~root",
    ]
    tricks += ["~root", "%00", "a%00b", "....//etc", "C:%5cx", "%c0%ae%c0%ae/", "a" * 5000, "%ff", "?model=../x"]
    for prefix in ("/", "/static/", "/v1/models/", "/static/../"):
        for trick in tricks:
            with connect(server) as connection:
                path = (prefix + trick).replace(" ", "%20")
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = read_all(connection)
            status = int(re.match(rb"HTTP/1.1 (\d+)", answer)[1])  # type: ignore[index]
            assert status in (400, 404) or trick.startswith("?"), (prefix, trick, status)
            assert b"root:" not in answer


def test_answers_tell_browsers_to_load_nothing_from_elsewhere(server: Running) -> None:
    for path in ("/", "/v1/models", "/nothing", "/openapi.json"):
        headers = get(server.address + path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
    page = get(server.address + "/").text
    assert not re.search(r"https?://|<script(?! src=\"/static/)|<style|style=|\son\w+=", page)


def test_which_addresses_are_this_machine_alone() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "127.9.9.9")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.2", "example.org", "")))
