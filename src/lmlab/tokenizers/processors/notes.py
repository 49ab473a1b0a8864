"""Music as tokens: events of a performance, or the voices of a grid of equal steps.

`events` is the encoding of Oore et al. 2018 ("This Time with Feeling", section 2): 128 note-on, 128 note-off, 100
time shifts of 10 ms to 1 s, and 32 velocities. `grid` is that of Huang et al. 2018 for chorales (section 4.1): at each
sixteenth note the pitches of all voices in turn; a voice without a note is a rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lmlab.tokenizers.processors.sequences import SequenceTokenizer

PITCHES = 128
"""MIDI pitches: 60 is the middle C."""
RESOLUTION = 100
"""Time steps per second of the events."""
SHIFTS = 100
"""Lengths of a time shift, in steps: 1 to 100."""
VELOCITIES = 32
"""Classes of loudness, of four MIDI velocities each."""
LOUDNESS = 80
"""The MIDI velocity of notes whose loudness is not known."""
TEMPO = 100.0
"""Quarter notes per minute of music whose tempo is not known."""
MOST_VOICES = 16
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
REST = -1

Ids = NDArray[np.int64]


class Performance(NamedTuple):
    """The notes of a piece in the order of their starts, N of them."""

    starts: NDArray[np.float64]  # [N], in seconds
    ends: NDArray[np.float64]  # [N], in seconds
    pitches: NDArray[np.int64]  # [N], as MIDI numbers
    velocities: NDArray[np.int64]  # [N], from 1 to 127
    beats: NDArray[np.float64]  # [N, 2], starts and ends in quarter notes

    @property
    def seconds(self) -> float:
        """The time at which the last note ends."""
        return float(self.ends.max(initial=0.0))


Music = Performance | NDArray[np.int64]
"""A performance, or the pitches [T, voices] of a grid, in which -1 is a rest."""


def name_pitch(pitch: int) -> str:
    """Return the name of a MIDI pitch: 60 is C4."""
    return f"{NAMES[pitch % 12]}{pitch // 12 - 1}"


def to_performance(pitches: NDArray[np.int64], *, steps: int = 4, tempo: float = TEMPO) -> Performance:
    """Return the notes of a grid [T, voices] with `steps` to a quarter note; equal pitches in a row are one note."""
    found: list[tuple[int, int, int]] = []
    for voice in np.asarray(pitches).T:
        changes = np.flatnonzero(np.diff(voice)) + 1
        bounds = [0, *changes.tolist(), len(voice)] if len(voice) else [0]
        found += [(start, end, int(voice[start])) for start, end in pairwise(bounds) if voice[start] >= 0]
    notes = np.array(sorted(found), dtype=np.int64).reshape(-1, 3)
    beats = notes[:, :2] / steps
    seconds = beats * 60 / tempo
    loudness = np.full(len(notes), LOUDNESS, dtype=np.int64)
    return Performance(seconds[:, 0], seconds[:, 1], notes[:, 2], loudness, beats)


def to_grid(performance: Performance, *, voices: int = 4, steps: int = 4) -> NDArray[np.int64]:
    """Return the pitches [T, voices] that sound at each step, from high to low; -1 where fewer sound.

    Where more notes sound than there are voices, the highest and the lowest stay.
    """
    starts, ends = np.rint(performance.beats * steps).astype(np.int64).T.reshape(2, -1)
    ends = np.maximum(ends, starts + 1)
    length = int(ends.max(initial=0))
    sounds = np.zeros((length, PITCHES), dtype=bool)
    for start, end, pitch in zip(starts.tolist(), ends.tolist(), performance.pitches.tolist(), strict=True):
        sounds[start:end, pitch] = True
    grid = np.full((length, voices), REST, dtype=np.int64)
    for step in range(length):
        high_to_low = np.flatnonzero(sounds[step])[::-1]
        if len(high_to_low) > voices:
            high_to_low = np.append(high_to_low[: voices - 1], high_to_low[-1])
        grid[step, : len(high_to_low)] = high_to_low
    return grid


class MusicTokenizer(SequenceTokenizer):
    """Encodes pieces of music."""

    reads: ClassVar[str] = "notes"
    item: ClassVar[str] = "piece"
    commands: ClassVar[tuple[str, ...]] = ("lmlab compose {run} -o out.mid --picture out.svg",)

    def encode(self, music: Music) -> Ids:
        """Return the ids of a piece, without boundaries."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> Performance:
        """Return the notes of ids; any sequence of ids gives a piece."""
        raise NotImplementedError

    def spans(self, ids: Iterable[int]) -> list[TokenSpan]:
        """Return when and at which pitch each token is, for pictures."""
        raise NotImplementedError


class TokenSpan(NamedTuple):
    """The place of a token in a piano roll."""

    seconds: float
    pitch: int | None  # None for a token that is no note: a time shift, a velocity, a rest


class Events(MusicTokenizer):
    """A performance as note-on, note-off, time-shift and velocity events (Oore et al. 2018)."""

    kind: ClassVar[str] = "events"
    unit: ClassVar[str] = "event"
    forms: ClassVar[str] = "events"

    OFF: ClassVar[int] = PITCHES
    SHIFT: ClassVar[int] = 2 * PITCHES
    VELOCITY: ClassVar[int] = 2 * PITCHES + SHIFTS

    @property
    def vocabulary(self) -> int:
        return self.VELOCITY + VELOCITIES + 1

    @classmethod
    def from_spec(cls, options: str) -> Self:
        if options:
            raise ValueError(f"tokenizer 'events:{options}': {options!r} is not understood; allowed: {cls.forms}")
        return cls()

    @property
    def spec(self) -> str:
        return "events"

    def settings(self) -> Mapping[str, Any]:
        return {}

    def encode(self, music: Music) -> Ids:
        notes = clean(music if isinstance(music, Performance) else to_performance(music))
        changes = [(start, 1, pitch, loud) for start, _, pitch, loud in notes]
        changes += [(end, 0, pitch, 0) for _, end, pitch, _ in notes]
        ids: list[int] = []
        now, loudness = 0, -1
        for time, begins, pitch, loud in sorted(changes):
            while (wait := min(time - now, SHIFTS)) > 0:
                ids.append(self.SHIFT + wait - 1)
                now += wait
            if begins and loud != loudness:
                ids.append(self.VELOCITY + loud)
                loudness = loud
            ids.append(pitch if begins else self.OFF + pitch)
        return np.array(ids, dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> Performance:
        """Return the notes of ids. A note-off without its note is left out; notes without an end last to the end."""
        now, loudness = 0, LOUDNESS // 4
        sounding: dict[int, tuple[int, int]] = {}
        notes: list[tuple[int, int, int, int]] = []

        def stop(pitch: int) -> None:
            start, loud = sounding.pop(pitch)
            if now > start:
                notes.append((start, pitch, now, 4 * loud + 2))

        for token in map(int, ids):
            if token < self.SHIFT:
                pitch = token % PITCHES
                if pitch in sounding:
                    stop(pitch)
                if token < self.OFF:
                    sounding[pitch] = (now, loudness)
            elif token < self.VELOCITY:
                now += token - self.SHIFT + 1
            elif token < self.boundary:
                loudness = token - self.VELOCITY
        for pitch in list(sounding):
            stop(pitch)
        table = np.array(sorted(notes), dtype=np.int64).reshape(-1, 4)
        starts, ends = table[:, 0] / RESOLUTION, table[:, 2] / RESOLUTION
        beats = np.stack([starts, ends], axis=1) * TEMPO / 60
        return Performance(starts, ends, table[:, 1], table[:, 3], beats)

    def spans(self, ids: Iterable[int]) -> list[TokenSpan]:
        now, found = 0, []
        for token in map(int, ids):
            found.append(TokenSpan(now / RESOLUTION, token if token < self.OFF else None))
            if self.SHIFT <= token < self.VELOCITY:
                now += token - self.SHIFT + 1
        return found

    def show(self, token: int) -> str:
        if token < self.OFF:
            return f"{name_pitch(token)} on"
        if token < self.SHIFT:
            return f"{name_pitch(token - self.OFF)} off"
        if token < self.VELOCITY:
            return f"wait {10 * (token - self.SHIFT + 1)} ms"
        return f"velocity {4 * (token - self.VELOCITY) + 2}" if token < self.boundary else "boundary"

    def scores(self, nats: float) -> dict[str, float]:
        return {"nats_per_event": nats}


def clean(performance: Performance) -> list[tuple[int, int, int, int]]:
    """Return the notes as (start, end, pitch, loudness class) in time steps; notes of one pitch do not overlap.

    A note ends where the next one of its pitch begins, and lasts at least one step. Of several that begin together the
    longest stays.
    """
    starts = np.rint(performance.starts * RESOLUTION).astype(np.int64)
    ends = np.maximum(np.rint(performance.ends * RESOLUTION).astype(np.int64), starts + 1)
    pitches = np.clip(performance.pitches, 0, PITCHES - 1)
    order = np.lexsort((-ends, starts, pitches))
    starts, ends, pitches = starts[order], ends[order], pitches[order]
    loud = np.clip(performance.velocities[order], 0, 127) // 4
    same = pitches[1:] == pitches[:-1]
    first = np.append(True, ~(same & (starts[1:] == starts[:-1])))[: len(starts)]
    starts, ends, pitches, loud = starts[first], ends[first], pitches[first], loud[first]
    follows = np.flatnonzero(pitches[1:] == pitches[:-1])
    ends[follows] = np.minimum(ends[follows], starts[follows + 1])
    return list(zip(starts.tolist(), ends.tolist(), pitches.tolist(), loud.tolist(), strict=True))


class Grid(MusicTokenizer):
    """A grid of equal steps: at each step the pitch of every voice in turn, or a rest."""

    kind: ClassVar[str] = "grid"
    unit: ClassVar[str] = "note"
    forms: ClassVar[str] = "grid, grid:4 (the number of voices)"

    SILENCE: ClassVar[int] = PITCHES

    def __init__(self, voices: int = 4, steps: int = 4) -> None:
        if not isinstance(voices, int) or not 1 <= voices <= MOST_VOICES:
            raise ValueError(f"voices = {voices}: a grid has 1 to {MOST_VOICES} voices")
        if not isinstance(steps, int) or not 1 <= steps <= 96:
            raise ValueError(f"steps = {steps}: a quarter note has 1 to 96 steps")
        self.voices, self.steps = voices, steps

    @classmethod
    def from_spec(cls, options: str) -> Self:
        if options and not options.isdecimal():
            raise ValueError(f"tokenizer 'grid:{options}': {options!r} is not understood; allowed: {cls.forms}")
        return cls(int(options)) if options else cls()

    @property
    def spec(self) -> str:
        return f"grid:{self.voices}"

    @property
    def vocabulary(self) -> int:
        return PITCHES + 2

    def settings(self) -> Mapping[str, Any]:
        return {"voices": self.voices, "steps": self.steps}

    def encode(self, music: Music) -> Ids:
        if isinstance(music, Performance):
            pitches = to_grid(music, voices=self.voices, steps=self.steps)
        else:
            pitches = _with_voices(music, self.voices)
        return np.where(pitches < 0, self.SILENCE, pitches).astype(np.int64).ravel()

    def decode(self, ids: Iterable[int]) -> Performance:
        """Return the notes of ids; an unfinished last step is left out."""
        return to_performance(self.to_pitches(ids), steps=self.steps)

    def to_pitches(self, ids: Iterable[int]) -> NDArray[np.int64]:
        """Return the pitches [T, voices] of ids, in which -1 is a rest."""
        found = np.array([int(token) for token in ids if int(token) < self.boundary], dtype=np.int64)
        whole = found[: len(found) // self.voices * self.voices].reshape(-1, self.voices)
        return np.where(whole == self.SILENCE, REST, whole)

    def spans(self, ids: Iterable[int]) -> list[TokenSpan]:
        step = 60 / TEMPO / self.steps
        tokens = [token for token in map(int, ids) if token < self.boundary]
        return [
            TokenSpan(position // self.voices * step, token if token < PITCHES else None)
            for position, token in enumerate(tokens)
        ]

    def show(self, token: int) -> str:
        return name_pitch(token) if token < PITCHES else "rest" if token == self.SILENCE else "boundary"

    def scores(self, nats: float) -> dict[str, float]:
        return {"nats_per_note": nats, "nats_per_step": nats * self.voices}


def _with_voices(pitches: NDArray[np.int64], voices: int) -> NDArray[np.int64]:
    """Return a grid with this number of voices: rests are added, or the highest voices and the lowest stay."""
    given = pitches.shape[1]
    if given <= voices:
        return np.pad(pitches, ((0, 0), (0, voices - given)), constant_values=REST)
    return to_grid(to_performance(pitches), voices=voices)
