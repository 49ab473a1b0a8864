"""Pictures: what a run predicts for a picture, and where in it each head attends; the nearest pictures of a text.

A picture is sent by the browser, or is one of those that the run did not learn from.
"""

from __future__ import annotations

import base64
import binascii
import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.held_out_access import HeldOutReader
from lmlab.studio.responses import RunName, respond
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lmlab.analysis.pictures.attention import PictureAttention
    from lmlab.data.corpora.pictures.split import PictureSplit

MOST_BYTES = 8 << 20
"""Bytes of a picture, at most."""
MOST_BODY = MOST_BYTES // 3 * 4 + 4096
"""Bytes of a request with such a picture in base64."""
TOP = 5
"""Classes that are sent."""
MOST_EXAMPLES, MOST_SEARCHED, SHOWN = 24, 1000, 8
"""Held-out pictures that are offered, searched for a text, and shown as its nearest."""
THUMBNAIL = 64
"""Pixels of the longer side of a small picture."""


class PictureRequest(Config):
    """A run, a picture, and the patch from which attention is shown."""

    run: RunName
    picture: str = Field(
        "", max_length=MOST_BODY, description="the content of a PNG, JPEG, WebP or GIF file, in base64"
    )
    example: int = Field(-1, ge=-1, description="in its place: the number of a held-out picture of the run")
    name: str = Field("the picture", max_length=200, description="name of the file, for errors")
    patch: int = Field(-1, ge=-1, le=100_000, description="number of the patch that attends; -1 for [CLS]")
    labels: list[str] = Field([], max_length=50, description="zero-shot labels, of a model of pictures and texts")
    template: str = Field("{}", max_length=200, description="text around a label")


class ExamplesRequest(Config):
    """A run whose held-out pictures are shown."""

    run: RunName


class FindRequest(Config):
    """A run, and the text for which its held-out pictures are searched."""

    run: RunName
    text: str = Field(max_length=2000)


def make_router(run_store: RunStore, held_out: HeldOutReader) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)
    vectors: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # of held-out pictures, by model

    @router.post("/pictures")
    def pictures(request: PictureRequest) -> Response:
        from lmlab.analysis.pictures.attention import look

        pixels = open_pixels(request, held_out)
        with run_store.using(request.run) as model:
            found = look(model, pixels)
            return respond({**describe(found, request.patch), **classify(model, found.pixels, request)})

    @router.post("/pictures/examples")
    def examples(request: ExamplesRequest) -> Response:
        split = held_out.pictures(request.run)
        rows = range(min(split.size, MOST_EXAMPLES))
        return respond({"examples": [show(split, row) for row in rows], "pictures": split.size})

    @router.post("/pictures/find")
    def find(request: FindRequest) -> Response:
        from lmlab.analysis.pictures.search import rank

        split = held_out.pictures(request.run)
        if not request.text.strip():
            raise ValueError("text is empty: give a few words")
        with run_store.using(request.run) as model:
            matcher = model.matcher
            if model.model not in vectors:
                count = min(len(split.pixels), MOST_SEARCHED)
                vectors[model.model] = matcher.embed_pixels(split.pixels[number] for number in range(count))
            numbers, cosines = rank(matcher.embed_texts([request.text]), vectors[model.model], SHOWN)
            unknown = matcher.unknown_words([request.text])
        rows = split.pictures.tolist()
        hits = [
            {**show(split, rows.index(number)), "cosine": cosine}
            for number, cosine in zip(numbers, cosines, strict=True)
        ]
        return respond({"hits": hits, "searched": len(vectors[model.model]), "unknown": unknown})

    return router


def show(split: PictureSplit, row: int) -> dict[str, Any]:
    """A held-out picture as a small one, with its number and what is known of it."""
    import numpy as np

    from lmlab.pages.figures.pictures import data_uri
    from lmlab.tokenizers.processors.pictures import make_thumbnail

    texts = [texts[row] for texts in split.fields.values()]
    known = [*texts, *([] if split.labels[row] is None else [str(split.labels[row])])]
    pixels = np.asarray(split.pixels[split.pictures[row]])
    return {"example": row, "picture": data_uri(make_thumbnail(pixels, THUMBNAIL)), "text": "; ".join(known)}


def open_pixels(request: PictureRequest, held_out: HeldOutReader) -> NDArray[np.uint8]:
    """The pixels of the picture that a request sends, or of the held-out picture that it names."""
    if request.example < 0:
        return decode_upload(request)
    split = held_out.pictures(request.run)
    if request.example >= split.size:
        raise ValueError(f"example = {request.example}: there are {split.size} held-out pictures, from 0 on")
    return split.picture(request.example).pixels


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


def classify(model: Any, pixels: NDArray[np.uint8], request: PictureRequest) -> dict[str, Any]:
    """The most probable classes, or zero-shot labels with the words that the run does not know; none without a task."""
    from lmlab.data.readers.examples import Example
    from lmlab.data.readers.media import Picture

    if request.labels:
        matcher = model.matcher
        with warnings.catch_warnings(action="ignore"):  # unknown words are part of the answer
            found = matcher.classify(matcher.embed_pixels([pixels]), request.labels, [request.template])
        classes = [{"label": label, "probability": probability} for label, probability in found.ranked(0)]
        return {"classes": classes, "unknown": matcher.unknown_words(request.labels)}
    if model.own_predictor is None:
        return {"classes": [], "unknown": []}
    (prediction,) = model.own_predictor.predict([Example(media=Picture(pixels))])
    ranked = sorted(prediction.scores.items(), key=lambda each: -each[1])[:TOP]
    return {"classes": [{"label": label, "probability": probability} for label, probability in ranked], "unknown": []}
