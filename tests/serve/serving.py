"""A server over tiny runs, as a user has it: uvicorn on a free port of this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lmlab.config import build
from lmlab.language_model import LanguageModel, load
from lmlab.models import load_class
from lmlab.serve.app import make_app
from lmlab.serve.guard import Rules
from lmlab.serve.served import Limits, Runs, serve_run
from lmlab.serve.server import make_server
from lmlab.tokenizers import train
from standins import TEXT, write_run
from translators import write_translator


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
    address: list[str] = []
    server.started_at = address.append
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not address and time.monotonic() < end:
        time.sleep(0.01)
    try:
        yield Running(address[0], runs)
    finally:
        server.should_exit = True
        thread.join(30)
