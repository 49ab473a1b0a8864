"""Views of generation: the next token, beam search as a tree, translation with its alignment, and errors.

Texts are sampled, masks filled and labels predicted by the routes of `lmlab serve` (/v1/…), which the page calls.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, RunNames, Text, TokenIds, respond, respond_for_each, to_json
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from torch import Tensor

    from lmlab.decoding.writer import Writer

CONTEXT = 48
"""Tokens before the next one that are decoded with it, to find the text that it adds."""
MOST_SENT = 65_536
"""Log probabilities of a distribution that are sent, the highest."""
MOST_LINES = 20
"""Texts of one request for errors: each is tried in four variants."""


class NextTokensRequest(Config):
    """A text, and the sampling options whose effect is shown."""

    runs: RunNames
    text: Text = ""
    top: int = Field(12, ge=1, le=100, description="number of tokens")
    temperature: float = Field(1.0, ge=0.05, le=5, description="below 1 sharpens, above 1 flattens")
    top_p: float = Field(1.0, gt=0, le=1, description="probability mass of the nucleus")
    distribution: bool = Field(False, description="whether to send the whole distribution, for a saved lecture")


class SearchRequest(Config):
    """A beam search; each of `pins` is a list of tokens with which one more search starts."""

    run: RunName
    text: Text = ""
    tokens: int = Field(6, ge=1, le=40, description="steps")
    beams: int = Field(3, ge=1, le=10, description="beam size")
    length_penalty: float = Field(0.0, ge=0, le=10, description="0 ranks by probability")
    pins: list[TokenIds] = Field([], max_length=6, description="branches that are searched in any case")


class TokensRequest(Config):
    """A text to tokenize as the continuation of another."""

    run: RunName
    text: Text
    after: Text = ""


class TranslationRequest(Config):
    """A source text, and the options of its translation."""

    run: RunName
    text: Text
    beams: int = Field(4, ge=1, le=10, description="beam size")
    length_penalty: float = Field(0.6, ge=0, le=10, description="0 ranks by probability, which favours short texts")
    layer: int = Field(-1, ge=-64, le=63, description="decoder layer whose attention is shown; -1 is the last")
    head: int | None = Field(None, ge=0, le=255, description="one head; without it the mean of all")
    target: Text | None = Field(None, description="a translation by the user, to align")


class ErrorsRequest(Config):
    """Sources or prompts, one per line."""

    run: RunName
    lines: Text
    provoked: bool = Field(True, description="whether to try them scrambled, doubled and repeated, too")
    tokens: int = Field(40, ge=1, le=200, description="length limit of each text")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of the scrambling")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/next")
    def next_tokens(request: NextTokensRequest) -> Response:
        return respond_for_each(request.runs, run_store, lambda _, model: predict_next(model.writer, request))

    @router.post("/search")
    def search(request: SearchRequest) -> Response:
        with run_store.using(request.run) as model:
            return respond({"searches": [search_from(model.writer, request, pin) for pin in [[], *request.pins]]})

    @router.post("/tokens")
    def tokens(request: TokensRequest) -> Response:
        """The tokens of a word as it continues a text: those that a user forces."""
        with run_store.using(request.run) as model:
            tokenizer = model.text_tokenizer
            before, whole = tokenizer.encode(request.after), tokenizer.encode(request.after + request.text)
            ids = whole[len(before) :] if whole[: len(before)] == before else tokenizer.encode(request.text)
            return respond({"tokens": [{"token": each, "piece": tokenizer.show(each)} for each in ids]})

    @router.post("/translate")
    def translate(request: TranslationRequest) -> Response:
        with run_store.using(request.run) as model:
            (found,) = model.translator.translate(
                [request.text], beams=request.beams, length_penalty=request.length_penalty, longest=200
            )
            result: dict[str, Any] = {"translations": found, "alignment": None, "why_not": None}
            target = request.target or (found[0] if found else None)
            if target:
                try:
                    (result["alignment"],) = model.aligner.align(
                        [request.text], [target], layer=request.layer, head=request.head
                    )
                except ValueError as error:
                    result["why_not"] = str(error)
            return respond(result)

    @router.post("/errors")
    def errors(request: ErrorsRequest) -> Response:
        from lmlab.analysis.errors import find_errors

        lines = [line for line in request.lines.splitlines() if line.strip()]
        if len(lines) > MOST_LINES:
            raise ValueError(f"{len(lines)} texts: give at most {MOST_LINES}; lmlab inspect errors takes a file")
        model = run_store.open(request.run)  # not locked: it takes seconds, and others may use the model meanwhile
        found = find_errors(model, lines, tokens=request.tokens, seed=request.seed, provoked=request.provoked)
        return respond({"outputs": found.outputs, "aligned": found.aligned, "analysis": to_json(found)})

    return router


def predict_next(writer: Writer, request: NextTokensRequest) -> dict[str, Any]:
    """The best next tokens: `probability` is the model's, `sampled` the one after temperature and top-p."""
    import torch

    from lmlab.decoding.generate import StatefulReader
    from lmlab.decoding.sampling import Sampler, Sampling
    from lmlab.tokenizers.boundary import prompt_tokens

    tokenizer = writer.tokenizer
    ids = tokenizer.encode(request.text)
    row = torch.tensor([prompt_tokens(writer.frame, ids)], device=writer.model.device)
    with torch.inference_mode():
        logits = StatefulReader(writer.model, batch=1).read(row)
        sampler = Sampler(Sampling(temperature=request.temperature, top_p=request.top_p))
        sampled = sampler.apply_filters(logits)[0].double().softmax(-1)
        probabilities = logits[0].double().softmax(-1)
        best = probabilities.topk(min(request.top, len(probabilities)))
        logs = logits[0].double().log_softmax(-1).sort(descending=True).values[:MOST_SENT].float()
        entropy = float(torch.special.entr(probabilities).sum())
    context = ids[-CONTEXT:]
    before = tokenizer.decode(context)
    tokens = []
    for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        after = tokenizer.decode([*context, token])
        adds = after[len(before) :] if after.startswith(before) and "\ufffd" not in after else ""
        tokens.append(
            {
                "token": token,
                "piece": "■ end" if token == writer.end else tokenizer.show(token),
                "adds": adds,
                "probability": probability,
                "sampled": float(sampled[token]),
            }
        )
    return {
        "tokens": tokens,
        "read": len(ids),
        "perplexity": math.exp(entropy),
        "kept": int((sampled > 0).sum()),
        **(
            {"distribution": base64.b64encode(logs.cpu().numpy().astype("<f4").tobytes()).decode()}
            if request.distribution
            else {}
        ),
    }


def as_base64(values: Tensor) -> str:
    """Numbers as 32-bit floats, little-endian, in base64."""
    return base64.b64encode(values.cpu().numpy().astype("<f4").tobytes()).decode()


def search_from(writer: Writer, request: SearchRequest, pin: list[int]) -> dict[str, Any]:
    """The tree of a search that starts with the prompt and the tokens of a pin, whose scores are included."""
    import numpy as np
    import torch

    from lmlab.decoding.beam_search import beam_search
    from lmlab.decoding.scorer import ChainRule
    from lmlab.decoding.search_recorder import Recorder
    from lmlab.tokenizers.boundary import prompt_tokens

    tokenizer, model = writer.tokenizer, writer.model
    if pin and max(pin) >= model.vocabulary:
        raise ValueError(f"token {max(pin)} is outside the vocabulary of {model.vocabulary}")
    ids = [*tokenizer.encode(request.text), *pin]
    recorder = Recorder()
    (found,) = beam_search(
        model,
        torch.tensor([prompt_tokens(writer.frame, ids)], device=model.device),
        tokens=request.tokens,
        beams=request.beams,
        boundary=writer.end,
        length_penalty=request.length_penalty,
        watch=recorder,
    )
    tree = recorder.tree(
        found,
        show=tokenizer.show,
        decode=tokenizer.decode,
        boundary=writer.end,
        beams=request.beams,
        length_penalty=request.length_penalty,
        prompt=request.text,
    )
    nats: list[float] = []
    if pin:
        nats = ChainRule(model, writer.frame).nats([np.array(ids)])[0].tolist()[-len(pin) :]
    forced = [
        {"token": token, "piece": tokenizer.show(token), "log_probability": -each}
        for token, each in zip(pin, nats, strict=True)
    ]
    return {"forced": forced, "forced_total": -sum(nats), **tree.as_dict()}
