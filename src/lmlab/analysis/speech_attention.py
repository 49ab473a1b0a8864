"""Where in a recording each token of its transcript attends: cross-attention over the spectrogram, and word times.

The weights are those of one pass over the transcript. Shapes: L layers, H heads, T tokens, S positions of 20 ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.analysis.view import Viewed, plain
from lmlab.data.readers.media import Sound
from lmlab.decoding.speech.transcriber import Transcriber
from lmlab.decoding.speech.word_timing import TranscribedWord
from lmlab.messages import ArgumentError
from lmlab.pages.figures.spectrogram import SoundAttention, TimedWord
from lmlab.pages.views import Table
from lmlab.tokenizers.speech_tokens import TIME_STEP


@dataclass(frozen=True)
class SpeechAttention(Viewed):
    """A recording, its transcript with word times, and the cross-attention of each token."""

    text: str
    seconds: float
    words: list[TranscribedWord]
    tokens: list[str]
    sound: NDArray[np.float32]  # [M, F]
    weights: NDArray[np.float32]  # [L, H, T, S]
    timing_heads: list[tuple[int, int]]
    """The heads from which the word times come, as (layer, head) pairs."""
    cut: bool = False
    """Whether the recording is longer than what is shown."""
    layer: int | None = None
    head: int | None = None
    title: str = field(default="Attention over the sound", init=False)

    def __post_init__(self) -> None:
        for name, value, count in zip(("layer", "head"), (self.layer, self.head), self.weights.shape[:2], strict=True):
            if value is not None and not 0 <= value < count:
                raise ArgumentError(name, value, f"there are {count}, 0 to {count - 1}")

    def of(self, *, layer: int | None = None, head: int | None = None) -> SpeechAttention:
        """The same, with one layer or head selected for the plot."""
        return replace(self, layer=layer, head=head)

    def mean(self) -> NDArray[np.float32]:
        """The mean [T, S] of the heads from which the word times come."""
        found: NDArray[np.float32] = np.mean([self.weights[layer, head] for layer, head in self.timing_heads], axis=0)
        return found

    def lead(self) -> str:
        return f"{self.seconds:.1f} seconds, {len(self.words)} words: {self.text}"

    def notes(self) -> list[str]:
        heads = ", ".join(f"{layer}.{head}" for layer, head in self.timing_heads)
        found = [f"word times come from the mean of these heads (layer.head), by dynamic time warping: {heads}"]
        found += ["each row has its own scale: its largest weight has the full colour"]
        return found + ["only the first window of the recording is shown"] * self.cut

    def table(self) -> Table:
        return Table(("word", "begin", "end"), self.words, ("", ".2f", ".2f"))

    def figures(self) -> list[SoundAttention]:
        layers, heads = self.weights.shape[:2]
        if self.layer is None and self.head is None:
            means = [(self.weights[layer].mean(0), f"Layer {layer}, mean of heads") for layer in range(layers)]
            return [self._figure(*each) for each in ((self.mean(), "Mean of the heads that give word times"), *means)]
        return [
            self._figure(self.weights[layer, head], f"Layer {layer}, head {head}")
            for layer in (range(layers) if self.layer is None else [self.layer])
            for head in (range(heads) if self.head is None else [self.head])
        ]

    def _figure(self, weights: NDArray[np.float32], title: str) -> SoundAttention:
        words = [TimedWord(*word) for word in self.words]
        return SoundAttention(title, self.sound, self.seconds, words, self.tokens, weights)

    def as_json(self) -> dict[str, Any]:
        return {
            **{"text": self.text, "seconds": self.seconds, "words": plain(self.words), "tokens": self.tokens},
            **{"timing_heads": plain(self.timing_heads), "step": TIME_STEP},
            "weights": np.round(self.weights.astype(np.float64), 6).tolist(),
        }


@torch.inference_mode()
def listen(transcriber: Transcriber, sound: Sound) -> SpeechAttention:
    """Transcribe the first window of a recording, and read the cross-attention of its transcript."""
    processor = transcriber.processor
    samples = processor.resample(sound.samples, sound.rate)
    window = samples[: processor.window]
    found = transcriber.transcribe(Sound(window.numpy(), processor.rate), words=True)
    written = [token for segment in found.segments for token in segment.tokens]
    if not written:
        raise ValueError("the model hears no speech in the recording, so there is no attention to show")
    prompt = transcriber.tokens.prompt(language=found.language, task=None, times=False)
    spectrogram = processor.spectrogram(window)
    whole = [*prompt, *written, transcriber.tokens.end]
    weights = transcriber.cross_attention(spectrogram[None].to(transcriber.model.device), whole)
    positions = min(weights.shape[-1], max(1, round(found.seconds / TIME_STEP)))
    frames = max(1, round(found.seconds * processor.frames_per_second))
    return SpeechAttention(
        found.text,
        found.seconds,
        [word for segment in found.segments for word in segment.words],
        [transcriber.tokenizer.show(token) for token in written],
        spectrogram[:, :frames].numpy(),
        weights[:, :, len(prompt) - 1 : -2, :positions].float().cpu().numpy(),  # the row that predicts a token
        transcriber.model.timing_heads(),
        cut=len(window) < len(samples),
    )
