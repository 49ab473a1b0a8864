"""Writing: texts that are drawn, and a beam search as a tree, with branches that the user pins or forces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.answers import RunName, Text, TokenIds, answer
from lmlab.studio.shelf import Shelf

if TYPE_CHECKING:
    from lmlab.decoding.writing import Writer

ALTERNATIVES = 5
"""Tokens that might have stood in place of one that was drawn."""


class Draw(Config):
    """How texts are drawn."""

    run: RunName
    text: Text = ""
    tokens: int = Field(40, ge=1, le=200, description="the most tokens that are written")
    samples: int = Field(3, ge=1, le=8, description="texts")
    temperature: float = Field(1.0, ge=0, le=5, description="0 takes the best token")
    top_k: int | None = Field(None, ge=1, le=100_000, description="of so many best tokens")
    top_p: float = Field(1.0, gt=0, le=1, description="of the nucleus")
    seed: int = Field(0, ge=0, lt=2**53, description="the same seed, the same texts")


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


def make_router(shelf: Shelf) -> APIRouter:
    router = APIRouter()

    @router.post("/write")
    def write(asked: Draw) -> Response:
        with shelf.using(asked.run) as model:
            return answer({"samples": draw(model.writer, asked)})

    @router.post("/search")
    def search(asked: Search) -> Response:
        with shelf.using(asked.run) as model:
            writer = model.writer
            return answer({"searches": [search_from(writer, asked, pin) for pin in [[], *asked.pins]]})

    @router.post("/tokens")
    def tokens(asked: Cut) -> Response:
        """The tokens of a word as it would go on after a text: what a user who forces it means."""
        with shelf.using(asked.run) as model:
            tokenizer = model.text_tokenizer
            before, whole = tokenizer.encode(asked.after), tokenizer.encode(asked.after + asked.text)
            ids = whole[len(before) :] if whole[: len(before)] == before else tokenizer.encode(asked.text)
            return answer({"tokens": [{"token": each, "piece": tokenizer.show(each)} for each in ids]})

    return router


def draw(writer: Writer, asked: Draw) -> list[dict[str, Any]]:
    """Each text with its tokens, their bits, and what might have stood there."""
    import math

    from lmlab.decoding.sampling import Sampling

    show, bit = writer.tokenizer.show, math.log(2)
    sampling = Sampling(
        temperature=asked.temperature,
        top_k=asked.top_k,
        top_p=asked.top_p if asked.top_p < 1 else None,
        seed=asked.seed,
    )
    found: list[dict[str, Any]] = [{"text": "", "tokens": [], "ended": "length"} for _ in range(asked.samples)]
    steps = writer.write(asked.text, sampling=sampling, tokens=asked.tokens, samples=asked.samples, top=ALTERNATIVES)
    for step in steps:
        for drawn, text in step:
            one = found[drawn.row]
            one["text"] += text
            if drawn.ended:
                one["ended"] = drawn.ended
            one["tokens"].append(
                {
                    "piece": "■ end" if drawn.token == writer.end else show(drawn.token),
                    "bits": drawn.nats / bit,
                    "instead": [[show(token), nats / bit] for token, nats in drawn.top],
                }
            )
    return found


def search_from(writer: Writer, asked: Search, pin: list[int]) -> dict[str, Any]:
    """The tree of a search that begins with the prompt and the tokens of a pin, which are scored too."""
    import torch

    from lmlab.decoding.scoring import score_tokens
    from lmlab.decoding.search import beam_search
    from lmlab.decoding.tracing import Recorder

    tokenizer, model = writer.tokenizer, writer.model
    if pin and max(pin) >= model.vocabulary:
        raise ValueError(f"token {max(pin)} is outside the vocabulary of {model.vocabulary}")
    ids = [*tokenizer.encode(asked.text), *pin]
    frame = writer.frame.row(a=ids)["tokens"]
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
        (start,) = writer.frame.row()["tokens"]
        nats = score_tokens(model, [ids], boundary=int(start))[0].tolist()[-len(pin) :]
    forced = [
        {"token": token, "piece": tokenizer.show(token), "log_probability": -each}
        for token, each in zip(pin, nats, strict=True)
    ]
    return {"forced": forced, "forced_total": -sum(nats), **tree.as_dict()}
