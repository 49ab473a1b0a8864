"""Transcribers: recordings of any length to text, window by window, with the times of segments and words.

A window is at most as long as the model reads (30 seconds for published models). With time tokens the next window
begins where the last whole segment ended (Radford et al. 2022, section 4.5). Without them windows follow each other,
cut where the recording is quiet. Windows do not see the text of earlier ones. A window in which the model expects no
speech, and of whose text it is unsure, is left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmlab.data.readers.media import Sound
from lmlab.decoding.beam_search import Hypothesis, beam_search
from lmlab.decoding.speech.timestamps import TimedText, TranscriptRules, split_segments
from lmlab.decoding.speech.word_timing import TranscribedWord, split_words, time_words, token_times
from lmlab.layers.watching import watching
from lmlab.models.abilities import Transcribes, learns_by_gradient
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.processors.sounds import SoundProcessor
from lmlab.tokenizers.speech_tokens import TIME_STEP, SpeechTokens

SILENT, UNSURE = 0.6, -1.0
"""Above this probability of no speech, and below this mean log-probability of a token, a window is left out."""
QUIET = 1e-4
"""The largest sample of a window that counts as silence."""
MOST_REPEATED = 2.4
"""A text that zlib makes more than this many times shorter repeats itself (Radford et al. 2022, section 4.5)."""


class Segment(NamedTuple):
    """A piece of a recording with its text; times are in seconds from the begin of the recording."""

    begin: float
    end: float
    text: str
    tokens: list[int]
    log_probability: float  # mean over the tokens of the window
    words: list[TranscribedWord]


@dataclass(frozen=True)
class Transcript:
    """The text of a recording."""

    segments: list[Segment]
    seconds: float
    language: str | None = None

    @property
    def text(self) -> str:
        """The texts of all segments in one line."""
        return " ".join(" ".join(segment.text for segment in self.segments).split())


class SoundWindow(NamedTuple):
    """A part of a recording that is read at once."""

    begin: float  # seconds
    samples: Tensor  # [N]


class TranscriptionOptions(NamedTuple):
    """How the windows of a recording are transcribed."""

    prompt: list[int]
    times: bool  # with time tokens
    beams: int
    words: bool  # with the time of each word


class WindowTranscript(NamedTuple):
    """What the search found for one window."""

    hypothesis: Hypothesis
    no_speech: float
    sound: Tensor  # [1, M, F]

    @property
    def mean(self) -> float:
        return self.hypothesis.log_probability / max(1, len(self.hypothesis.tokens))


@dataclass(frozen=True, kw_only=True)
class Transcriber:
    """A model that writes the text of recordings, with its tokenizer, frame and sound processor."""

    model: Transcribes
    tokenizer: Tokenizer
    frame: Frame
    processor: SoundProcessor
    never: Sequence[int] = field(default=())
    """Tokens that are never written."""
    never_first: Sequence[int] = field(default=())
    """Tokens with which no transcript begins."""

    @cached_property
    def tokens(self) -> SpeechTokens:
        """The marks around the model's transcripts."""
        return SpeechTokens.of(self.tokenizer, self.frame, vocabulary=self.model.vocabulary)

    @torch.inference_mode()
    def transcribe(
        self,
        sound: Sound,
        *,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool = False,
        words: bool = False,
        beams: int = 1,
        progress: ReportProgress | None = None,
    ) -> Transcript:
        """The text of a recording; the language is detected in its first window unless it is given.

        `timestamps` splits the text into the segments that the model writes, and `words` adds the time of each word.
        `task` is transcribe, or translate (to English). One beam is greedy search.
        """
        samples = self.processor.resample(sound.samples, sound.rate)
        seconds = len(samples) / self.processor.rate
        times = timestamps or (len(samples) > self.processor.window and self.tokens.first_time is not None)
        self.tokens.prompt(language=language, task=task, times=timestamps)  # says what the model does not have
        if language is None and self.tokens.languages:
            language = self.detect_language(sound)
        options = TranscriptionOptions(
            self.tokens.prompt(language=language, task=task, times=times), times, beams, words
        )
        segments: list[Segment] = []
        position, rate = 0, self.processor.rate
        while position < len(samples):
            check_cancelled()
            window = self._window(samples, position, options)
            found, done = self._transcribe_window(window, options)
            segments += found
            last = position + len(window.samples) >= len(samples)
            position += max(self.processor.hop, round(done * rate))
            if last and not found:
                position = len(samples)
            if progress is not None:
                progress(round(min(position / rate, seconds)), max(1, round(seconds)))
        return Transcript(segments, seconds, language)

    def _window(self, samples: Tensor, position: int, options: TranscriptionOptions) -> SoundWindow:
        """The window that begins at a sample; without time tokens it ends where it is quiet."""
        part = samples[position : position + self.processor.window]
        if not options.times and position + len(part) < len(samples):
            part = part[: find_pause(part, self.processor.rate)]
        return SoundWindow(position / self.processor.rate, part)

    def _transcribe_window(self, window: SoundWindow, options: TranscriptionOptions) -> tuple[list[Segment], float]:
        """The segments of a window, and how many of its seconds have been transcribed."""
        seconds = len(window.samples) / self.processor.rate
        if float(window.samples.abs().amax()) <= QUIET:
            return [], seconds
        decoded = self._decode_window(window, options)
        if decoded.no_speech > SILENT and decoded.mean < UNSURE:
            return [], seconds
        pieces, done = [TimedText(0.0, seconds, decoded.hypothesis.written)], seconds
        if options.times:
            pieces, done = split_segments(decoded.hypothesis.written, self.tokens, seconds=seconds)
        timed = (
            self.word_times(decoded.sound, [piece.tokens for piece in pieces], window, options) if options.words else []
        )
        segments = [
            Segment(
                round(window.begin + piece.begin, 3),
                round(window.begin + piece.end, 3),
                self.tokenizer.decode(piece.tokens).strip(),
                piece.tokens,
                decoded.mean,
                timed[number] if timed else [],
            )
            for number, piece in enumerate(pieces)
        ]
        return [segment for segment in segments if segment.text], done

    def _decode_window(self, window: SoundWindow, options: TranscriptionOptions) -> WindowTranscript:
        """The best transcript of one window; one that repeats itself without end is searched again."""
        sound = self.processor.spectrogram(window.samples)[None].to(self.model.device)
        encoded = self.model.encode(sound=sound)
        no_speech = 0.0
        if self.tokens.silence is not None:
            start = torch.tensor([[self.tokens.start]], device=sound.device)
            logits, _ = self.model.step(start, self.model.begin(encoded))
            no_speech = float(logits[0].softmax(-1)[self.tokens.silence])
        best = self._search(encoded, options)
        if not best.finished and repeats_itself(self.tokenizer.decode(best.written)):
            best = self._search(encoded, options, no_repeat=4)
        return WindowTranscript(best, no_speech, sound)

    def _search(self, encoded: Any, options: TranscriptionOptions, *, no_repeat: int = 0) -> Hypothesis:
        rules = TranscriptRules(
            tokens=self.tokens, never=self._never(options), first=self.never_first, times=options.times
        )
        room = self.model.window or 1000
        (found,) = beam_search(
            self.model,
            torch.tensor([options.prompt], device=self.model.device),
            tokens=max(1, min(room // 2, room - len(options.prompt))),
            beams=options.beams,
            boundary=self.tokens.end,
            length_penalty=0.0 if options.beams == 1 else 1.0,
            penalty="power",
            no_repeat=no_repeat,
            rules=rules,
            stop_early=True,  # as the published code does: a longer text could win for a long time yet
            state=self.model.begin(encoded, beams=1),
        )
        return found[0] if found else Hypothesis([], 0.0, 0.0, finished=False)

    def _never(self, options: TranscriptionOptions) -> list[int]:
        marks = {*options.prompt, *self.tokens.languages.values(), *self.tokens.tasks.values(), self.tokens.start}
        return sorted({*self.never, *marks} - {self.tokens.end})

    def detect_language(self, sound: Sound) -> str:
        """The most probable language of the first window; a ValueError where the model knows one language only."""
        if not self.tokens.languages:
            raise ValueError("this model has no language tokens: it was trained on one language")
        samples = self.processor.resample(sound.samples, sound.rate)[: self.processor.window]
        encoded = self.model.encode(sound=self.processor.spectrogram(samples)[None].to(self.model.device))
        start = torch.tensor([[self.tokens.start]], device=self.model.device)
        logits, _ = self.model.step(start, self.model.begin(encoded))
        codes = list(self.tokens.languages)
        return codes[int(logits[0, [self.tokens.languages[code] for code in codes]].argmax())]

    def word_times(
        self, sound: Tensor, texts: Sequence[list[int]], window: SoundWindow, options: TranscriptionOptions
    ) -> list[list[TranscribedWord]]:
        """The words of each of the texts that were said in a window, one after the other, with their times."""
        tokens = [token for text in texts for token in text]
        if not tokens:
            return [[] for _ in texts]
        prompt = [token for token in options.prompt if token != self.tokens.plain]
        prompt += [] if self.tokens.plain is None else [self.tokens.plain]
        weights = self.cross_attention(sound, [*prompt, *tokens, self.tokens.end])
        positions = min(weights.shape[-1], max(1, round(len(window.samples) / self.processor.rate / TIME_STEP)))
        chosen = torch.stack([weights[block, head] for block, head in self.model.timing_heads()])
        starts = token_times(chosen[:, len(prompt) - 1 : -1, :positions])  # the row that predicts a token
        found: list[list[TranscribedWord]] = []
        for text in texts:
            timed = time_words(split_words(text, self.tokenizer.decode), starts, self.tokenizer.decode, step=TIME_STEP)
            found.append(
                [
                    TranscribedWord(word.text, round(word.begin + window.begin, 3), round(word.end + window.begin, 3))
                    for word in timed
                ]
            )
            starts = starts[len(text) :]
        return found

    def cross_attention(self, sound: Tensor, tokens: Sequence[int]) -> Tensor:
        """The weights [L, H, T, S] of the tokens of a target over the positions of one recording [1, M, F]."""
        assert learns_by_gradient(self.model)
        names = [name for name, _ in self.model.named_modules() if name.endswith("cross_attention.probabilities")]
        with watching(self.model, *names) as seen:
            self.model(torch.tensor([list(tokens)], device=sound.device), sound=sound)
        return torch.stack([seen[name][0][0] for name in names])


def repeats_itself(text: str) -> bool:
    """Whether a text is mostly repetitions, as a model writes them for noise."""
    content = text.encode()
    return len(content) > 100 and len(content) > MOST_REPEATED * len(zlib.compress(content))


def find_pause(samples: Tensor, rate: int) -> int:
    """Where to cut a full window: in the middle of the quietest fifth of a second of its last third."""
    size = max(1, rate // 5)
    begin = 2 * len(samples) // 3
    power = samples[begin:].square().unfold(0, size, max(1, size // 4)).mean(1)
    last = len(power) - 1 - int(power.flip(0).argmin())  # of equally quiet places the last
    return begin + last * max(1, size // 4) + size // 2
