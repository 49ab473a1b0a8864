"""Writing by beam search as a tree, with branches that the user pins or forces; texts are drawn by /v1/completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, Text, TokenIds, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.decoding.writer import Writer


class Search(Config):
    """How the most probable texts are searched; each of `pins` are tokens by which one more search begins."""

    run: RunName
    text: Text = ""
    tokens: int = Field(6, ge=1, le=40, description="steps")
    beams: int = Field(3, ge=1, le=10, description="beam size")
    length_penalty: float = Field(0.0, ge=0, le=10, description="0 ranks by probability")
    pins: list[TokenIds] = Field([], max_length=6, description="branches that are kept whatever they are worth")


class Cut(Config):
    """A text that is to become tokens, as it stands after another."""

    run: RunName
    text: Text
    after: Text = ""


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/search")
    def search(asked: Search) -> Response:
        with run_store.using(asked.run) as model:
            writer = model.writer
            return answer({"searches": [search_from(writer, asked, pin) for pin in [[], *asked.pins]]})

    @router.post("/tokens")
    def tokens(asked: Cut) -> Response:
        """The tokens of a word as it would go on after a text: what a user who forces it means."""
        with run_store.using(asked.run) as model:
            tokenizer = model.text_tokenizer
            before, whole = tokenizer.encode(asked.after), tokenizer.encode(asked.after + asked.text)
            ids = whole[len(before) :] if whole[: len(before)] == before else tokenizer.encode(asked.text)
            return answer({"tokens": [{"token": each, "piece": tokenizer.show(each)} for each in ids]})

    return router


def search_from(writer: Writer, asked: Search, pin: list[int]) -> dict[str, Any]:
    """The tree of a search that begins with the prompt and the tokens of a pin, which are scored too."""
    import numpy as np
    import torch

    from lmlab.decoding.beam_search import beam_search
    from lmlab.decoding.scorer import ChainRule
    from lmlab.decoding.search_tree import Recorder
    from lmlab.tokenizers.boundary import prompt_tokens

    tokenizer, model = writer.tokenizer, writer.model
    if pin and max(pin) >= model.vocabulary:
        raise ValueError(f"token {max(pin)} is outside the vocabulary of {model.vocabulary}")
    ids = [*tokenizer.encode(asked.text), *pin]
    frame = prompt_tokens(writer.frame, ids)
    recorder = Recorder()
    (found,) = beam_search(
        model,
        torch.tensor([frame], device=model.device),
        tokens=asked.tokens,
        beams=asked.beams,
        boundary=writer.end,
        length_penalty=asked.length_penalty,
        watch=recorder,
    )
    tree = recorder.tree(
        found,
        show=tokenizer.show,
        decode=tokenizer.decode,
        boundary=writer.end,
        beams=asked.beams,
        length_penalty=asked.length_penalty,
        prompt=asked.text,
    )
    nats: list[float] = []
    if pin:
        nats = ChainRule(model, writer.frame).nats([np.array(ids)])[0].tolist()[-len(pin) :]
    forced = [
        {"token": token, "piece": tokenizer.show(token), "log_probability": -each}
        for token, each in zip(pin, nats, strict=True)
    ]
    return {"forced": forced, "forced_total": -sum(nats), **tree.as_dict()}
