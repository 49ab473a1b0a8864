"""Sound as log-mel spectrograms: resampling, the mel filters by their formula, and windows of fixed length.

Radford et al. 2022, section 2.2: 16,000 samples per second, 80 mel bands, frames of 25 ms every 10 ms. The largest
value of a recording becomes about 1, and what is 8 powers of ten weaker is raised to that level.
Shapes: N samples, F frames, M mel bands, K = fft / 2 + 1 frequencies.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.files import write_text

RATES = (1_000, 768_000)
"""The lowest and the highest number of samples per second of a recording."""
CROSSINGS = 32
"""Zero crossings of the low-pass filter on each side: more give a steeper edge."""
BETA = 10.0
"""Shape of the Kaiser window over the filter: what is above the edge is about 100 dB weaker."""
CHUNK = 2**15
"""Samples that are resampled at once."""
DYNAMIC_RANGE = 8.0
"""Powers of ten between the strongest and the weakest value of a spectrogram."""


@dataclass(frozen=True, kw_only=True)
class SoundProcessor:
    """Recordings to log-mel spectrograms."""

    kind: ClassVar[str] = "sounds"
    item: ClassVar[str] = "recording"

    rate: int = 16_000
    """Samples per second."""
    mels: int = 80
    """Mel bands."""
    fft: int = 400
    """Samples of a frame."""
    hop: int = 160
    """Samples from one frame to the next."""
    seconds: float = 30.0
    """Length of the windows in which long recordings are read."""
    pad: bool = True
    """Whether silence fills up a window, as in the published models; else windows end where the recording does."""

    def __post_init__(self) -> None:
        values = {name: value for name, value in asdict(self).items() if name != "pad"}
        if wrong := [f"{name} = {value!r}" for name, value in values.items() if not 0 < value < 2**20]:
            raise ValueError(f"{wrong[0]} of a sound processor: give a number above 0 and below a million")
        if self.hop > self.fft or not RATES[0] <= self.rate <= RATES[1]:
            raise ValueError(f"rate = {self.rate}, fft = {self.fft}, hop = {self.hop}: these give no spectrogram")

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> Self:
        """The processor of the settings in a `processor.json`; a ValueError names a setting that it does not have."""
        own = {name: value for name, value in values.items() if name != "kind"}
        if unknown := own.keys() - cls.__dataclass_fields__.keys():
            raise ValueError(f"a sound processor has no setting {sorted(unknown)[0]!r}")
        return cls(**own)

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of all settings: equal processors give equal spectrograms."""
        return hashlib.sha256(json.dumps([self.kind, 1, self.settings()]).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write `processor.json`."""
        write_text(path, json.dumps({"kind": self.kind, **self.settings()}, indent=2) + "\n")

    @property
    def window(self) -> int:
        """The samples of a window."""
        return round(self.seconds * self.rate)

    @property
    def frames(self) -> int:
        """The frames of a whole window."""
        return self.window // self.hop

    @property
    def frames_per_second(self) -> float:
        return self.rate / self.hop

    def resample(self, samples: NDArray[np.float32], rate: int) -> Tensor:
        """Samples [N] of a recording with `rate` per second -> samples at the rate of the processor."""
        return resample(torch.from_numpy(np.ascontiguousarray(samples, np.float32)), rate, self.rate)

    def process(self, samples: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
        """A recording that fits into a window -> its spectrogram [M, F]."""
        return self.spectrogram(self.resample(samples, rate)).numpy()

    def spectrogram(self, samples: Tensor) -> Tensor:
        """Samples [N] at the rate of the processor, at most a window of them -> log-mel spectrogram [M, F]."""
        if len(samples) > self.window:
            raise ValueError(
                f"{len(samples) / self.rate:.1f} seconds of sound do not fit into a window of {self.seconds:g} seconds"
            )
        whole = self.window if self.pad else max(self.fft, self.hop * math.ceil(len(samples) / self.hop))
        return self.log_mel(torch.nn.functional.pad(samples, (0, whole - len(samples))))

    def log_mel(self, samples: Tensor) -> Tensor:
        """max(log10 mel, largest − 8) / 4 + 1 of samples [N] -> [M, N / hop]."""
        window = torch.hann_window(self.fft, dtype=torch.float32)
        frames = torch.stft(samples, self.fft, self.hop, window=window, return_complex=True, pad_mode="reflect")
        power = frames[:, :-1].abs() ** 2  # [K, F]; the last frame is centred after the end
        filters = torch.from_numpy(mel_filters(self.mels, rate=self.rate, fft=self.fft))
        logarithm = (filters @ power).clamp(min=1e-10).log10()
        return logarithm.clamp(min=float(logarithm.max()) - DYNAMIC_RANGE) / 4 + 1


@lru_cache
def mel_filters(mels: int, *, rate: int = 16_000, fft: int = 400) -> NDArray[np.float32]:
    """Triangles [M, K] between points that are evenly spaced on the mel scale of Slaney 1998, each of area 1."""
    frequencies = np.linspace(0, rate / 2, fft // 2 + 1)
    points = mel_to_hertz(np.linspace(0, hertz_to_mel(np.array(rate / 2)), mels + 2))
    low, middle, high = points[:-2, None], points[1:-1, None], points[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return np.asarray(triangles * 2 / (high - low), np.float32)


LINEAR = 200 / 3
"""Hertz of a mel below 1,000 Hz."""
STEP = math.log(6.4) / 27
"""Natural logarithm of the ratio of two frequencies above 1,000 Hz that are one mel apart."""


def hertz_to_mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mel scale of Slaney's Auditory Toolbox: linear to 1,000 Hz, logarithmic above."""
    return np.where(hertz < 1000, hertz / LINEAR, 15 + np.log(np.maximum(hertz, 1000) / 1000) / STEP)


def mel_to_hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    """The reverse of `hertz_to_mel`."""
    return np.where(mel < 15, LINEAR * mel, 1000 * np.exp(STEP * (mel - 15)))


def resample(samples: Tensor, rate: int, to: int) -> Tensor:
    """Samples [N] with `rate` per second -> samples with `to` per second: a low-pass filter at each new time.

    Output n is at input time t = n·rate/to; it is Σ_k x_k c sinc(c(t − k)) w(t − k), where c is the edge of the filter
    in units of the input's, and w a Kaiser window of 32 zero crossings on each side.
    """
    if not RATES[0] <= rate <= RATES[1]:
        raise ValueError(f"{rate:,} samples per second: recordings have {RATES[0]:,} to {RATES[1]:,}")
    if rate == to or not len(samples):
        return samples
    up, down = to // math.gcd(rate, to), rate // math.gcd(rate, to)
    edge = min(1.0, to / rate) * 0.97  # a little below: the filter needs room to fall
    half = math.ceil(CROSSINGS / edge)
    table = _filters(up, half, edge)
    padded = torch.nn.functional.pad(samples, (half, half + 1))
    taps, parts = torch.arange(2 * half + 1), []
    for numbers in torch.split(torch.arange(math.ceil(len(samples) * up / down)), CHUNK):
        begin, phase = numbers * down // up, numbers * down % up
        parts.append((padded[begin[:, None] + taps] * table[phase]).sum(1))
    return torch.cat(parts)


@lru_cache(maxsize=4)
def _filters(up: int, half: int, edge: float) -> Tensor:
    """[up, 2·half + 1]: the filter around each of the `up` places between two input samples."""
    offsets = torch.arange(up, dtype=torch.float64)[:, None] / up - torch.arange(-half, half + 1)
    shape = torch.i0(BETA * (1 - (offsets / half).square()).clamp(min=0).sqrt()) / torch.i0(torch.tensor(BETA))
    weights = edge * torch.sinc(edge * offsets) * shape * (offsets.abs() <= half)
    return (weights / weights.sum(1, keepdim=True)).float()
