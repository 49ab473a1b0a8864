"""POST /v1/chat/completions: the next message of a conversation, by the chat template of a run.

A thin layer over completions: the rendered conversation is the prompt, and texts become messages.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from fastapi import APIRouter, Request

from lmlab.serve.planning import plan_chat
from lmlab.serve.routes.completions import Asked, Form, answer
from lmlab.serve.schemas import ChatCompletion, LenientChatCompletion
from lmlab.serve.served import Runs

PATH = "/v1/chat/completions"


def chat(runs: Runs) -> APIRouter:
    """The route over these runs."""
    router = APIRouter()

    async def reply(request: Request, body: ChatCompletion) -> Any:
        served = await runs.open(body.model, request)
        asked = Asked(
            plan=partial(plan_chat, body, served),
            stream=bool(body.stream),
            options=body.stream_options,
            executor=served.template_thread,
        )
        return await answer(request, served, asked, messages_form(body.top_logprobs or 0))

    if runs.limits.lenient:
        reply.__annotations__["body"] = LenientChatCompletion
    router.add_api_route(PATH, reply, methods=["POST"], summary="Answer messages")
    return router


def messages_form(top: int) -> Form:
    """Texts in the format of OpenAI's messages, with `top` alternatives of each token if asked for."""

    def choice(text_choice: dict[str, Any]) -> dict[str, Any]:
        return {
            "index": text_choice["index"],
            "message": {"role": "assistant", "content": text_choice["text"], "refusal": None},
            "logprobs": _logprobs(text_choice["logprobs"], top),
            "finish_reason": text_choice["finish_reason"],
        }

    def delta(text_choice: dict[str, Any], first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if first else {}
        content = {"content": text_choice["text"]} if first or text_choice["text"] else {}
        return {
            "delta": {**role, **content},
            "logprobs": _logprobs(text_choice["logprobs"], top),
            "finish_reason": text_choice["finish_reason"],
        }

    return Form(prefix="chatcmpl", whole="chat.completion", chunk="chat.completion.chunk", choice=choice, delta=delta)


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
