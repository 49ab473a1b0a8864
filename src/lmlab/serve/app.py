"""The application: all routes over the runs that are served, behind the guard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from lmlab.serve.errors import APIError, error_body, say
from lmlab.serve.guard import Guard, Message, Rules
from lmlab.serve.routes.completions import PATH, completions
from lmlab.serve.routes.embeddings import embeddings
from lmlab.serve.routes.models import models
from lmlab.serve.routes.playground import playground
from lmlab.serve.routes.roles import roles
from lmlab.serve.routes.status import status
from lmlab.serve.routes.tokens import tokens
from lmlab.serve.served import Runs
from lmlab.serve.waiting import GoneError, too_many


def make_app(runs: Runs, *, rules: Rules) -> Guard:
    """The guarded application."""
    from lmlab import __version__

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(close_runs, runs)

    app = FastAPI(
        title="lmlab",
        version=__version__,
        description="Language models behind the completions API.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    _answer_errors(app)
    ours = (completions, embeddings, models, roles, tokens, status, playground)
    for make in ours:
        app.include_router(make(runs))
    return Guard(app, rules, admit=partial(refuse_when_full, runs))


def refuse_when_full(runs: Runs, scope: Message) -> None:
    """A 429 for completions where no run has a place left: nothing is read, checked or put into tokens for it."""
    if scope["path"] == PATH:
        writers = [served for served in runs.served.values() if served.writing is not None]
        if writers and all(served.engine.is_full for served in writers):
            raise too_many("the server", runs.limits.queue)


def close_runs(runs: Runs, *, within: float = 0.0) -> None:
    """End all engines; what is not finished `within` so many seconds, which all have together, is cut off."""
    end = time.monotonic() + within
    for served in runs.served.values():
        served.engine.stop()
    for served in runs.served.values():
        served.engine.close(within=max(0.0, end - time.monotonic()))


def _answer_errors(app: FastAPI) -> None:
    """Every error as the object that clients expect."""

    @app.exception_handler(APIError)
    async def ours(request: Request, error: APIError) -> Response:
        return JSONResponse(error.body(), error.status, headers=error.headers)

    @app.exception_handler(ValueError)
    async def mendable(request: Request, error: ValueError) -> Response:
        return JSONResponse(error_body(str(error), status=400), 400)

    @app.exception_handler(GoneError)
    async def gone(request: Request, error: GoneError) -> Response:
        return Response(status_code=499)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first: dict[str, Any] = error.errors()[0]
        message, param = say(tuple(first["loc"]), str(first["msg"]), str(first["type"]))
        return JSONResponse(error_body(message, status=400, param=param), 400)

    @app.exception_handler(HTTPException)
    async def known(request: Request, error: HTTPException) -> Response:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"there is no {request.method} {request.url.path[:200]}; see /openapi.json"
        headers = dict(error.headers or {})
        return JSONResponse(error_body(message, status=error.status_code), error.status_code, headers=headers)

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        return JSONResponse(error_body(f"unexpected {type(error).__name__}", status=500), 500)
