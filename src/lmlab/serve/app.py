"""The application: all routes over the runs that are served, behind the guard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from lmlab.serve.errors import add_errors
from lmlab.serve.guard import Guard, Message, Rules
from lmlab.serve.routes.chat import PATH as CHAT_PATH
from lmlab.serve.routes.chat import chat
from lmlab.serve.routes.completions import PATH, completions
from lmlab.serve.routes.embeddings import embeddings
from lmlab.serve.routes.fill import fill
from lmlab.serve.routes.health import health
from lmlab.serve.routes.models import index, models
from lmlab.serve.routes.predict import predict
from lmlab.serve.routes.tokens import tokens
from lmlab.serve.routes.translate import translate
from lmlab.serve.served import Runs
from lmlab.serve.waiting import too_many


def make_app(runs: Runs, *, rules: Rules) -> Guard:
    """The guarded application: the API, with its index at /."""
    app = make_api(runs)
    app.include_router(index(runs))
    return Guard(app, rules, admit=partial(refuse_when_full, runs))


def make_api(runs: Runs) -> FastAPI:
    """The API over runs, without a guard; the studio adds it to its own routes."""
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
    add_errors(app)
    for make in (completions, chat, embeddings, models, health, fill, predict, translate, tokens):
        app.include_router(make(runs))
    return app


def refuse_when_full(runs: Runs, scope: Message) -> None:
    """Raise a 429 for completions if all queues are full, before the body is read."""
    if scope["path"] in (PATH, CHAT_PATH):
        writers = [served for served in tuple(runs.served.values()) if served.writing is not None]
        if writers and all(served.engine.is_full for served in writers):
            raise too_many("the server", runs.limits.queue)


def abort_runs(runs: Runs) -> None:
    """End all sequences at the next step."""
    for served in tuple(runs.served.values()):
        served.engine.abort()


def close_runs(runs: Runs, *, within: float = 0.0) -> None:
    """End all engines; sequences that are not finished `within` this number of seconds in total are aborted."""
    end = time.monotonic() + within
    for served in tuple(runs.served.values()):
        served.engine.stop()
    for served in tuple(runs.served.values()):
        served.engine.close(within=max(0.0, end - time.monotonic()))
