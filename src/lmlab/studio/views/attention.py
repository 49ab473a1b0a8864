"""Attention: all heads in one pass as small pictures, and the weights of one layer at a time, in half precision.

Tokens that are hidden from the model keep their rows and columns, which are zero where the model was not given them:
so positions stay the same, and weights can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.pass_cache import PassCache
from lmlab.studio.responses import RunName, Text, respond
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.attention import Attention
    from lmlab.language_model import LanguageModel


SMALL = 32
"""Rows and columns of the small picture of a head."""


class AttentionRequest(Config):
    """A run and a text; a translator generates the target if none is given."""

    run: RunName
    text: Text
    target: Text | None = None
    masked: Annotated[list[Annotated[int, Field(ge=0, le=100_000)]], Field(max_length=64)] = Field(
        [], description="positions of tokens that are hidden from the model"
    )


class HeadsRequest(AttentionRequest):
    """All heads of one kind of attention."""

    kind: str = Field("self", max_length=20)


class LayerRequest(HeadsRequest):
    """One layer of it."""

    layer: int = Field(0, ge=0, le=1000)


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)
    passes: PassCache[dict[str, Attention]] = PassCache(run_store, _size)

    def read(request: AttentionRequest) -> dict[str, Attention]:
        """The attention of a text, by kind."""
        from lmlab.analysis.attention import read_attention

        def look(model: LanguageModel) -> dict[str, Attention]:
            if not request.text.strip():
                raise ValueError("the text is empty: write something to look at")
            return read_attention(model, request.text, target=request.target, masked=request.masked)

        return passes.read(request.run, request.model_dump_json(include=set(AttentionRequest.model_fields)), look)

    @router.post("/attention")
    def attention(request: AttentionRequest) -> Response:
        return respond({"kinds": {kind: _about(each) for kind, each in read(request).items()}})

    @router.post("/attention/heads")
    def heads(request: HeadsRequest) -> Response:
        """Weights of all heads [L, H, t, s] as bytes: the root of the largest in each cell of a small picture."""
        import numpy as np

        weights = _spread(_of_kind(read(request), request.kind)).weights
        for axis in (2, 3):
            weights = np.maximum.reduceat(weights, _cells(weights.shape[axis]), axis=axis)
        return _send(np.rint(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8))

    @router.post("/attention/layer")
    def layer(request: LayerRequest) -> Response:
        """Weights [H, T, S] as little-endian float16."""
        weights = _spread(_of_kind(read(request), request.kind)).weights
        if request.layer >= len(weights):
            raise ValueError(f"layer = {request.layer}: there are {len(weights)}, from 0 on")
        return _send(weights[request.layer].astype("<f2"))

    return router


def _size(found: dict[str, Attention]) -> int:
    return sum(each.weights.nbytes for each in found.values())


def _send(values: Any) -> Response:
    headers = {"x-shape": ",".join(map(str, values.shape))}
    return Response(values.tobytes(), media_type="application/octet-stream", headers=headers)


def _of_kind(found: dict[str, Attention], kind: str) -> Attention:
    if kind not in found:
        raise ValueError(f"there is no {kind[:20]} attention; there is: {', '.join(found)}")
    return found[kind]


def _cells(tokens: int) -> list[int]:
    """The token at which each cell of a small picture begins."""
    count = min(tokens, SMALL)
    return [cell * tokens // count for cell in range(count)]


def _spread(attention: Attention) -> Attention:
    """Attention over all tokens: those that the model was not given have no weight, and none on them."""
    import numpy as np

    if not attention.removed:
        return attention
    queries, keys, special = list(attention.queries), list(attention.keys), list(attention.special)
    weights = attention.weights
    for position, token in attention.removed:
        keys.insert(position, token)
        special.insert(position, False)
        weights = np.insert(weights, position, 0, axis=3)
        if attention.kind != "cross":
            queries.insert(position, token)
            weights = np.insert(weights, position, 0, axis=2)
    return replace(attention, queries=queries, keys=keys, special=special, weights=weights, removed=())


def _about(attention: Attention) -> dict[str, Any]:
    layers, heads, _, _ = attention.weights.shape
    whole = _spread(attention)
    return {
        "queries": whole.queries,
        "keys": whole.keys,
        "special": whole.special,
        "removed": [position for position, _ in attention.removed],
        "layers": layers,
        "heads": heads,
        "does": [each._asdict() for each in attention.heads()],
    }
