"""Heavy requests share one limit, end with their client, and never keep /health waiting."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import select
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from lmlab.analysis.cells.properties import matches
from lmlab.progress import CancelledError, cancellable, check_cancelled
from lmlab.serve.errors import APIError, DisconnectedError
from lmlab.studio.app import API, OLD_ROUTES, make_app
from lmlab.studio.workers import MOST_WORKING, HeavyRoute, Workers
from patience import PATIENCE, wait_until
from studio_process import open_studio
from studio_texts import KNOWS, TOKEN

ENDLESS = {"run": "counts", "property": "pattern", "pattern": "(a+)+b", "text": "a" * 5000}
LIGHT = {"/jobs", "/jobs/command", "/jobs/stop", "/note", *(f"/{old}" for old in OLD_ROUTES)}


def all_routes(app: Any) -> list[Any]:
    """All routes of an application, those of routers in it included."""
    found = []
    for route in getattr(app, "routes", ()):
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        found += all_routes(inner) if getattr(inner, "routes", None) else [route]
    return found


def test_every_view_passes_the_limit(tmp_path: Path) -> None:
    guard: Any = make_app(tmp_path, token=TOKEN)
    posts = [route for route in all_routes(guard.app) if "POST" in (getattr(route, "methods", None) or ())]
    views = [route for route in posts if route.path.removeprefix(API) not in LIGHT]
    assert {"/errors", "/senses", "/cells", "/cells/property", "/layer-mix", "/bias/set"} <= {
        route.path.removeprefix(API) for route in views
    }
    assert [route.path for route in views if not isinstance(route, HeavyRoute)] == []
    client = TestClient(guard, base_url="http://127.0.0.1:8080", headers=KNOWS)
    for old, new in OLD_ROUTES.items():  # these do no work: they name the route that does it
        response = client.post(f"{API}/{old}", json={}, follow_redirects=False)
        assert (response.status_code, response.headers["location"]) == (307, f"{API}/{new}")


def test_a_limited_number_works_and_waits_and_others_are_refused() -> None:
    workers, let_go = Workers(working=2, waiting=3), asyncio.Event()
    began: list[int] = []

    async def work(number: int) -> int:
        began.append(number)
        await let_go.wait()
        return number

    async def ask(number: int) -> int:
        return await workers.run(lambda: work(number), gone=asyncio.Event().wait())

    async def scene() -> list[Any]:
        asked = [asyncio.ensure_future(ask(number)) for number in range(7)]
        while len(began) < 2 or not all(each.done() for each in asked[5:]):
            await asyncio.sleep(0)
        assert began == [0, 1]
        assert not any(each.done() for each in asked[:5])
        let_go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(scene())
    assert found[:5] == [0, 1, 2, 3, 4]
    assert all(isinstance(each, APIError) and each.status == 503 for each in found[5:])
    assert began == [0, 1, 2, 3, 4]
    assert workers._free == 2


def test_a_client_that_is_gone_gives_its_place_up_and_its_work_is_cancelled() -> None:
    workers = Workers(working=1, waiting=5)
    ended, loops = threading.Event(), 0

    def loop() -> None:
        nonlocal loops
        try:
            while True:
                check_cancelled()
                loops += 1
        except CancelledError:
            ended.set()
            raise

    async def scene() -> None:
        leaves, waits_no_more = asyncio.Event(), asyncio.Event()
        first = asyncio.ensure_future(workers.run(lambda: asyncio.to_thread(loop), gone=leaves.wait()))
        while not loops:
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(workers.run(lambda: asyncio.to_thread(loop), gone=waits_no_more.wait()))
        await asyncio.sleep(0)
        waits_no_more.set()
        with pytest.raises(DisconnectedError):
            await second
        assert not ended.is_set()
        leaves.set()
        with pytest.raises(DisconnectedError):
            await first
        third = await workers.run(lambda: asyncio.sleep(0, "done"), gone=asyncio.Event().wait())
        assert third == "done"
        assert ended.is_set()  # the third had to wait for it

    asyncio.run(scene())
    assert workers._free == 1


def test_closing_cancels_what_is_worked_on() -> None:
    workers = Workers()

    def loop() -> None:
        while True:
            check_cancelled()

    async def scene() -> None:
        working = asyncio.ensure_future(workers.run(lambda: asyncio.to_thread(loop), gone=asyncio.Event().wait()))
        while not workers._flags:
            await asyncio.sleep(0)
        workers.close()
        with pytest.raises(DisconnectedError):
            await working

    asyncio.run(scene())


def test_the_process_of_a_pattern_ends_when_the_work_is_cancelled() -> None:
    find, cancelled = matches("(a+)+b", within=PATIENCE), threading.Event()
    wrong: list[BaseException] = []

    def search() -> None:
        with cancellable(cancelled.is_set):
            try:
                find("a" * 5000)
            except BaseException as error:
                wrong.append(error)

    thread = threading.Thread(target=search)
    thread.start()
    wait_until(lambda: children(os.getpid()))
    cancelled.set()
    thread.join(PATIENCE)
    assert isinstance(wrong[0], CancelledError)
    assert children(os.getpid()) == []


@pytest.mark.parametrize(
    ("run", "look"),
    [
        ("demo/gpt2", lambda model: model.generate("The", tokens=5)),
        ("demo/gpt2", lambda model: model.generate("The", tokens=5, beams=2)),
        ("demo/lstm", lambda model: model.score("The cat sat")),
        ("bert", lambda model: model.score("The cat sat")),
        ("bert", lambda model: model.fill("The [MASK] sat")),
        ("bert", lambda model: model.embed("The cat sat")),
        ("en-de", lambda model: model.translate("somebody saw")),
    ],
)
def test_models_stop_before_their_next_batch(studio_runs: Path, run: str, look: Any) -> None:
    import lmlab

    model = lmlab.load(studio_runs / run)
    with cancellable(lambda: True), pytest.raises(CancelledError):
        look(model)


def children(pid: int) -> list[int]:
    """The processes that search for a pattern, of a process and its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread or a child that ended meanwhile
            for child in (task / "children").read_text().split():
                if "finditer" in Path(f"/proc/{child}/cmdline").read_text():
                    found.append(int(child))
    return found


def answered(asked: list[http.client.HTTPConnection]) -> list[http.client.HTTPConnection]:
    """The connections on which an answer waits to be read."""
    ready, _, _ = select.select([each.sock for each in asked], [], [], 0)
    return [each for each in asked if each.sock in ready]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are counted in /proc")
def test_health_answers_beside_sixty_endless_patterns(studio_runs: Path) -> None:
    with open_studio(studio_runs) as studio:
        where = urlsplit(studio.address).netloc
        headers = {"content-type": "application/json", **KNOWS}

        def ask(method: str, path: str, body: Any = None) -> http.client.HTTPConnection:
            asked = http.client.HTTPConnection(where, timeout=PATIENCE)
            asked.request(method, path, None if body is None else json.dumps(body), headers)
            return asked

        assert ask("POST", f"{API}/next", {"runs": ["counts"], "text": "a"}).getresponse().status == 200  # it is loaded
        many = [ask("POST", f"{API}/cells/property", ENDLESS) for _ in range(60)]
        wait_until(lambda: len(children(studio.process.pid)) == MOST_WORKING)
        statuses, most = [], 0
        for _ in range(20):
            statuses.append(ask("GET", "/health").getresponse().status)
            most = max(most, len(children(studio.process.pid)))
        assert statuses == [200] * 20
        assert most <= MOST_WORKING
        wait_until(lambda: answered(many))
        assert 503 in [each.getresponse().status for each in answered(many)]
        assert ask("GET", f"{API}/runs").getresponse().status == 200
        for each in many:
            each.close()
        wait_until(lambda: not children(studio.process.pid))  # in its own time each would go on for ten seconds
        assert ask("POST", f"{API}/next", {"runs": ["counts"], "text": "a"}).getresponse().status == 200
