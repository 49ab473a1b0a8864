"""Attention: what each head of one pass looks at; the weights travel one layer at a time, in half precision."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any
from weakref import ref

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, Text, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.analysis.attention import Attention
    from lmlab.language_model import LanguageModel

KEPT = 4
"""Passes that are remembered: with a token masked and without, of the text before and of this one."""


ROOM = 2**28
"""Bytes of weights that are remembered, but for the last pass."""


class Asked(Config):
    """Of which run and text; a translator writes the target itself if none is given."""

    run: RunName
    text: Text
    target: Text | None = None
    masked: Annotated[list[Annotated[int, Field(ge=0, le=100_000)]], Field(max_length=64)] = Field(
        [], description="places of tokens that are hidden from the model"
    )


class Layer(Asked):
    """One layer of one kind of attention."""

    kind: str = Field("self", max_length=20)
    layer: int = Field(0, ge=0, le=1000)


class Passes:
    """The last few passes, so that going from layer to layer reads the text once."""

    def __init__(self, run_store: RunStore) -> None:
        self.run_store, self._lock = run_store, Lock()
        self._kept: OrderedDict[str, tuple[ref[LanguageModel], dict[str, Attention]]] = OrderedDict()

    def read(self, asked: Asked) -> dict[str, Attention]:
        """The attention of a text, by kind."""
        from lmlab.analysis.attention import read_attention

        with self.run_store.using(asked.run) as model:
            key = asked.model_dump_json(include=set(Asked.model_fields))
            with self._lock:
                if key in self._kept and self._kept[key][0]() is model:  # not one that was trained further since
                    self._kept.move_to_end(key)
                    return self._kept[key][1]
            if not asked.text.strip():
                raise ValueError("the text is empty: write something to look at")
            found = read_attention(model, asked.text, target=asked.target, masked=asked.masked)
            with self._lock:
                self._kept[key] = ref(model), found
                self._kept.move_to_end(key)
                while len(self._kept) > 1 and (len(self._kept) > KEPT or self._size() > ROOM):
                    self._kept.popitem(last=False)
            return found

    def _size(self) -> int:
        return sum(each.weights.nbytes for _, found in self._kept.values() for each in found.values())


def make_router(run_store: RunStore) -> APIRouter:
    router, passes = APIRouter(route_class=HeavyRoute), Passes(run_store)

    @router.post("/attention")
    def attention(asked: Asked) -> Response:
        return answer({"kinds": {kind: _about(each) for kind, each in passes.read(asked).items()}})

    @router.post("/attention/layer")
    def layer(asked: Layer) -> Response:
        """Weights [H, T, S] as little-endian float16."""
        found = passes.read(asked)
        if asked.kind not in found:
            raise ValueError(f"there is no {asked.kind[:20]} attention; there is: {', '.join(found)}")
        weights = found[asked.kind].weights
        if asked.layer >= len(weights):
            raise ValueError(f"layer = {asked.layer}: there are {len(weights)}, from 0 on")
        one = weights[asked.layer]
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
