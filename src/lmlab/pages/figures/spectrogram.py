"""A spectrogram with the words of the recording, and the attention of each token below it on the same time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from lmlab.pages.figures.palette import PALETTE
from lmlab.pages.figures.pictures import data_uri
from lmlab.pages.figures.svg import INK, LINE, SOFT, cut, drawing, element, label, tooltip, widest

WIDTH, SOUND, WORDS, ROW = 820.0, 120.0, 42.0, 15.0
"""Pixels: width of the time axis, height of the spectrogram, of the two lines of words, and of a token."""
TICKS = 12
"""Labels of the time axis, at most."""
COLOURS = ((13, 8, 40), (74, 30, 110), (190, 60, 90), (250, 160, 60), (252, 250, 190))
"""From the weakest to the strongest value of a spectrogram."""


class TimedWord(NamedTuple):
    """A word with its time in seconds."""

    text: str
    begin: float
    end: float


@dataclass(frozen=True)
class SoundAttention:
    """A spectrogram over time, its words, and where in the sound each token attends."""

    title: str
    sound: NDArray[np.float32]
    """[M, F], low frequencies first."""
    seconds: float
    words: Sequence[TimedWord] = ()
    tokens: Sequence[str] = ()
    weights: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """[T, S]: of each token, over the whole time."""

    @property
    def inches(self) -> tuple[float, float]:
        return 11.0, 2.6 + 0.2 * len(self.tokens)

    def html(self) -> Markup:
        left = 14 + widest(self.tokens, 16)
        height = WORDS + SOUND + ROW * len(self.tokens) + 34
        return drawing(self._parts(left), width=left + WIDTH + 12, height=height, title=self.title)

    def _parts(self, left: float) -> Iterator[Markup]:
        scale = WIDTH / max(self.seconds, 1e-9)
        yield _image(colour_sound(self.sound), x=left, y=WORDS, width=WIDTH, height=SOUND)
        free = [left, left]  # where the next word can be written in each of the two lines
        for word in self.words:
            x, wide = left + word.begin * scale, max(1.0, (word.end - word.begin) * scale)
            box = tooltip(f"{word.text}: {word.begin:.2f} to {word.end:.2f} s")
            yield element(
                "rect",
                box,
                x=x,
                y=WORDS,
                width=wide,
                height=SOUND,
                style="fill:transparent;stroke:#fff;stroke-opacity:.4",
            )
            line = next((line for line in (0, 1) if x >= free[line]), None)
            if line is not None:  # a word that would cover others is left out; the pointer shows it
                yield label(x + 2, WORDS - 8 - 15 * line, cut(word.text, 16))
                free[line] = x + widest([word.text], 16) + 4
        top = WORDS + SOUND
        if len(self.tokens):
            yield _image(colour_weights(self.weights), x=left, y=top, width=WIDTH, height=ROW * len(self.tokens))
        for number, token in enumerate(self.tokens):
            y = top + ROW * (number + 1)
            yield label(left - 6, y - 3.5, cut(token, 16), anchor="end")
            yield element("line", x1=left, x2=left + WIDTH, y1=y, y2=y, style=f"stroke:{LINE};stroke-width:.5")
        bottom = top + ROW * len(self.tokens)
        for second in ticks(self.seconds):
            x = left + second * scale
            yield element("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, style=f"stroke:{INK}")
            yield label(x, bottom + 19, f"{second:g} s", anchor="middle", fill=SOFT)

    def draw(self, axes: Any) -> None:
        high = max(1, len(self.tokens))
        axes.imshow(colour_sound(self.sound), extent=(0, self.seconds, -0.5, -0.5 - 0.6 * high), aspect="auto")
        if len(self.tokens):
            axes.imshow(colour_weights(self.weights), extent=(0, self.seconds, high - 0.5, -0.5), aspect="auto")
        axes.set_ylim(high - 0.5, -0.5 - 0.6 * high)
        axes.set_yticks(range(len(self.tokens)), [cut(token, 16) for token in self.tokens])
        for word in self.words:
            axes.text(word.begin, -0.7, cut(word.text, 16), color="white", fontsize=7)
        axes.set_xlabel("seconds")


def _image(pixels: NDArray[np.uint8], **position: float) -> Markup:
    return element(
        "image",
        href=data_uri(pixels),
        preserveAspectRatio="none",
        style="image-rendering:pixelated",
        **position,
    )


def colour_sound(sound: NDArray[np.float32]) -> NDArray[np.uint8]:
    """A spectrogram [M, F] as pixels [M, F, 3], high frequencies first."""
    low, high = float(sound.min()), float(sound.max())
    position = (sound[::-1] - low) / max(high - low, 1e-9) * (len(COLOURS) - 1)
    steps = np.arange(len(COLOURS))
    bands = [np.interp(position, steps, [colour[band] for colour in COLOURS]) for band in range(3)]
    return np.stack(bands, axis=-1).round().astype(np.uint8)


def colour_weights(weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Weights [T, S] as pixels [T, S, 3], white for none; of each row the largest has the full colour."""
    strongest = np.maximum(weights.max(1, keepdims=True), 1e-9)
    full = np.array([int(PALETTE[0][position : position + 2], 16) for position in (1, 3, 5)])
    mixed = 255 - np.sqrt(weights / strongest)[..., None] * (255 - full)
    return np.asarray(mixed.round(), np.uint8)


def ticks(seconds: float) -> list[float]:
    """Round times from 0 to the end of a recording."""
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60)
    step = next((each for each in steps if seconds / each <= TICKS), seconds / TICKS)
    return [round(number * step, 6) for number in range(int(seconds / step + 1e-9) + 1)]
