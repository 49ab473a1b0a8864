"""Pictures: what a run predicts for a picture that the browser sends, and where in it each head attends."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, respond
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lmlab.analysis.pictures.attention import PictureAttention

MOST_BYTES = 8 << 20
"""Bytes of a picture, at most."""
MOST_BODY = MOST_BYTES // 3 * 4 + 4096
"""Bytes of a request with such a picture in base64."""
TOP = 5
"""Classes that are sent."""


class PictureRequest(Config):
    """A run, a picture, and the patch from which attention is shown."""

    run: RunName
    picture: str = Field(max_length=MOST_BODY, description="the content of a PNG, JPEG, WebP or GIF file, in base64")
    name: str = Field("the picture", max_length=200, description="name of the file, for errors")
    patch: int = Field(-1, ge=-1, le=100_000, description="number of the patch that attends; -1 for [CLS]")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/pictures")
    def pictures(request: PictureRequest) -> Response:
        from lmlab.analysis.pictures.attention import look

        pixels = decode_upload(request)
        with run_store.using(request.run) as model:
            found = look(model, pixels)
            return respond({**describe(found, request.patch), "classes": classify(model, found.pixels)})

    return router


def decode_upload(request: PictureRequest) -> NDArray[np.uint8]:
    """The pixels of a request; a ValueError says what is wrong with its picture."""
    from lmlab.data.readers.pictures.decoding import decode_picture
    from lmlab.messages import printable

    try:
        content = base64.b64decode(request.picture, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("picture: send the content of a PNG, JPEG, WebP or GIF file in base64") from None
    name = printable(request.name)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name} is larger than {MOST_BYTES >> 20} MiB; make it smaller")
    return decode_picture(content, name=name)


def describe(found: PictureAttention, patch: int) -> dict[str, Any]:
    """The picture as the model reads it, the weights [L, H, P] of its patches from one position, and rollout [P]."""
    from lmlab.pages.figures.pictures import data_uri

    rows, columns = found.grid
    if patch >= rows * columns:
        raise ValueError(f"patch = {patch}: there are {rows * columns}, from 0 on, and -1 for [CLS]")
    return {
        "picture": data_uri(found.pixels),
        "grid": [rows, columns],
        "weights": found.weights[:, :, 1 + patch, 1:],
        "rollout": found.rollout()[1 + patch, 1:],
        "heads": found.heads(),
    }


def classify(model: Any, pixels: NDArray[np.uint8]) -> list[dict[str, Any]]:
    """The most probable classes; none where the run has learnt no task."""
    from lmlab.data.readers.examples import Example
    from lmlab.data.readers.media import Picture

    if model.own_predictor is None:
        return []
    (found,) = model.own_predictor.predict([Example(media=Picture(pixels))])
    ranked = sorted(found.scores.items(), key=lambda each: -each[1])[:TOP]
    return [{"label": label, "probability": probability} for label, probability in ranked]
