"""POST /v1/completions: continue texts. The response is one object, or a stream of server-sent events.

A request passes through four steps: its fields are checked (`serve/planning.py`), its sequences are queued for the
engine (`serve/engine`), their output is collected (`serve/generation.py`), and the response is formatted here.
/v1/chat/completions does the same with another `ResponseFormat`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lmlab.serve.beams import search
from lmlab.serve.disconnect import cancel_on_disconnect
from lmlab.serve.errors import APIError, internal_error, log_error
from lmlab.serve.generation import Generation, PieceQueue
from lmlab.serve.planning import GenerationPlan, plan
from lmlab.serve.schemas import Completion, LenientCompletion
from lmlab.serve.served import Runs, Served
from lmlab.serve.waiting import call, queue_errors_as_responses, run_in

PATH = "/v1/completions"
SHORT = 2000
"""Requests up to this size are planned in the event loop: characters or tokens of the prompts, summed over all texts
that continue them; each text counts as a hundred more, and each bias as one."""
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def completions(runs: Runs) -> APIRouter:
    """The route over these runs."""
    router = APIRouter()

    async def complete(request: Request, body: Completion) -> Response:
        served = await runs.open(body.model, request)
        text_request = TextRequest(
            make_plan=partial(plan, body, served),
            stream=bool(body.stream),
            include_usage=body.stream_options is not None and body.stream_options.include_usage,
            short=is_short(body),
        )
        return await respond(request, served, text_request, TEXT_FORMAT)

    if runs.limits.lenient:
        # FastAPI reads the schema from the annotation: this one ignores unknown fields
        complete.__annotations__["body"] = LenientCompletion
    router.add_api_route(PATH, complete, methods=["POST"], summary="Continue texts", response_model=None)
    return router


@dataclass(frozen=True, kw_only=True)
class ResponseFormat:
    """The differences between the responses of the two routes; choices are converted from those of this route."""

    id_prefix: str
    object: str
    chunk_object: str
    format_choice: Callable[[dict[str, Any]], dict[str, Any]] = lambda choice: choice
    format_delta: Callable[[dict[str, Any], bool], dict[str, Any]] = lambda delta, first: delta
    """Converts a part of a streamed choice; gets whether it is the first part."""


TEXT_FORMAT = ResponseFormat(id_prefix="cmpl", object="text_completion", chunk_object="text_completion")


@dataclass(frozen=True, kw_only=True)
class TextRequest:
    """A request of either route for texts."""

    make_plan: Callable[[], GenerationPlan]
    stream: bool
    include_usage: bool
    """Whether a stream ends with a chunk that has the number of tokens."""
    short: bool = False
    """Whether to make the plan in the event loop: it takes less time than to start a thread."""
    executor: Executor | None = None
    """The thread that makes the plan; by default one of those that all requests share."""


async def respond(
    request: Request, served: Served, text_request: TextRequest, response_format: ResponseFormat
) -> Response:
    """Generate the texts of a request; the response is one object or a stream of events."""
    queue = PieceQueue(served.engine.outbox)
    with queue_errors_as_responses(served), served.engine.reserve():
        prepare = partial(_prepare, text_request.make_plan, queue)
        generation = prepare() if text_request.short else await run_in(text_request.executor, request, prepare)
        served.engine.submit(queue.sequences, reserved=1)
    fields = {
        "id": f"{response_format.id_prefix}-{secrets.token_hex(12)}",
        "object": response_format.chunk_object if text_request.stream else response_format.object,
        "created": int(time.time()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
    }
    warnings = _warnings(generation.plan)
    if generation.plan.beams is not None:
        assert not text_request.stream, "planning refuses to stream a beam search"
        choices, usage = await call(served, request, lambda pause: search(generation.plan, pause))
        return await asyncio.to_thread(JSONResponse, {**fields, "choices": choices, "usage": usage, **warnings})
    if text_request.stream:
        return EventStream(_events(generation, fields, response_format, text_request.include_usage), queue)
    try:
        found = await cancel_on_disconnect(request, generation.choices())
        content = {"choices": list(map(response_format.format_choice, found)), "usage": generation.usage()}
        return await asyncio.to_thread(JSONResponse, {**fields, **content, **warnings})
    finally:
        queue.cancel()


def is_short(body: Completion) -> bool:
    """Whether the plan for a request is made in less time than it takes to start a thread."""
    given = body.prompt or ""
    lengths = [len(given)]  # of one text, or of its token ids
    if not isinstance(given, str):
        lengths = [len(each) for each in given if not isinstance(each, int)] or lengths
    texts = max(body.n or 1, body.best_of or 1)
    return texts * (sum(lengths) + len(lengths) * (100 + len(body.logit_bias or {}))) <= SHORT


def _prepare(make_plan: Callable[[], GenerationPlan], queue: PieceQueue) -> Generation:
    """Plan a request and make its sequences for the engine; a beam search has none."""
    made = make_plan()
    if made.beams is None:
        queue.sequences += made.sequences(queue.send)
    return Generation(made, queue)


def _warnings(made: GenerationPlan) -> dict[str, list[str]]:
    """The field `warnings`, if there are any; clients accept fields that they do not know."""
    return {"warnings": made.warnings} if made.warnings else {}


class EventStream(StreamingResponse):
    """A stream of events; when it ends, or if its client hangs up before it starts, the sequences are cancelled."""

    def __init__(self, events: AsyncIterator[str], queue: PieceQueue) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self.queue = queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.queue.cancel()


async def _events(
    generation: Generation, fields: dict[str, Any], response_format: ResponseFormat, include_usage: bool
) -> AsyncIterator[str]:
    """Server-sent events: one for each token (several are sent together if they are ready), the usage if asked for, and
    [DONE]; or an error, which ends the stream."""
    usage = {"usage": None} if include_usage else {}
    warnings: dict[str, Any] = _warnings(generation.plan)
    started: set[int] = set()
    try:
        async for deltas in generation.deltas():
            events = []
            for number, delta in deltas:
                choice = {"index": number, **response_format.format_delta(delta, number not in started)}
                started.add(number)
                events.append(_event({**fields, "choices": [choice], **usage, **warnings}))
                warnings = {}  # only the first event has them
            yield "".join(events)
        if include_usage:
            yield _event({**fields, "choices": [], "usage": generation.usage()})
        yield "data: [DONE]\n\n"
    except APIError as error:
        yield _event(error.body())
    except Exception as error:
        log_error(error, f"a stream of {generation.plan.served.name}")
        yield _event(internal_error(error).body())


def _event(content: dict[str, Any]) -> str:
    return f"data: {ENCODER.encode(content)}\n\n"
