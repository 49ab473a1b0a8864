"""The studio as an application: its page and its routes, beside those of `lmlab serve` for the same runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from lmlab.serve.errors import add_errors, add_library_errors
from lmlab.serve.guard import Guard, Rules
from lmlab.studio import (
    attention,
    bias,
    blanks,
    cells,
    curves,
    errors,
    lecture,
    mix,
    neighbours,
    next_words,
    pairs,
    predict,
    probes,
    runs,
    senses,
    sets,
    surprise,
    training,
    translate,
    why,
    writing,
)
from lmlab.studio.held_out import HeldOutReader
from lmlab.studio.jobs import Works
from lmlab.studio.run_store import RunStore
from lmlab.studio.sets import Sets
from lmlab.studio.workers import Workers

if TYPE_CHECKING:
    from lmlab.serve.served import Runs

STATIC = Path(__file__).with_name("static")
API = "/studio/api"
WARM_UP_AFTER, PAGE_TAKES = 2.0, 0.7
"""Seconds to wait for somebody to open the page, and that its files take."""
PAGE = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
"""What the page may load: its own files, and pictures that it made itself to save them."""


def make_studio(
    run_store: RunStore,
    works: Works,
    ready: Sets,
    held_out: HeldOutReader,
    *,
    talk: Path | None = None,
) -> APIRouter:
    """All routes of the studio, to be mounted on an application."""
    router = APIRouter(prefix=API)
    inside = (attention, why, probes, neighbours, mix, errors)
    for view in (runs, curves, next_words, surprise, writing, blanks, translate, predict, *inside):
        router.include_router(view.make_router(run_store))
    for view in (cells, senses):
        router.include_router(view.make_router(run_store, held_out))
    router.include_router(sets.make_router(ready))
    for view in (pairs, bias):
        router.include_router(view.make_router(run_store, ready))
    router.include_router(lecture.make_router(run_store, talk))
    router.include_router(training.make_router(works))
    return router


def make_app(
    folder: str | Path,
    *,
    token: str | None,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
    talk: Path | None = None,
    texts: Sequence[Path] = (),
    data: Sequence[Path] = (),
    allowed: Sequence[Path] = (),
    works: Works | None = None,
    workers: Workers | None = None,
) -> Guard:
    """The studio of the runs in a folder, behind the guard.

    Every request needs the `token`, unless it is None: who has it reads all runs, and trains new ones on the `texts`.
    `names` are further host names of the studio, `talk` is the file of a lecture, `data` are ready sets. Held-out text
    is read from the folder, the texts, the sets and what is `allowed` besides. Who gives `works` and `workers` can
    close them however the server ends.
    """
    run_store = RunStore(folder)
    works = works or Works(run_store.folder, texts)
    workers = workers or Workers()
    seen, api = threading.Event(), Later(run_store, workers)
    held_out = HeldOutReader(run_store, [*(Path(text) for text in works.texts[1:]), *data, *allowed])

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=_warm_up, args=(seen, api), daemon=True).start()
        yield
        workers.close()
        await asyncio.to_thread(api.close)
        await asyncio.to_thread(works.close)

    app = FastAPI(title="lmlab studio", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.workers = workers
    ready = Sets(run_store.folder, data)
    app.include_router(make_studio(run_store, works, ready, held_out, talk=talk))
    app.mount("/studio/static", StaticFiles(directory=STATIC), name="static")
    add_errors(app)
    add_library_errors(app)

    @app.get("/")
    async def page() -> Response:
        seen.set()
        return FileResponse(STATIC / "index.html", headers={"content-security-policy": PAGE})

    @app.get("/health")
    async def health() -> Any:  # needs no thread, so it never waits for one
        return {"status": "ok"}

    app.mount("/", api)
    return Guard(app, Rules(hosts=frozenset((host, *names)), token=token))


def _warm_up(seen: threading.Event, api: Later) -> None:
    """Import what models need once the page is there, or soon if nobody opens it: importing slows other threads."""
    if seen.wait(WARM_UP_AFTER):
        time.sleep(PAGE_TAKES)
    import lmlab.language_model  # noqa: F401

    api.make()


class Later:
    """The API of `lmlab serve` over a run store, made at the first request: what it needs is slow to import."""

    def __init__(self, run_store: RunStore, workers: Workers) -> None:
        self.run_store, self.workers, self._lock = run_store, workers, threading.Lock()
        self._app: FastAPI | None = None
        self._runs: Runs | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await asyncio.to_thread(self.make) if self._app is None else self._app
        await app(scope, receive, send)

    def make(self) -> FastAPI:
        with self._lock:
            if self._app is None:
                from lmlab.serve.app import make_api
                from lmlab.serve.served import Limits
                from lmlab.studio.serving import ShelvedRuns

                self._runs = ShelvedRuns(run_store=self.run_store, workers=self.workers, limits=Limits())
                self._app = make_api(self._runs)
            return self._app

    def close(self) -> None:
        """Cut off what its engines write."""
        if self._runs is not None:
            from lmlab.serve.app import close_runs

            close_runs(self._runs)
