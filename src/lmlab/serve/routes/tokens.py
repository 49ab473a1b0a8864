"""Text to tokens and back, so that evaluation harnesses need no tokenizer of their own."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from lmlab.serve.planning import decode, encode
from lmlab.serve.schemas import Detokenize, Tokenize
from lmlab.serve.served import Runs, Served


def tokens(runs: Runs) -> APIRouter:
    """The routes over these runs."""
    router = APIRouter()

    @router.post("/tokenize", summary="The tokens of a text")
    async def tokenize(request: Request, body: Tokenize) -> dict[str, Any]:
        return await asyncio.to_thread(_tokenize, body, await runs.open(body.model, request))

    @router.post("/detokenize", summary="The text of tokens")
    async def detokenize(request: Request, body: Detokenize) -> dict[str, Any]:
        served = await runs.open(body.model, request)
        ids = served.token_ids(body.tokens, "tokens")
        return {"prompt": await asyncio.to_thread(decode, ids, served, "tokens")}

    @router.get("/tokenizer_info", summary="What a harness asks of a tokenizer")
    async def info(request: Request, model: str | None = None) -> dict[str, Any]:
        return _describe_tokenizer(await runs.open(model, request))

    return router


def _tokenize(body: Tokenize, served: Served) -> dict[str, Any]:
    ids = _encode(served, body.prompt)
    if body.add_special_tokens:
        before = [served.opening] if served.writing is None else served.writing.frame.row()["tokens"]
        ids = [*before, *ids]
    return {"tokens": served.client_ids(ids), "count": len(ids), "max_model_len": served.card()["max_model_len"]}


def _describe_tokenizer(served: Served) -> dict[str, Any]:
    tokenizer = served.tokenizer
    return {
        "tokenizer_class": tokenizer.spec,
        "vocab_size": tokenizer.vocabulary,
        "eos_token": served.boundary_name,
        "bos_token": str(tokenizer.engine.id_to_token(served.opening)),
        "pad_token": served.boundary_name,
        "eos_token_id": tokenizer.boundary,
        "bos_token_id": served.opening,
        "model_max_length": served.card()["max_model_len"],
        "add_bos_token": False,  # completions put it there themselves, where the run has it
        "chat_template": None if served.lm.chat_template is None else served.lm.chat_template.text,
    }


def _encode(served: Served, text: str) -> list[int]:
    """The ids of a text in which the boundary's own name is the boundary."""
    if not served.tokenizer.split_special_tokens:
        return encode(text, served, "prompt")
    ids: list[int] = []
    for number, part in enumerate(text.split(served.boundary_name)):
        ids += [served.tokenizer.boundary] * bool(number) + encode(part, served, "prompt")
    return ids
