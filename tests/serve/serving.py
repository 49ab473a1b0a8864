"""A server over tiny runs, as a user has it: uvicorn on a free port of this machine."""

from __future__ import annotations

import faulthandler
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import torch

from lmlab.config import build
from lmlab.language_model import LanguageModel, load
from lmlab.models import load_class
from lmlab.serve.app import make_app
from lmlab.serve.engine.engine import Engine
from lmlab.serve.guard import Rules
from lmlab.serve.served import Limits, Runs, serve_run
from lmlab.serve.server import make_server
from lmlab.tokenizers import train
from patience import PATIENCE
from standins import TEXT, write_run
from translators import write_translator

STOPS_WITHIN = 60.0
"""Seconds after which a server that was stopped is ended by force: several times what it needs on a slow machine."""


class Running(NamedTuple):
    address: str
    runs: Runs

    def lm(self, name: str) -> LanguageModel:
        return self.runs.served[name].lm


def tiny_models(folder: Path) -> dict[str, LanguageModel]:
    """One of each kind."""
    found = {}
    for kind, spec in (("ngram", "bytes"), ("lstm", "words"), ("gpt2", "bpe:300")):
        (folder / kind).mkdir()
        found[kind] = load(write_run(folder / kind, kind, spec=spec))
    (folder / "translator").mkdir()
    found["translator"] = load(write_translator(folder / "translator", seed=3))
    tokenizer = train("wordpiece:120", [TEXT])
    torch.manual_seed(0)
    config = {"vocabulary": tokenizer.vocabulary, "width": 16, "heads": 2, "layers": 1, "inner": 20, "window": 32}
    bert = load_class("bert")
    found["bert"] = LanguageModel(model=bert(build(bert.Config, config, where="model")).eval(), tokenizer=tokenizer)
    return found


@contextmanager
def serving(models: Mapping[str, LanguageModel], *, rules: Rules | None = None, **limits: Any) -> Iterator[Running]:
    """A server with these models until the end of the block."""
    bounds = Limits(**limits)
    runs = Runs(served={name: serve_run(name, lm, limits=bounds) for name, lm in models.items()}, limits=bounds)
    server = make_server(make_app(runs, rules=rules or Rules()), runs, host="127.0.0.1", port=0, drain=0.2)
    address: Queue[str] = Queue()
    server.started_at = address.put
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield Running(address.get(timeout=PATIENCE), runs)
    finally:
        server.should_exit = True
        thread.join(STOPS_WITHIN)
        if thread.is_alive():  # say what it waits for, and end it as a second Ctrl-C would
            faulthandler.dump_traceback(sys.__stderr__)
            server.hurried = server.force_exit = True
            thread.join(STOPS_WITHIN)


def settle(engine: Engine) -> None:
    """Wait until the engine has done all that it was about to do: what it counts comes after what it tells."""
    engine.call(lambda pause: None).result(PATIENCE)


def get(url: str, **settings: Any) -> httpx.Response:
    """A patient GET; httpx itself waits five seconds."""
    return httpx.get(url, timeout=PATIENCE, **settings)


def post(url: str, **settings: Any) -> httpx.Response:
    """A patient POST."""
    return httpx.post(url, timeout=PATIENCE, **settings)


def read_all(connection: socket.socket) -> bytes:
    """What a connection gives until the server closes it, in whichever way."""
    answer = b""
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            answer += part
    return answer


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What a connection gives, until the mark is among it."""
    answer = b""
    while mark not in answer:
        part = connection.recv(65536)
        assert part, f"closed after {answer!r}"
        answer += part
    return answer


def connect(server: Running) -> socket.socket:
    """A connection of one's own, without any protocol."""
    parts = urlsplit(server.address)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)
