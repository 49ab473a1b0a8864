"""Nobody but our own page asks, nothing outside the folder is read, and no page loads anything from elsewhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from lmlab.studio.app import STATIC
from studio_texts import KNOWS, TOKEN

SECRET = "the secret of the test"


@pytest.fixture(scope="module")
def client(client_of: Callable[..., Any]) -> Any:
    return client_of()


def encodings(target: str) -> list[str]:
    """Ways to write a path that leads out of a folder."""
    ups = [
        "..",
        "%2e%2e",
        "%2e.",
        ".%2e",
        "%252e%252e",
        "..;",
        "%c0%ae%c0%ae",
        "．．",
        "..%00",
        "%uff0e%uff0e",
        "....//"[:4],
    ]
    slashes = ["/", "%2f", "%5c", "\\", "%252f", "//", "%c0%af", "/./"]
    found = [slash.join([up] * depth + [target]) for up in ups for slash in slashes for depth in (1, 2, 4)]
    found += [
        f"/{target}",
        f"file://{target}",
        f"demo/lstm/../../{target}",
        f"~/{target}",
        f"{target}\x00",
        f"demo/{target}",
    ]
    return found


def get_raw(app: Any, path: str, query: str) -> tuple[int, str]:
    """Ask the application as a server would that was given this very path: clients would tidy it."""
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode("utf-8", "replace"),
        "headers": [(b"host", b"127.0.0.1:8080"), (b"authorization", KNOWS["authorization"].encode())],
        "root_path": "",
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], body.decode("utf-8", "replace")


def test_no_path_outside_the_folder_is_read(client: Any, studio_runs: Path) -> None:
    outside = studio_runs.parent / "secret"
    outside.mkdir(exist_ok=True)
    (outside / "config.json").write_text('{"kind": "lstm", "model": {"secret": "' + SECRET + '"}}')
    (outside / "README.md").write_text(SECRET)
    tried = encodings("secret") + encodings("secret/README.md")
    assert len(set(tried)) >= 200
    for name in tried:
        for path, query in (
            (f"/studio/static/{name}", ""),
            (f"/studio/static/views/{name}", ""),
            ("/studio/api/run", f"run={quote(name, safe='')}"),
            ("/studio/api/run", f"run={quote(name, safe='%/.')}"),
            ("/studio/api/curves", f"run={quote(name, safe='')}"),
            (f"/studio/api/{name}", ""),
        ):
            status, text = get_raw(client.app, path, query)
            assert SECRET not in text, path
            assert status in (400, 404), (path, query)
    for name in tried[:40]:
        response = client.post("/studio/api/next", json={"runs": [name], "text": "a"})
        assert response.status_code == 400
        assert SECRET not in response.text


def test_links_that_lead_out_of_the_folder_are_not_followed(client: Any, studio_runs: Path) -> None:
    outside = studio_runs.parent / "linked"
    outside.mkdir(exist_ok=True)
    (outside / "config.json").write_text('{"kind": "lstm", "model": {}}')
    link = studio_runs / "way-out"
    link.symlink_to(outside)
    try:
        assert "way-out" not in [run["name"] for run in client.get("/studio/api/runs").json()["runs"]]
    finally:
        link.unlink()


def test_files_of_a_run_that_lead_out_of_it_are_not_read(client: Any, studio_runs: Path) -> None:
    (studio_runs.parent / "secret.md").write_text(SECRET)
    run = studio_runs / "linking"
    run.mkdir()
    (run / "config.json").write_text('{"kind": "lstm", "model": {}}')
    (run / "README.md").symlink_to(studio_runs.parent / "secret.md")
    try:
        reported = client.get("/studio/api/run", params={"run": "linking"})
        assert reported.status_code == 200
        assert SECRET not in reported.text
    finally:
        for file in run.iterdir():
            file.unlink()
        run.rmdir()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1:8080", ""])
def test_another_host_is_refused(client: Any, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "http://localhost.evil"])
def test_a_page_of_another_site_is_refused(client: Any, origin: str) -> None:
    body = {"runs": ["counts"], "text": "a"}
    assert client.post("/studio/api/next", json=body, headers={"origin": origin}).status_code == 403
    own = client.post("/studio/api/next", json=body, headers={"origin": "http://127.0.0.1:8080"})
    assert own.status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_everything_needs_the_token(client_of: Callable[..., Any], host: str) -> None:
    client = client_of(host=host, knows={})
    pages = ("/", "/studio/static/main.js", "/studio/api/runs", "/studio/api/jobs", "/studio/api/run?run=counts")
    for path in (*pages, "/v1/models", "/metrics", "/openapi.json", "/studio/api/curves?run=counts", "/nowhere"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"authorization": "Bearer wrong"}).status_code == 401
        if path != "/":
            assert client.get(f"{path}{'&' if '?' in path else '?'}token={TOKEN}").status_code == 401
    for path in pages:
        assert client.get(path, headers=KNOWS).status_code == 200
        assert client.get(path, auth=("", TOKEN)).status_code == 200  # what a browser asks its user for
    for route, body in (
        ("/studio/api/next", {"runs": ["counts"], "text": "a"}),
        ("/studio/api/senses", {"runs": ["counts"], "word": "cat"}),
        ("/v1/completions", {"model": "counts", "prompt": "a"}),
        ("/tokenize", {"model": "counts", "prompt": "a"}),
    ):
        assert client.post(route, json=body).status_code == 401
    assert client.get("/health").json() == {"status": "ok"}


def test_the_link_signs_a_browser_in(client_of: Callable[..., Any]) -> None:
    client = client_of(knows={})
    first = client.get("/", params={"token": TOKEN}, follow_redirects=False)
    assert (first.status_code, first.headers["location"]) == (303, "/")
    assert TOKEN not in first.headers["set-cookie"]
    assert client.get("/").status_code == 200
    assert client.get("/studio/api/runs").status_code == 200
    assert client.post("/studio/api/next", json={"runs": ["counts"], "text": "a"}).status_code == 200
    other = client_of(knows={}, token="another-token")
    other.cookies = client.cookies
    assert other.get("/studio/api/runs").status_code == 401


def test_without_a_token_all_is_open_because_the_owner_said_so(client_of: Callable[..., Any]) -> None:
    client = client_of(knows={}, token=None)
    assert client.get("/studio/api/runs").status_code == 200
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403


LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def test_a_link_on_another_site_opens_the_page_and_nothing_else(client_of: Callable[..., Any]) -> None:
    client = client_of()
    assert client.get("/", headers=LINK).status_code == 200
    for path in ("/studio/api/runs", "/studio/api/run?run=counts", "/v1/models", "/studio/static/main.js"):
        assert client.get(path, headers=LINK).status_code == 403
    for change in ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors"}, {"sec-fetch-dest": "image"}):
        assert client.get("/", headers={**LINK, **change}).status_code == 403
    body = {"name": "new"}
    assert client.post("/studio/api/jobs", json=body, headers=LINK).status_code == 403
    assert client_of(knows={}).get("/", headers=LINK).status_code == 401


def test_further_names_are_those_that_are_given(client_of: Callable[..., Any]) -> None:
    client = client_of(names=["Lab.example.org"])
    assert client.get("/", headers={"host": "lab.example.org:8080"}).status_code == 200
    assert client.get("/", headers={"host": "other.example.org"}).status_code == 403


def test_a_large_request_is_refused_before_it_is_read(client: Any) -> None:
    json = {"content-type": "application/json"}
    assert client.post("/studio/api/next", content=b"x" * (2 << 20), headers=json).status_code == 413
    deep = "[" * 100_000
    response = client.post("/studio/api/next", content=deep, headers={"content-type": "application/json"})
    assert response.status_code == 400


def test_every_answer_says_what_a_page_may_load(client: Any) -> None:
    for path in ("/", "/studio/static/main.js", "/studio/api/runs", "/nowhere", "/studio/api/run?run=nowhere"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_no_page_names_another_host_or_parses_strings_as_html() -> None:
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}  # of XML, from which nothing is loaded
    for path in STATIC.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - names
        assert addresses == set(), path.name
        if path.suffix == ".js":
            assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path.name
        if path.suffix == ".html":
            assert not re.search(r"\son\w+=|style=|<style|<script(?![^>]*src=)", text), path.name


def test_the_studio_has_the_colours_of_the_pages() -> None:
    from lmlab.pages.page import house_style

    style = (STATIC / "studio.css").read_text(encoding="utf-8")
    rule = re.compile(r"--(paper|card|ink|soft|line|track|accent): (#\w+)")
    assert rule.findall(style) == rule.findall(house_style())


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _contrast(a: str, b: str) -> float:
    """The contrast ratio of WCAG 2.2."""
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


ROOTS = re.compile(r":root \{(.*?)\}", re.DOTALL)


def test_colours_have_contrast_in_light_and_in_dark() -> None:
    style = (STATIC / "studio.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in ROOTS.findall(style)[:2])
    for colours in (light, light | dark):
        for name in (*(f"c{number}" for number in range(10)), "accent", "edge"):
            assert _contrast(colours[name], colours["card"]) >= 3, name
        for name in ("ink", "soft", "wrong"):
            assert _contrast(colours[name], colours["card"]) >= 4.5, name
