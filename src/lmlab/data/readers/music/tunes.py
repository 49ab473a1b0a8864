"""Built-in tunes: short pieces for four voices, made from a seed, so that music can be learnt without a download.

Each tune has a key, a motif of one bar and a plan of eight bars in which the motif comes back on the chords of a
cadence. So a model that sees far back predicts the later bars better: that is what relative attention is tried on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

VERSION = 1
TUNES = 160
BAR = 16
"""Steps of a bar: sixteenth notes."""
MAJOR = (0, 2, 4, 5, 7, 9, 11)
MINOR = (0, 2, 3, 5, 7, 8, 10)
CADENCES = ((0, 3, 4, 0), (0, 5, 3, 4), (0, 4, 5, 3), (0, 1, 4, 0))
PLANS = ("AABAAABA", "ABACABAA", "AABBAABA", "ABABCCAA")
RHYTHMS = ((4, 4, 4, 4), (4, 2, 2, 4, 4), (2, 2, 4, 2, 2, 4), (6, 2, 4, 4), (8, 4, 4))


def make_tunes(count: int = TUNES, *, seed: int = 0) -> list[NDArray[np.int64]]:
    """Return the pitches [T, 4] of tunes, from the highest voice to the lowest; always the same for a seed."""
    return [_make_tune(np.random.default_rng([seed, number])) for number in range(count)]


def _make_tune(generator: np.random.Generator) -> NDArray[np.int64]:
    scale = MAJOR if generator.random() < 0.7 else MINOR
    tonic = int(generator.integers(55, 67))
    cadence = CADENCES[generator.integers(len(CADENCES))]
    plan = PLANS[generator.integers(len(PLANS))]
    motifs = {letter: _make_motif(generator) for letter in "ABC"}
    bars = [
        _make_bar(motifs[letter], cadence[number % len(cadence)], tonic, scale) for number, letter in enumerate(plan)
    ]
    return np.concatenate(bars)


def _make_motif(generator: np.random.Generator) -> list[tuple[int, int]]:
    """Return the notes of one bar as (steps, degree above the chord)."""
    rhythm = RHYTHMS[generator.integers(len(RHYTHMS))]
    degree, notes = int(generator.choice([0, 2, 4])), []
    for steps in rhythm:
        notes.append((steps, degree))
        degree = int(np.clip(degree + generator.choice([-2, -1, 1, 2]), -2, 7))
    return notes


def _make_bar(motif: list[tuple[int, int]], chord: int, tonic: int, scale: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the pitches [16, 4] of a bar: the motif on a chord, two inner voices and a bass."""

    def pitch(degree: int) -> int:
        octave, step = divmod(degree, len(scale))
        return tonic + 12 * octave + scale[step]

    bar = np.empty((BAR, 4), dtype=np.int64)
    melody = [pitch(chord + 7 + degree) for steps, degree in motif for _ in range(steps)]
    bar[:, 0] = melody
    bar[:, 1], bar[:, 2], bar[:, 3] = pitch(chord + 4), pitch(chord + 2), pitch(chord) - 12
    return bar
