"""The next word: what several runs expect after the same text, and what of it would be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, Text, answer_for_each
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.decoding.writer import Writer

CONTEXT = 48
"""Tokens before the next one that are decoded with it, to see what text it adds."""


class Asked(Config):
    """After which text, of which runs, and how tokens would be drawn."""

    runs: RunNames
    text: Text = ""
    top: int = Field(12, ge=1, le=100, description="tokens that are shown")
    temperature: float = Field(1.0, ge=0.05, le=5, description="below 1 sharpens, above 1 flattens")
    top_p: float = Field(1.0, gt=0, le=1, description="the nucleus that is drawn from")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/next")
    def next_words(asked: Asked) -> Response:
        return answer_for_each(asked.runs, run_store, lambda model: expect(model.writer, asked))

    return router


def expect(writer: Writer, asked: Asked) -> dict[str, Any]:
    """The best next tokens: `probability` is the model's, `drawn` that of drawing it with temperature and top-p."""
    import torch

    from lmlab.decoding.generate import Reader
    from lmlab.decoding.sampling import Sampler, Sampling
    from lmlab.tokenizers.boundary import prompt_tokens

    tokenizer = writer.tokenizer
    ids = tokenizer.encode(asked.text)
    row = torch.tensor([prompt_tokens(writer.frame, ids)], device=writer.model.device)
    with torch.inference_mode():
        logits = Reader(writer.model, batch=1).read(row)
        shape = Sampler(Sampling(temperature=asked.temperature, top_p=asked.top_p)).apply_filters
        drawn = shape(logits)[0].double().softmax(-1)
        probabilities = logits[0].double().softmax(-1)
        best = probabilities.topk(min(asked.top, len(probabilities)))
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
                "drawn": float(drawn[token]),
            }
        )
    return {
        "tokens": tokens,
        "read": len(ids),
        "perplexity": 2.718281828459045**entropy,
        "kept": int((drawn > 0).sum()),
    }
