"""POST /v1/chat/completions: the next message of a conversation, by the chat template of a run.

A thin layer over completions: the rendered conversation is the prompt, and texts become messages.
"""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from lmlab.serve.planning import plan_chat
from lmlab.serve.routes.completions import ResponseFormat, TextRequest, respond
from lmlab.serve.schemas import ChatCompletion, LenientChatCompletion
from lmlab.serve.served import Runs

PATH = "/v1/chat/completions"


def chat(runs: Runs) -> APIRouter:
    """The route over these runs."""
    router = APIRouter()

    async def reply(request: Request, body: ChatCompletion) -> Response:
        served = await runs.open(body.model, request)
        text_request = TextRequest(
            make_plan=partial(plan_chat, body, served, arrived=time.monotonic()),
            stream=bool(body.stream),
            include_usage=body.stream_options is not None and body.stream_options.include_usage,
            executor=served.template_queue.executor,
        )
        return await respond(request, served, text_request, message_format(body.top_logprobs or 0))

    if runs.limits.lenient:
        # FastAPI reads the schema from the annotation: this one ignores unknown fields
        reply.__annotations__["body"] = LenientChatCompletion
    router.add_api_route(PATH, reply, methods=["POST"], summary="Answer messages", response_model=None)
    return router


def message_format(top: int) -> ResponseFormat:
    """The format of OpenAI's messages, with `top` alternatives of each token if log-probabilities are asked for."""

    def format_choice(text_choice: dict[str, Any]) -> dict[str, Any]:
        return {
            "index": text_choice["index"],
            "message": {"role": "assistant", "content": text_choice["text"], "refusal": None},
            "logprobs": _logprobs(text_choice["logprobs"], top),
            "finish_reason": text_choice["finish_reason"],
        }

    def format_delta(text_choice: dict[str, Any], first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if first else {}
        content = {"content": text_choice["text"]} if first or text_choice["text"] else {}
        return {
            "delta": {**role, **content},
            "logprobs": _logprobs(text_choice["logprobs"], top),
            "finish_reason": text_choice["finish_reason"],
        }

    return ResponseFormat(
        id_prefix="chatcmpl",
        object="chat.completion",
        chunk_object="chat.completion.chunk",
        format_choice=format_choice,
        format_delta=format_delta,
    )


def _logprobs(fields: dict[str, list[Any]] | None, top: int) -> dict[str, Any] | None:
    """Log-probabilities in the format of this route: a record for each token, with the best alternatives."""
    if fields is None:
        return None
    content = []
    for name, value, every in zip(fields["tokens"], fields["token_logprobs"], fields["top_logprobs"], strict=True):
        best = sorted(every.items(), key=lambda pair: -pair[1])[:top]
        content.append({**_token(name, value), "top_logprobs": [_token(*pair) for pair in best]})
    return {"content": content, "refusal": None}


def _token(name: str, value: float) -> dict[str, Any]:
    spelled = re.fullmatch(r"bytes:((?:\\x[0-9a-f]{2})+)", name)
    raw = bytes.fromhex(spelled[1].replace("\\x", "")) if spelled else name.encode()
    return {"token": name, "logprob": value, "bytes": list(raw)}
