"""Speech: the transcript of a recording that the browser sends, with the time of each word and its spectrogram."""

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

    from lmlab.data.readers.media import Sound
    from lmlab.decoding.speech.transcriber import Transcriber

MOST_BYTES = 16 << 20
"""Bytes of a recording, at most."""
MOST_BODY = MOST_BYTES // 3 * 4 + 4096
"""Bytes of a request with such a recording in base64."""
MOST_SECONDS = 600
"""The longest recording: other requests wait while it is transcribed."""
MOST_COLUMNS, MOST_BANDS = 900, 80
"""Size of the spectrogram that is sent."""


class SpeechRequest(Config):
    """A run and a recording."""

    run: RunName
    recording: str = Field(max_length=MOST_BODY, description="the content of a WAV file, in base64")
    name: str = Field("the recording", max_length=200, description="name of the file, for errors")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/speech")
    def speech(request: SpeechRequest) -> Response:
        sound = decode_recording(request)
        with run_store.using(request.run) as model:
            return respond(hear(model.transcriber, sound))

    return router


def decode_recording(request: SpeechRequest) -> Sound:
    """The recording of a request; a ValueError says what is wrong with it."""
    from lmlab.data.readers.sounds import decode_sound
    from lmlab.messages import printable

    try:
        content = base64.b64decode(request.recording, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("recording: send the content of a WAV file in base64") from None
    name = printable(request.name)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name} is larger than {MOST_BYTES >> 20} MiB; cut it, or use lmlab transcribe")
    sound = decode_sound(content, name=name)
    seconds = len(sound.samples) / sound.rate
    if seconds > MOST_SECONDS:
        raise ValueError(
            f"{name} is {seconds / 60:.1f} min long, and the studio reads {MOST_SECONDS // 60}: use lmlab transcribe"
        )
    return sound


def hear(transcriber: Transcriber, sound: Sound) -> dict[str, Any]:
    """The transcript with word times, and the spectrogram as bytes in base64, row by row from the lowest band."""
    import numpy as np

    found = transcriber.transcribe(sound, words=True)
    samples = transcriber.processor.resample(sound.samples, sound.rate)
    values = shrink(transcriber.processor.log_mel(samples).numpy())
    low, high = float(values.min()), float(values.max())
    pixels = np.round(255 * (values - low) / max(high - low, 1e-9)).astype(np.uint8)
    return {
        "text": found.text,
        "seconds": found.seconds,
        "language": found.language,
        "words": [word for segment in found.segments for word in segment.words],
        "spectrogram": {
            "bands": pixels.shape[0],
            "columns": pixels.shape[1],
            "values": base64.b64encode(pixels.tobytes()).decode("ascii"),
        },
    }


def shrink(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A spectrogram of at most MOST_BANDS × MOST_COLUMNS, each the largest of those that it stands for."""
    import numpy as np

    for axis, most in ((0, MOST_BANDS), (1, MOST_COLUMNS)):
        count = min(most, values.shape[axis])
        starts = np.arange(count) * values.shape[axis] // count
        values = np.maximum.reduceat(values, starts, axis=axis)
    return values
