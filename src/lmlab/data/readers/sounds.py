"""Recordings from files: WAV of any rate and width without further packages, the rest with the extra `audio`.

A file is not trusted: sizes in its header are compared with the bytes that are there before memory is taken.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.media import Sound
from lmlab.files import write_bytes

MOST_SECONDS = 6 * 3600
"""The longest recording that is read; longer ones are an error, since all samples are held in memory."""
MOST_CHANNELS = 64
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
CODECS = {2: "ADPCM", 6: "A-law", 7: "mu-law", 17: "IMA ADPCM", 49: "GSM 6.10", 85: "MP3"}
"""Names of codecs that WAV files have, by their numbers."""
UNKNOWN_SIZE = 0xFFFFFFFF
"""The length that programs write when they do not know it yet: the sound ends with the file."""
EXTRA = "pip install 'lmlab[audio]'"
RATES = (1_000, 768_000)


class Format(NamedTuple):
    """The `fmt ` chunk of a WAV file."""

    code: int  # PCM or FLOAT, or the number of a codec
    channels: int
    rate: int
    width: int  # bytes of a sample


def read_sound(path: str | Path) -> Sound:
    """A recording as one channel of samples from -1 to 1; a ValueError says what is wrong with the file."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    return decode_sound(content, name=str(path))


def decode_sound(content: bytes, *, name: str) -> Sound:
    """The recording in the content of a file; errors call the file by `name`."""
    if not content:
        raise ValueError(f"{name} is empty: it has no bytes")
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        samples, rate = _decode_wav(content, name)
    else:
        samples, rate = _decode_others(content, name, what="is not a WAV file")
    if not len(samples):
        raise ValueError(f"{name} has no sound: its length is 0 seconds")
    if not np.isfinite(samples).all():
        raise ValueError(f"{name} has samples that are not numbers (NaN or infinity); export it again as PCM")
    return Sound(samples, rate)


def _decode_wav(content: bytes, name: str) -> tuple[NDArray[np.float32], int]:
    """The samples [N] of a WAV file and its rate; codecs other than PCM and float need the extra."""
    form: Format | None = None
    position = 12
    while position + 8 <= len(content):
        key, size = content[position : position + 4], struct.unpack_from("<I", content, position + 4)[0]
        position += 8
        if key == b"fmt ":
            form = _read_format(content[position : position + size], name)
            if form.code not in (PCM, FLOAT):
                codec = CODECS.get(form.code, f"codec number {form.code}")
                return _decode_others(content, name, what=f"is a WAV file with {codec} samples, not PCM or float")
        elif key == b"data":
            if form is None:
                raise ValueError(f"{name} is a damaged WAV file: its sound comes before its format")
            _check_length(form, size, len(content) - position, name)
            return _samples(content[position : position + size], form), form.rate
        position += size + size % 2
    raise ValueError(f"{name} is a damaged WAV file: it has no sound (no data chunk)")


def _read_format(chunk: bytes, name: str) -> Format:
    if len(chunk) < 16:
        raise ValueError(f"{name} is a damaged WAV file: its format chunk has {len(chunk)} bytes, not 16")
    code, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == EXTENSIBLE and len(chunk) >= 26:
        code = struct.unpack_from("<H", chunk, 24)[0]
    form = Format(code, channels, rate, -(-bits // 8))
    if code not in (PCM, FLOAT):
        return form
    widths = (1, 2, 3, 4) if code == PCM else (4, 8)
    if not 1 <= channels <= MOST_CHANNELS or form.width not in widths or block != channels * form.width:
        kind = "PCM" if code == PCM else "float"
        raise ValueError(
            f"{name} is a damaged WAV file: {channels} channels of {bits}-bit {kind} samples in blocks of {block} bytes"
        )
    if not RATES[0] <= rate <= RATES[1]:
        raise ValueError(f"{name} has {rate:,} samples per second; recordings have {RATES[0]:,} to {RATES[1]:,}")
    return form


def _check_length(form: Format, stated: int, there: int, name: str) -> None:
    """A ValueError where the header states more sound than the file has, or more than is read."""
    second = form.channels * form.width * form.rate
    if stated != UNKNOWN_SIZE and stated > there:
        raise ValueError(
            f"{name} states {stated / second:,.1f} seconds of sound in its header, but has {there / second:,.1f}: "
            "it was cut off; fetch or record it again"
        )
    check_seconds(min(stated, there) / second, name)


def check_seconds(seconds: float, name: str) -> None:
    """A ValueError for a recording that is too long to be held in memory."""
    if seconds > MOST_SECONDS:
        raise ValueError(
            f"{name} is {seconds / 3600:,.1f} hours long, and at most {MOST_SECONDS // 3600} hours are read at once; "
            "cut it into parts"
        )


def _samples(data: bytes, form: Format) -> NDArray[np.float32]:
    """The mean of all channels, from -1 to 1."""
    data = data[: len(data) - len(data) % (form.width * form.channels)]
    values: NDArray[np.float64]
    if form.code == FLOAT:
        values = np.frombuffer(data, f"<f{form.width}").astype(np.float64)
    elif form.width == 1:
        values = (np.frombuffer(data, np.uint8) - 128.0) / 128
    elif form.width == 3:
        whole = np.zeros((len(data) // 3, 4), np.uint8)
        whole[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = whole.view("<i4")[:, 0] / 2.0**31
    else:
        values = np.frombuffer(data, f"<i{form.width}") / 2.0 ** (8 * form.width - 1)
    return np.asarray(values.reshape(-1, form.channels).mean(1), np.float32)


def _decode_others(content: bytes, name: str, *, what: str) -> tuple[NDArray[np.float32], int]:
    """The samples [N] and the rate of a file that is not plain WAV, by soundfile; `what` says what it is."""
    try:
        import soundfile
    except ImportError:
        raise ValueError(
            f"{name} {what}; convert it to 16-bit PCM, or to read FLAC, OGG, MP3 and others: {EXTRA}"
        ) from None
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            check_seconds(file.frames / max(1, file.samplerate), name)
            if not RATES[0] <= file.samplerate <= RATES[1] or file.channels > MOST_CHANNELS:
                raise ValueError(f"{name} has {file.channels} channels of {file.samplerate:,} samples per second")
            samples = file.read(dtype="float32", always_2d=True)
            return np.asarray(samples.mean(1, dtype=np.float32)), int(file.samplerate)
    except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:
        reason = str(error).strip().rstrip(".").rpartition(": ")[2].lower()  # what comes before it is our buffer
        raise ValueError(f"{name} is not a readable recording ({reason}); convert it to WAV or FLAC") from None


def write_wav(path: Path, samples: NDArray[np.float32], rate: int) -> None:
    """Write samples from -1 to 1 as a WAV file of one channel and 16 bits."""
    write_bytes(path, encode_wav(samples, rate))


def encode_wav(samples: NDArray[np.float32], rate: int) -> bytes:
    """Samples from -1 to 1 as the content of a WAV file of one channel and 16 bits."""
    data = (np.clip(samples, -1, 1) * 32767).round().astype("<i2").tobytes()
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, PCM, 1, rate, 2 * rate, 2, 16)
    return head + struct.pack("<4sI", b"data", len(data)) + data
