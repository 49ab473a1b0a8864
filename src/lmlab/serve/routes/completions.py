"""POST /v1/completions: texts continued, whole or as a stream of events."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from lmlab.serve.beams import search
from lmlab.serve.errors import APIError, internal_error, log_error
from lmlab.serve.outbox import Outbox
from lmlab.serve.planning import Plan, plan
from lmlab.serve.responses import Choice, PromptScores, best, format_prompt_scores
from lmlab.serve.schemas import Completion, LenientCompletion, StreamOptions
from lmlab.serve.sequence import GeneratedSequence, Piece
from lmlab.serve.served import Runs, Served
from lmlab.serve.waiting import call, refusing, run_in, unless_gone

PATH = "/v1/completions"


def completions(runs: Runs) -> APIRouter:
    """The route over these runs."""
    router = APIRouter()

    async def complete(request: Request, body: Completion) -> Any:
        served = await runs.open(body.model, request)
        asked = Asked(plan=partial(plan, body, served), stream=bool(body.stream), options=body.stream_options)
        return await answer(request, served, replace(asked, short=_is_short(body)), TEXTS)

    if runs.limits.lenient:
        complete.__annotations__["body"] = LenientCompletion
    router.add_api_route(PATH, complete, methods=["POST"], summary="Continue texts")
    return router


@dataclass(frozen=True, kw_only=True)
class Form:
    """The format of a response: the names of its objects, and how a choice is written as a whole and in a stream."""

    prefix: str
    whole: str
    chunk: str
    choice: Callable[[dict[str, Any]], dict[str, Any]] = lambda choice: choice
    delta: Callable[[dict[str, Any], bool], dict[str, Any]] = lambda delta, first: delta


TEXTS = Form(prefix="cmpl", whole="text_completion", chunk="text_completion")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request for texts: how to plan it, and how it is answered."""

    plan: Callable[[], Plan]
    stream: bool
    options: StreamOptions | None
    short: bool = False
    """Whether it is planned without another thread."""
    executor: Executor | None = None
    """Where it is planned; by default in the threads that all requests share."""


async def answer(request: Request, served: Served, asked: Asked, form: Form) -> Any:
    """The response to a request for texts: whole, or a stream of events."""
    pieces: Pieces = asyncio.Queue()
    with refusing(served), served.engine.reserve():
        prepare = partial(_prepare, asked.plan, served, pieces, asyncio.get_running_loop())
        todo, sequences, choices = prepare() if asked.short else await run_in(asked.executor, request, prepare)
        served.engine.submit(sequences, reserved=1)
    head = {
        "id": f"{form.prefix}-{secrets.token_hex(12)}",
        "object": form.chunk if asked.stream else form.whole,
        "created": int(time.time()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
    }
    if todo.beams is not None:
        found, usage = await call(served, request, lambda pause: search(todo, pause))
        return await asyncio.to_thread(JSONResponse, {**head, "choices": found, "usage": usage, **_warnings(todo)})
    if asked.stream:
        usage_too = asked.options is not None and asked.options.include_usage
        return Events(_stream(todo, choices, pieces, head, form, usage_too=usage_too), sequences)
    try:
        content = await unless_gone(request, _whole(todo, choices, pieces, form))
        return await asyncio.to_thread(JSONResponse, {**head, **content, **_warnings(todo)})
    finally:
        _cancel(sequences)


Pieces = asyncio.Queue[tuple[int, Piece]]
BACKLOG = 2**15
"""Pieces that may wait for a slow client; at this number its sequences are cancelled."""
TOGETHER = 64
"""The most pieces that are sent to a client at once."""
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Events(StreamingResponse):
    """A stream of events; when it ends, or its client is gone before it starts, the sequences are cancelled."""

    def __init__(self, events: AsyncIterator[str], sequences: list[GeneratedSequence]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self.sequences = sequences

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _cancel(self.sequences)


SHORT = 2000
"""Requests up to this size are prepared without another thread: characters or tokens of the prompts, summed over all
texts that continue them; each text counts as a hundred more, and each bias as one."""


def _is_short(body: Completion) -> bool:
    """Whether a request is prepared in less time than it takes to hand it to another thread."""
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt or []
    length = sum(1 if isinstance(each, int) else len(each) for each in prompts)
    texts = max(body.n or 1, body.best_of or 1)
    return texts * (length + len(prompts) * (100 + len(body.logit_bias or {}))) <= SHORT


def _prepare(
    make_plan: Callable[[], Plan], served: Served, pieces: Pieces, loop: asyncio.AbstractEventLoop
) -> tuple[Plan, list[GeneratedSequence], list[Choice]]:
    """The sequences of a request for the engine, which put their pieces into the queue; none for a beam search."""
    todo, sequences = make_plan(), list[GeneratedSequence]()
    if todo.beams is not None:
        return todo, sequences, []
    sequences += todo.sequences(_sender(loop, served.engine.outbox, pieces, sequences))
    return todo, sequences, [Choice(todo, prompt) for prompt in todo.prompts for _ in range(todo.best_of)]


def _sender(
    loop: asyncio.AbstractEventLoop, outbox: Outbox, pieces: Pieces, sequences: list[GeneratedSequence]
) -> Callable[[int, Piece], None]:
    """A function that sends the pieces of sequences, by their number, through the outbox to the queue of a request."""

    def put(number: int, piece: Piece) -> None:
        while piece.error and not pieces.empty():  # an error is sent before everything else
            pieces.get_nowait()
        pieces.put_nowait((number, piece))
        if pieces.qsize() == BACKLOG:
            _cancel(sequences)

    def send(number: int, piece: Piece) -> None:
        outbox.put(loop, partial(put, number, piece), urgent=piece.token is None or bool(piece.finish))

    return send


def _usage(todo: Plan, written: int) -> dict[str, int]:
    read = sum(len(prompt.ids) for prompt in todo.prompts)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _warnings(todo: Plan) -> dict[str, list[str]]:
    """The field `warnings`, if there are any; clients accept fields that they do not know."""
    return {"warnings": todo.warnings} if todo.warnings else {}


def _cancel(sequences: list[GeneratedSequence]) -> None:
    for sequence in sequences:
        sequence.cancel()


Numbered = tuple[int, Piece, PromptScores | None]


async def _in_order(todo: Plan, left: int, pieces: Pieces) -> AsyncIterator[list[Numbered]]:
    """The pieces in the queue, with the number of their sequence and its prompt's scores, which come first."""
    scores: dict[int, PromptScores] = {}
    waiting: dict[int, list[tuple[int, Piece]]] = {}
    while left:
        there, ready = [await pieces.get()], []
        while not pieces.empty() and len(there) < TOGETHER:
            there.append(pieces.get_nowait())
        for number, piece in there:
            if piece.error:
                raise APIError(piece.error, status=503 if piece.finish == "cancelled" else 500)
            if piece.finish == "cancelled":
                raise APIError(f"the stream is read too slowly: {BACKLOG} pieces wait to be sent", status=503)
            prompt, released = number // todo.best_of, [(number, piece)]
            if piece.prompt is not None:
                scores[prompt] = await asyncio.to_thread(format_prompt_scores, todo, todo.prompts[prompt], piece.prompt)
                released += waiting.pop(prompt, [])
            elif todo.prompt_top is not None and prompt not in scores:
                waiting.setdefault(prompt, []).append((number, piece))
                continue
            left -= sum(bool(each.finish) for _, each in released)
            ready += [(index, each, scores.get(prompt)) for index, each in released]
        if ready:
            yield ready


async def _whole(todo: Plan, choices: list[Choice], pieces: Pieces, form: Form) -> dict[str, Any]:
    async for ready in _in_order(todo, len(choices), pieces):
        for number, piece, scores in ready:
            choices[number].prompt_scores = scores
            choices[number].add(piece)
    answers, written = [], sum(len(choice.ids) for choice in choices)
    for place in range(len(todo.prompts)):
        group = best(choices[place * todo.best_of : (place + 1) * todo.best_of], todo.n)
        answers += [form.choice(choice.whole(place * todo.n + number)) for number, choice in enumerate(group)]
    return {"choices": answers, "usage": _usage(todo, written)}


async def _stream(
    todo: Plan, choices: list[Choice], pieces: Pieces, head: dict[str, Any], form: Form, *, usage_too: bool
) -> AsyncIterator[str]:
    """Server-sent events: one for each token, several at once if they are ready; the usage if asked for, and [DONE]; or
    an error."""
    start = ENCODER.encode(head)[:-1]
    rest, once = _more({"usage": None} if usage_too else {}), _more(_warnings(todo))
    begun: set[int] = set()
    try:
        async for ready in _in_order(todo, len(choices), pieces):
            events = []
            for number, piece, scores in ready:
                choices[number].prompt_scores = scores
                delta = choices[number].add(piece)
                if piece.prompt is not None and todo.prompt_logprobs is not None:
                    delta["prompt_logprobs"] = choices[number].prompt_logprobs()
                choice = ENCODER.encode({"index": number, **form.delta(delta, number not in begun)})
                begun.add(number)
                events.append(f'data: {start},"choices":[{choice}]{rest}{once}}}\n\n')
                once = ""
            yield "".join(events)
        if usage_too:
            written = sum(len(choice.ids) for choice in choices)
            yield _event({**head, "choices": [], "usage": _usage(todo, written)})
        yield "data: [DONE]\n\n"
    except APIError as error:
        yield _event(error.body())
    except Exception as error:
        log_error(error, f"a stream of {todo.served.name}")
        yield _event(internal_error(error).body())


def _more(fields: dict[str, Any]) -> str:
    """Further fields of an event, if there are any."""
    return f",{ENCODER.encode(fields)[1:-1]}" if fields else ""


def _event(content: dict[str, Any]) -> str:
    return f"data: {ENCODER.encode(content)}\n\n"
