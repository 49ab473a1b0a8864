"""The guard that `lmlab serve` and the studio share: the token, names of the server, links from other sites."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from serving import Running, connect, get, read_all
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from lmlab.serve.access_token import cookie_value, find_token, make_link
from lmlab.serve.guard import Guard, Rules, allowed_hosts

TOKEN = "sesame+open/8"
JSON = {"Content-Type": "application/json"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


async def page(request: Request) -> Response:
    return PlainTextResponse(f"page {request.url.query}")


async def asked(request: Request) -> Response:
    return PlainTextResponse((await request.body()).decode())


async def endless(request: Request) -> Response:
    async def numbers() -> AsyncIterator[str]:
        while True:
            yield "1\n"

    return StreamingResponse(numbers())


def client(**rules: Any) -> TestClient:
    """A browser at a small application behind the guard."""
    routes = [
        Route("/", page),
        Route("/health", page),
        Route("/v1/models", page),
        Route("/events", endless),
        Route("/v1/completions", asked, methods=["POST"]),
    ]
    guard: Any = Guard(Starlette(routes=routes), Rules(**rules))  # type: ignore[arg-type]
    return TestClient(guard, base_url="http://127.0.0.1:8080")


GOOD = [
    "localhost",
    "LOCALHOST:1",
    "127.0.0.1",
    "127.0.0.1:99",
    "[::1]",
    "[::1]:3",
    "[fd00::1]:8000",
    "lab.example.org",
]
BAD = [
    "",
    " ",
    "evil.example",
    "[::1]evil.com",
    "[::1]evil.com:8000",
    "[::1].evil.com",
    "[::1",
    "::1",
    "[]",
    "[::2]:80",
    "[fd00::2]",
    "localhost.evil.com",
    "127.0.0.1.evil.example",
    "evil.com:127.0.0.1",
    "127.0.0.1:80:80",
    "127.0.0.1:port",
    "127.0.0.1@evil.com",
    "evil.com@127.0.0.1",
    "localhost.",
    "localhost,evil.com",
    "localhost evil.com",
    "127.0.0.2",
    "2130706433",
    "*",
]


@pytest.mark.parametrize("given", ["fd00::1", "[fd00::1]"])
def test_only_its_own_names_are_answered(given: str) -> None:
    browser = client(hosts=frozenset((given, "Lab.Example.ORG")))
    for host in GOOD:
        assert browser.get("/v1/models", headers={"Host": host}).status_code == 200, host
    for host in BAD:
        refused = browser.get("/v1/models", headers={"Host": host})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "host_not_allowed"), host


@pytest.mark.parametrize("name", ["http://lab.example.org", "lab.example.org:8000", "", "*", "a*b", "x/y"])
def test_a_name_that_no_host_header_has_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ValueError, match="--allow-host"):
        allowed_hosts([name])


def exchange(server: Running, text: str) -> bytes:
    with connect(server) as connection:
        connection.sendall(text.encode("latin-1"))
        return read_all(connection)


def test_hosts_and_paths_on_the_wire(server: Running) -> None:
    for line, host in [
        ("GET /v1/models HTTP/1.1", "Host: [::1]evil.com\r\n"),
        ("GET /v1/models HTTP/1.1", "Host: \r\n"),
        ("GET /v1/models HTTP/1.1", ""),
        ("GET /v1/models HTTP/1.0", ""),
        ("GET /v1/models HTTP/1.1", "Host: localhost\r\nHost: localhost\r\n"),
        ("GET http://localhost/v1/models HTTP/1.1", "Host: localhost\r\n"),
        ("GET http://evil.com/v1/models HTTP/1.1", "Host: localhost\r\n"),
        ("OPTIONS * HTTP/1.1", "Host: localhost\r\n"),
    ]:
        answer = exchange(server, f"{line}\r\n{host}Connection: close\r\n\r\n")
        assert re.match(rb"HTTP/1.1 40[03]", answer), (line, host, answer)
    good = exchange(server, "GET /v1/models HTTP/1.1\r\nHost: [::1]:8000\r\nConnection: close\r\n\r\n")
    assert good.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("order", ["length first", "encoding first"])
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_two_ways_to_tell_where_a_body_ends_are_refused(server: Running, order: str, method: str) -> None:
    """What comes after it on the connection is not taken for a request."""
    both = ["Content-Length: 4", "Transfer-Encoding: chunked"][:: 1 if order == "length first" else -1]
    head = [f"{method} /v1/completions HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *both]
    smuggled = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answer = exchange(server, "\r\n".join([*head, "", "0\r\n\r\n"]) + smuggled)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in answer.lower()
    assert answer.count(b"HTTP/1.1") == 1


def test_a_link_on_another_site_opens_the_page_and_nothing_else() -> None:
    browser = client()
    assert browser.get("/", headers=LINK).status_code == 200
    assert browser.get("/", headers={**LINK, "Sec-Fetch-Site": "same-site"}).status_code == 200
    assert browser.head("/", headers=LINK).status_code == 200
    for path, changed in [
        ("/v1/models", {}),
        ("/health", {}),
        ("/", {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}),
        ("/", {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}),
        ("/", {"Sec-Fetch-Dest": "iframe"}),
        ("/", {"Sec-Fetch-Dest": "embed"}),
        ("/", {"Sec-Fetch-Dest": ""}),
        ("/", {"Sec-Fetch-Mode": ""}),
        ("/", {"Origin": "https://evil.example"}),
        ("/", {"Origin": "null"}),
    ]:
        refused = browser.get(path, headers={**LINK, **changed})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin_not_allowed"), (path, changed)
    for site in ("cross-site", "same-site", "odd"):
        assert browser.get("/v1/models", headers={"Sec-Fetch-Site": site}).status_code == 403
        assert browser.post("/v1/completions", headers={**JSON, **LINK, "Sec-Fetch-Site": site}).status_code == 403
        assert browser.post("/", headers={**JSON, **LINK, "Sec-Fetch-Site": site}).status_code == 403
    for site in ("none", "same-origin"):
        assert browser.get("/v1/models", headers={"Sec-Fetch-Site": site}).status_code == 200


def test_everything_but_health_needs_the_token() -> None:
    browser = client(token=TOKEN)
    assert browser.get("/health").status_code == 200
    for path in ("/", "/v1/models", "/nothing"):
        for wrong in (
            {},
            {"Authorization": "Bearer sesame"},
            {"Authorization": TOKEN},
            {"Cookie": f"lmlab-8080={TOKEN}"},
        ):
            assert browser.get(path, headers=wrong).status_code == 401, (path, wrong)
    assert browser.get("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert browser.get("/v1/models", auth=("anyone", TOKEN)).status_code == 200
    assert browser.get("/v1/models", params={"token": TOKEN}).status_code == 401, "only a page takes it from a link"
    seen = browser.get("/", headers={"Accept": "text/html,*/*"})
    assert seen.headers["content-type"].startswith("text/plain")
    assert "the link that was printed" in seen.text
    assert seen.headers["www-authenticate"].startswith("Basic"), "a browser asks for it"
    assert browser.get("/v1/models").headers["www-authenticate"].startswith("Bearer"), "and a page's script does not"


def test_the_link_with_the_token_signs_a_browser_in() -> None:
    browser = client(token=TOKEN)
    link = make_link("http://127.0.0.1:8080", TOKEN)
    assert TOKEN not in link, "its signs are quoted"
    first = browser.get(f"{link}&lang=en", headers=LINK, follow_redirects=False)
    assert (first.status_code, first.headers["location"]) == (303, "/?lang=en")
    cookie = first.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert browser.get("/", params={"lang": "en"}).text == "page lang=en"
    assert browser.get("/v1/models").status_code == 200, "and all else with the cookie"
    assert browser.post("/v1/completions", headers=JSON, content="{}").status_code == 200
    assert browser.post("/v1/completions", headers={**JSON, "Origin": "https://evil.example"}).status_code == 403
    other = client(token="another-token")
    assert other.get("/v1/models", headers={"Cookie": cookie.split(";")[0]}).status_code == 401
    wrong = other.get(link, follow_redirects=False)
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    port = client(token=TOKEN).get("/v1/models", headers={"Host": "localhost:9", "Cookie": cookie.split(";")[0]})
    assert port.status_code == 401, "a cookie is for one port"
    assert client().get("/", params={"token": "any"}).status_code == 200, "without a token, a query is a query"


def test_cookies_of_other_servers_stand_beside_it() -> None:
    own = f"lmlab-8080={cookie_value(TOKEN)}"
    browser = client(token=TOKEN)
    for cookie in (own, f"a=b; {own}", f"{own};c", f"lmlab-8081=x; {own}", f"lmlab-8080=old; {own}"):
        assert browser.get("/v1/models", headers={"Cookie": cookie}).status_code == 200, cookie
    for cookie in ("", "lmlab-8080", "lmlab-8080=", own[:-1], f"x{own}", "=;;="):
        assert browser.get("/v1/models", headers={"Cookie": cookie}).status_code == 401, cookie


def test_head_is_get_without_content(server: Running) -> None:
    browser = client()
    for path in ("/", "/v1/models", "/nothing"):
        whole, head = browser.get(path), browser.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]
    assert browser.head("/events").content == b"", "a stream without an end has one"
    assert browser.head("/v1/completions").status_code == browser.get("/v1/completions").status_code == 405
    for path in ("/health", "/v1/models", "/metrics", "/", "/openapi.json"):
        text = exchange(server, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, content = text.partition(b"\r\n\r\n")
        assert (head.split()[1], content) == (b"200", b""), path
        assert int(re.search(rb"content-length: (\d+)", head.lower())[1]) > 0  # type: ignore[index]
    assert get(f"{server.address}/health").status_code == 200


# Where the token is read from


@pytest.fixture
def no_variable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("LMLAB_TOKEN", raising=False)
    return monkeypatch


def write(path: Path, content: str, *, mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path, no_variable: pytest.MonkeyPatch) -> None:
    assert find_token() is None
    no_variable.setenv("LMLAB_TOKEN", "from-variable")
    assert find_token() == "from-variable"
    assert find_token(file=write(tmp_path / "token", "from-a-file\n")) == "from-a-file"
    with pytest.warns(UserWarning, match="ps.*LMLAB_TOKEN or use --token-file"):
        assert find_token(option="from-option") == "from-option"
    with pytest.raises(ValueError, match="both given"):
        find_token(option="from-option", file=tmp_path / "token")


@pytest.mark.skipif(os.name != "posix", reason="permissions of files are those of POSIX")
def test_a_token_file_is_a_private_regular_file(tmp_path: Path, no_variable: pytest.MonkeyPatch) -> None:
    for mode in (0o640, 0o604, 0o644, 0o660):
        with pytest.warns(UserWarning, match="chmod 600"):
            assert find_token(file=write(tmp_path / "open", "from-a-file", mode=mode)) == "from-a-file"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        with pytest.raises(ValueError, match="not a regular file"):
            find_token(file=tmp_path / name)
    with pytest.raises(OSError, match="directory"):
        find_token(file=tmp_path)
    with pytest.raises(OSError, match="No such file"):
        find_token(file=tmp_path / "none")


@pytest.mark.parametrize(
    "token", ["", "short", "has a space", "tab\tinside", "né-est-pas", "x" * 201, "esc\x1b[31mred"]
)
def test_a_token_that_cannot_be_sent_is_refused(tmp_path: Path, no_variable: pytest.MonkeyPatch, token: str) -> None:
    with pytest.raises(ValueError, match="8 to 200 letters"):
        find_token(file=write(tmp_path / "token", token))
    no_variable.setenv("LMLAB_TOKEN", token)
    with pytest.raises(ValueError, match="LMLAB_TOKEN"):
        find_token()
