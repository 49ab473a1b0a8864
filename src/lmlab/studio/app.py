"""The studio as an application: its routes, its page, and what it says when something is wrong."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from lmlab.serve.errors import APIError
from lmlab.serve.guard import LOOPBACK, Guard, Rules, is_loopback
from lmlab.studio import (
    attention,
    blanks,
    cells,
    curves,
    lecture,
    mix,
    next_words,
    pairs,
    predict,
    probes,
    runs,
    senses,
    surprise,
    training,
    translate,
    why,
    writing,
)
from lmlab.studio.shelf import Shelf
from lmlab.studio.works import Works

STATIC = Path(__file__).with_name("static")
API = "/studio/api"
WARM_UP_AFTER, PAGE_TAKES = 2.0, 0.7
"""Seconds to wait for somebody to open the page, and that its files take."""
PAGE = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
"""What the page may load: its own files, and pictures that it made itself to save them."""


def make_studio(shelf: Shelf, works: Works, *, token: str | None = None, talk: Path | None = None) -> APIRouter:
    """All routes of the studio, to be mounted on an application; `token` is what starting and stopping needs."""
    router = APIRouter(prefix=API)
    inside = (attention, cells, why, senses, probes, pairs, mix)
    for view in (runs, curves, next_words, surprise, writing, blanks, translate, predict, *inside):
        router.include_router(view.make_router(shelf))
    router.include_router(lecture.make_router(shelf, talk))
    router.include_router(training.make_router(works, token=token))
    return router


def make_app(
    folder: str | Path,
    *,
    token: str,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
    talk: Path | None = None,
    texts: Sequence[Path] = (),
    works: Works | None = None,
) -> Guard:
    """The studio of the runs in a folder, behind the guard.

    The `token` lets its holder start training on one of the `texts`; off this machine nothing goes without it. `names`
    are further ones under which it may be asked, `talk` is the file of a lecture. Who gives `works` can close them
    however the server ends.
    """
    shelf, guarded = Shelf(folder), not is_loopback(host)
    works = works or Works(shelf.folder, texts)
    seen = threading.Event()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=_warm_up, args=(seen,), daemon=True).start()
        yield
        await asyncio.to_thread(works.close)

    app = FastAPI(title="lmlab studio", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.include_router(make_studio(shelf, works, token=None if guarded else token, talk=talk))
    app.mount("/studio/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/")
    def page() -> Response:
        seen.set()
        return FileResponse(STATIC / "index.html", headers={"content-security-policy": PAGE})

    @app.get("/health")
    def health() -> Any:
        return {"status": "ok"}

    add_errors(app)
    hosts = frozenset((*LOOPBACK, host.lower(), *(name.lower() for name in names)))
    return Guard(app, Rules(hosts=hosts, token=token if guarded else None))


def _warm_up(seen: threading.Event) -> None:
    """Import what models need once the page is there, or soon if nobody opens it: importing slows other threads."""
    if seen.wait(WARM_UP_AFTER):
        time.sleep(PAGE_TAKES)
    import lmlab.language_model  # noqa: F401


def add_errors(app: FastAPI) -> None:
    """A ValueError is what the user can mend: one line, as on the command line."""

    @app.exception_handler(ValueError)
    async def wrong(request: Request, error: ValueError) -> Response:
        return _error(400, str(error))

    @app.exception_handler(APIError)
    async def refused(request: Request, error: APIError) -> Response:
        return JSONResponse(error.body(), error.status, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        told = [
            f"{'.'.join(map(str, each['loc'][1:])) or 'the request'}: {each['msg'][:1].lower()}{each['msg'][1:]}"
            for each in error.errors()[:3]
        ]
        return _error(400, "; ".join(told))

    @app.exception_handler(Exception)
    async def ours(request: Request, error: Exception) -> Response:
        traceback.print_exception(error)
        return _error(500, f"unexpected {type(error).__name__}; the terminal has the traceback")


def _error(code: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=code)
