"""The runs behind the API: each with its engine, found only by the name of its folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fastapi import Request

from lmlab.decoding.chat_writer import ChatWriter
from lmlab.decoding.writer import Writer
from lmlab.language_model import LanguageModel
from lmlab.models.abilities import ABILITIES, ability
from lmlab.serve.engine.engine import Engine
from lmlab.serve.engine.prefix_cache import PREFIX_BYTES
from lmlab.serve.errors import APIError, checking
from lmlab.serve.token_ids import ClientIds, TokenNames
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.boundary import opening_token
from lmlab.tokenizers.chat_template import EndedTemplateError, Messages
from lmlab.tokenizers.spellings import NEW_WORDS


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request, and of all together."""

    rows: int = 32
    queue: int = 1024
    tokens: int = 4096
    """Most tokens generated for one text."""
    prompt: int = 65536
    """Most tokens of one prompt."""
    texts: int = 128
    """Most texts of one request: prompts times best_of."""
    prefix_bytes: int = PREFIX_BYTES
    """Size of the prefix cache of each run."""
    lenient: bool = False
    """Ignore unknown models, fields and invalid values, as conformance tests need it."""


class TemplateQueue:
    """One thread for the chat template of one run, so that a slow template delays no other run.

    A template that takes too long is ended. Requests that were waiting then fail with the same error, because each of
    them would wait for the time limit again.
    """

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="lmlab-chat-template")
        self._ended_at = 0.0
        self._error = ""

    def encode(self, chat: ChatWriter, messages: Messages, *, arrived: float) -> list[int]:
        """The tokens of a conversation; `arrived` is when the request arrived, by `time.monotonic`.

        It is called in the thread of this queue.
        """
        if arrived < self._ended_at:
            raise EndedTemplateError(self._error)
        try:
            return chat.encode(messages)
        except EndedTemplateError as error:
            self._ended_at, self._error = time.monotonic(), str(error)
            raise


@dataclass(frozen=True, kw_only=True)
class Served:
    """A run behind the API."""

    name: str
    lm: LanguageModel
    engine: Engine
    limits: Limits
    writing: Writer | None = None
    """The writer of the run, if it continues texts."""
    created: int = field(default_factory=lambda: int(time.time()))

    @cached_property
    def abilities(self) -> list[str]:
        found = [name for name, each in ABILITIES.items() if ability(self.lm.model, each.kind) is not None]
        found += ["chat"] if self.lm.chat_template is not None else []
        return found + (["task"] if self.lm.own_predictor is not None else [])

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the run; an error about the field `model` if it does not read text."""
        with checking("model"):
            return self.lm.text_tokenizer

    @cached_property
    def template_queue(self) -> TemplateQueue:
        """Renders the chat template of this run, for one request at a time."""
        return TemplateQueue()

    @cached_property
    def names(self) -> TokenNames:
        return TokenNames(self.tokenizer)

    def get_ready(self) -> None:
        """Wait until the engine accepts requests, and compute what the first request would wait for."""
        self.engine.ready.wait()
        if self.lm.tokenizer is not None:
            self.names[0]

    @property
    def vocabulary(self) -> int:
        """The number of tokens the model reads: an imported one may have more than its tokenizer, or new words."""
        tokenizer = self.tokenizer
        if tokenizer.is_open:
            return tokenizer.vocabulary + NEW_WORDS.count
        return int(getattr(self.lm.model, "vocabulary", tokenizer.vocabulary))

    @cached_property
    def _ids(self) -> ClientIds:
        return ClientIds(self.tokenizer.vocabulary)

    def client_ids(self, tokens: Sequence[int]) -> list[int]:
        """The ids of tokens for clients."""
        return [self._ids.encode(token) for token in tokens] if self.tokenizer.is_open else list(tokens)

    def token_ids(self, ids: Sequence[int], param: str) -> list[int]:
        """The tokens of a client's ids; a 400 that names the field if one is not in the vocabulary."""
        tokenizer, most = self.tokenizer, self.vocabulary
        found = [self._ids.decode(number) for number in ids] if tokenizer.is_open else list(ids)
        for number, token in zip(ids, found, strict=True):
            if token >= most:
                known = tokenizer.vocabulary if tokenizer.is_open else most
                raise APIError(f"{param}: token {number} is not in the vocabulary of {known}", param=param)
        return found

    @cached_property
    def boundary_name(self) -> str:
        """The token between documents, as text."""
        tokenizer = self.tokenizer
        return str(tokenizer.engine.id_to_token(tokenizer.boundary))

    @cached_property
    def opening(self) -> int:
        """The token that starts a text: the boundary, or the one that an imported model uses instead."""
        try:
            return self.tokenizer.boundary if self.writing is None else opening_token(self.writing.frame)
        except ValueError:  # an imported model whose tokenizer names none
            return self.tokenizer.boundary

    @property
    def fingerprint(self) -> str:
        """The version and the tokenizer: for the same fingerprint, the same seed gives the same text."""
        from lmlab import __version__

        return f"lmlab-{__version__}-{self.tokenizer.fingerprint[:12]}"

    def role(self, name: str) -> Any:
        """A role of the run, such as "filler"; an error that names its abilities if it has not this one."""
        try:
            return getattr(self.lm, name)
        except ValueError:
            can = ", ".join(self.abilities) or "nothing"
            raise APIError(
                f"{self.name} is no {name}; what it does: {can}", param="model", code="unsupported"
            ) from None

    def writer(self) -> Writer:
        """The writer of the run; an error that names its abilities if it has none."""
        if self.writing is None:
            raise APIError(
                f"{self.name} does not continue texts; what it does: {', '.join(self.abilities) or 'nothing'}",
                param="model",
                code="unsupported",
            )
        return self.writing

    def chat_writer(self) -> ChatWriter:
        """The chat writer of the run; an error that names the route for texts if it has no chat template."""
        if self.lm.chat_template is None:
            raise APIError(
                f"{self.name} has no chat template, so it answers no messages: send it a text to /v1/completions",
                param="model",
                code="unsupported",
            )
        self.writer()
        return self.lm.chat_writer

    def card(self) -> dict[str, Any]:
        """The entry of the run in /v1/models."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "lmlab",
            "kind": self.lm.kind,
            "abilities": self.abilities,
            "max_model_len": getattr(self.lm.model, "window", None),
        }


def serve_run(name: str, lm: LanguageModel, *, limits: Limits, threads: int | None = None) -> Served:
    """A run with its own engine, which is starting."""
    writer = _writer_of(lm)
    model = None if writer is None else writer.model
    engine = Engine(
        lm.model,
        name=name,
        writer=model,
        rows=limits.rows,
        queue=limits.queue,
        prefix_bytes=limits.prefix_bytes,
        threads=threads,
    )
    return Served(name=name, lm=lm, engine=engine, limits=limits, writing=writer)


def _writer_of(lm: LanguageModel) -> Writer | None:
    """The writer of a run; None if it does not continue texts."""
    try:
        return lm.writer
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs that are served, by name."""

    served: Mapping[str, Served]
    limits: Limits

    def find(self, name: str | None) -> Served:
        """The run of that name, or the first if none is given; names never reach the file system."""
        if name is not None and name in self.served:
            return self.served[name]
        if name is None or self.limits.lenient:
            return next(iter(self.served.values()))
        known = ", ".join(self.served)
        raise APIError(
            f"the model {name[:80]!r} does not exist; there is: {known}",
            status=404,
            param="model",
            code="model_not_found",
        )

    async def open(self, name: str | None, request: Request) -> Served:
        """The same without blocking the event loop, for runs that are loaded on demand while the client waits."""
        return self.find(name)

    def cards(self) -> list[dict[str, Any]]:
        """The entries of all runs in /v1/models."""
        return [served.card() for served in self.served.values()]

    def card(self, name: str) -> dict[str, Any]:
        """The entry of one run in /v1/models."""
        return self.find(name).card()
