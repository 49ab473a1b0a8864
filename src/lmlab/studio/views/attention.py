"""Attention: the weights of each head in one pass; they are sent one layer at a time, in half precision."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any
from weakref import ref

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, Text, respond
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.attention import Attention
    from lmlab.language_model import LanguageModel

KEPT = 4
"""Passes that are cached: with a masked token and without, for the last two texts."""
ROOM = 2**28
"""Bytes of cached weights; the last pass is kept in any case."""


class AttentionRequest(Config):
    """A run and a text; a translator generates the target if none is given."""

    run: RunName
    text: Text
    target: Text | None = None
    masked: Annotated[list[Annotated[int, Field(ge=0, le=100_000)]], Field(max_length=64)] = Field(
        [], description="positions of tokens that are hidden from the model"
    )


class LayerRequest(AttentionRequest):
    """One layer of one kind of attention."""

    kind: str = Field("self", max_length=20)
    layer: int = Field(0, ge=0, le=1000)


class PassCache:
    """A cache of the last passes, so that another layer needs no new pass."""

    def __init__(self, run_store: RunStore) -> None:
        self.run_store, self._lock = run_store, Lock()
        self._kept: OrderedDict[str, tuple[ref[LanguageModel], dict[str, Attention]]] = OrderedDict()

    def read(self, request: AttentionRequest) -> dict[str, Attention]:
        """The attention of a text, by kind."""
        from lmlab.analysis.attention import read_attention

        with self.run_store.using(request.run) as model:
            key = request.model_dump_json(include=set(AttentionRequest.model_fields))
            with self._lock:
                if key in self._kept and self._kept[key][0]() is model:  # not one that was trained further since
                    self._kept.move_to_end(key)
                    return self._kept[key][1]
            if not request.text.strip():
                raise ValueError("the text is empty: write something to look at")
            found = read_attention(model, request.text, target=request.target, masked=request.masked)
            with self._lock:
                self._kept[key] = ref(model), found
                self._kept.move_to_end(key)
                while len(self._kept) > 1 and (len(self._kept) > KEPT or self._size() > ROOM):
                    self._kept.popitem(last=False)
            return found

    def _size(self) -> int:
        return sum(each.weights.nbytes for _, found in self._kept.values() for each in found.values())


def make_router(run_store: RunStore) -> APIRouter:
    router, passes = APIRouter(route_class=HeavyRoute), PassCache(run_store)

    @router.post("/attention")
    def attention(request: AttentionRequest) -> Response:
        return respond({"kinds": {kind: _about(each) for kind, each in passes.read(request).items()}})

    @router.post("/attention/layer")
    def layer(request: LayerRequest) -> Response:
        """Weights [H, T, S] as little-endian float16."""
        found = passes.read(request)
        if request.kind not in found:
            raise ValueError(f"there is no {request.kind[:20]} attention; there is: {', '.join(found)}")
        weights = found[request.kind].weights
        if request.layer >= len(weights):
            raise ValueError(f"layer = {request.layer}: there are {len(weights)}, from 0 on")
        one = weights[request.layer]
        headers = {"x-shape": ",".join(map(str, one.shape))}
        return Response(one.astype("<f2").tobytes(), media_type="application/octet-stream", headers=headers)

    return router


def _about(attention: Attention) -> dict[str, Any]:
    layers, heads, _, _ = attention.weights.shape
    return {
        "queries": attention.queries,
        "keys": attention.keys,
        "special": attention.special,
        "layers": layers,
        "heads": heads,
        "does": [each._asdict() for each in attention.heads()],
    }
