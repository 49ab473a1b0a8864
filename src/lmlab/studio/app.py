"""The studio as an application: its page and its routes, and those of `lmlab serve` for the same runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from lmlab.serve.errors import add_errors, add_library_errors
from lmlab.serve.guard import Guard, Rules
from lmlab.studio import bundle, lecture, sets
from lmlab.studio import jobs as training_jobs
from lmlab.studio.held_out_access import HeldOutReader
from lmlab.studio.jobs import Jobs
from lmlab.studio.run_store import RunStore
from lmlab.studio.sets import Sets
from lmlab.studio.views import (
    attention,
    attribution,
    cells,
    examples,
    forward,
    generation,
    pictures,
    runs,
    scores,
    speech,
    vectors,
)
from lmlab.studio.workers import Workers

if TYPE_CHECKING:
    from lmlab.serve.served import Runs

STATIC = Path(__file__).with_name("static")
API = "/studio/api"
OLD_ROUTES = {
    **{"surprise": "surprisal", "pairs": "minimal-pairs", "why": "attribution", "mix": "layer-mix"},
    **{"works": "jobs", "works/command": "jobs/command", "works/stop": "jobs/stop"},
    **{"cells/fire": "cells/spans", "cells/follow": "cells/property"},
}
"""Routes that were renamed in version 0.6; the old ones redirect for one version."""
WARM_UP_AFTER, PAGE_TAKES = 2.0, 0.7
"""Seconds to wait for the page to be opened, and for its files to be sent."""
PAGE = (
    "default-src 'self'; img-src 'self' blob: data:; media-src blob:; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
"""What the page may load: its own files, images that it makes itself to save them, and recordings that are chosen."""


def make_studio(
    run_store: RunStore,
    jobs: Jobs,
    ready: Sets,
    held_out: HeldOutReader,
    *,
    talk: Path | None = None,
) -> APIRouter:
    """All routes of the studio, to be mounted on an application."""
    router = APIRouter(prefix=API)
    for view in (runs, generation, attention, attribution, forward, speech):
        router.include_router(view.make_router(run_store))
    for view in (cells, vectors, pictures):
        router.include_router(view.make_router(run_store, held_out))
    router.include_router(examples.make_router(held_out))
    router.include_router(scores.make_router(run_store, ready))
    router.include_router(sets.make_router(ready))
    router.include_router(lecture.make_router(run_store, talk))
    router.include_router(bundle.make_router())
    router.include_router(training_jobs.make_router(jobs))
    for old, new in OLD_ROUTES.items():
        router.add_api_route(f"/{old}", _redirect_to(f"{API}/{new}"), methods=["GET", "POST"])
    return router


def _redirect_to(address: str) -> Callable[[], Awaitable[Response]]:
    async def redirect() -> Response:
        return RedirectResponse(address, status_code=307)

    return redirect


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
    jobs: Jobs | None = None,
    workers: Workers | None = None,
) -> Guard:
    """The studio of the runs in a folder, behind the guard.

    Every request needs the `token`, unless it is None; with it, all runs can be read, and new ones trained on `texts`.
    `names` are further host names of the studio, `talk` is the file of a lecture, `data` are ready sets. Held-out text
    is read from the folder, the texts, the sets and the `allowed` folders. A caller that gives `jobs` and `workers` can
    close them in any case.
    """
    run_store = RunStore(folder)
    jobs = jobs or Jobs(run_store.folder, texts)
    workers = workers or Workers()
    seen, api = threading.Event(), LazyAPI(run_store, workers)
    held_out = HeldOutReader(run_store, [*(Path(text) for text in jobs.texts[1:]), *data, *allowed])

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=_warm_up, args=(seen, api), daemon=True).start()
        yield
        workers.close()
        await asyncio.to_thread(api.close)
        await asyncio.to_thread(jobs.close)

    app = FastAPI(title="lmlab studio", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.workers = workers
    ready = Sets(run_store.folder, data)
    app.include_router(make_studio(run_store, jobs, ready, held_out, talk=talk))
    app.mount("/studio/static", StaticFiles(directory=STATIC), name="static")
    add_errors(app)
    add_library_errors(app)

    @app.get("/")
    async def page() -> Response:
        seen.set()
        return FileResponse(STATIC / "index.html", headers={"content-security-policy": PAGE})

    @app.get("/health")
    async def health() -> Any:  # async, so it never waits for a thread
        return {"status": "ok"}

    app.mount("/", api)
    bodies = {f"{API}/speech": speech.MOST_BODY, f"{API}/pictures": pictures.MOST_BODY}
    rules = Rules(hosts=frozenset((host, *names)), token=token, bodies=bodies)
    return Guard(app, rules)


def _warm_up(seen: threading.Event, api: LazyAPI) -> None:
    """Import torch once the page is open, or soon if nobody opens it: importing slows other threads down."""
    if seen.wait(WARM_UP_AFTER):
        time.sleep(PAGE_TAKES)
    import lmlab.language_model  # noqa: F401

    api.make()


class LazyAPI:
    """The API of `lmlab serve` over a run store, made at the first request, because its imports are slow."""

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
                from lmlab.studio.serving import StoredRuns

                self._runs = StoredRuns(run_store=self.run_store, workers=self.workers, limits=Limits())
                self._app = make_api(self._runs)
            return self._app

    def close(self) -> None:
        """End all sequences of its engines."""
        if self._runs is not None:
            from lmlab.serve.app import close_runs

            close_runs(self._runs)
