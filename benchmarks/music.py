"""Music at equal FLOPs: Music Transformer, Transformer without relative attention, Transformer-XL and LSTM.

Chorales of Bach (JSB, its own split: 229, 76 and 77 pieces) on a grid of sixteenth notes and as events, and the folk
tunes of Nottingham as events. All systems have the size `tiny` and see 256 tokens at once: the window of GPT-2 and of
the Music Transformer, 64 and a memory of 192 of Transformer-XL; the LSTM carries its state. All read 1,024 tokens in a
step of training, so that none has fewer steps. Scores are exact, by the
chain rule, on the test pieces, without boundaries.

Self-similarity: the melody is the highest voice. A motif is four notes in a row, each with its length and the interval
to the next one, so a transposed motif is the same; or the intervals alone, since small models hardly keep the beat. The
measure is the fraction of the motifs of a piece that occurred before in it, over the first 192 steps (12 bars) of
pieces with at least as many. It is computed on the test pieces, on the same pieces with their notes in random order
(chance), and on 24 samples of each system.

    python benchmarks/music.py [FOLDER] [--scale 0.1] [--only jsb-grid]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.decoding.generate import continue_tokens
from lmlab.decoding.sampling import Sampling
from lmlab.models.abilities import PredictsNext, require
from lmlab.runs.held_out import held_out_items
from lmlab.tokenizers.processors.notes import Grid
from sequence_study import Trained, bootstrap_mean, print_ranking, tokenizer_of, train_and_score
from study import need

SYSTEMS: dict[str, dict[str, Any]] = {
    "music-transformer": {"model.window": 256, "model.distances": 256, "train.batch": 4},
    "gpt2": {"model.window": 256, "train.batch": 4},
    "transformer-xl": {"model.memory": 192},
    "lstm": {},
}
STUDIES: dict[str, tuple[str, str, float, dict[str, Any]]] = {  # data, tokenizer, FLOPs, settings
    "jsb-grid": ("jsb_chorales", "grid:4", 1.2e12, {}),
    "jsb-events": ("jsb_chorales", "events", 6e11, {}),
    "nottingham-events": ("nottingham", "events", 4e11, {"data.split": [0.7, 0.1, 0.2]}),
}
STEPS, VOICES, SAMPLES, MOTIF = 192, 4, 24, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/music"))
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the budgets")
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    options = parser.parse_args()
    steps: list[float] = []
    for name in options.only:
        data, tokenizer, flops, given = STUDIES[name]
        need(data)
        print(f"\n## {name}, {options.scale * flops:.2g} FLOPs each", flush=True)
        runs = {
            system: train_and_score(
                system,
                Path(os.environ["LMLAB_DATA"]) / data,
                options.folder / name,
                tokenizer=tokenizer,
                budget=f"{options.scale * flops}flops",
                settings={**settings, **given},
                limit=10_000,
            )
            for system, settings in SYSTEMS.items()
        }
        path = next(iter(runs.values())).path
        lengths = [float(len(each)) for each in held_out_items(path)]
        unit = tokenizer_of(next(iter(runs.values())).model).unit
        print_ranking(runs, lengths, unit=f"nats per {unit}")
        if tokenizer == "grid:4":
            steps = [length / VOICES for length in lengths]
            print_repetition(runs, path)
        if data == "jsb_chorales" and steps:
            print_ranking(runs, steps, unit="nats per step (a sixteenth note)")


def print_repetition(runs: dict[str, Trained], path: Path) -> None:
    """Print the fraction of repeated motifs in the test pieces and in samples of each system."""
    grid = Grid(VOICES)
    pieces = [grid.to_pitches(ids.tolist()) for ids in held_out_items(path)]
    pieces = [piece[:STEPS] for piece in pieces if len(piece) >= STEPS]
    shuffled = [shuffle(piece, seed) for seed, piece in enumerate(pieces)]
    found = {"test pieces": pieces, "test pieces, notes shuffled": shuffled}
    found |= {name: sample(run) for name, run in runs.items()}
    print(f"\n| music | repeated motifs of {MOTIF} notes | 95% interval | intervals alone | 95% interval | pieces |")
    print("|---|---|---|---|---|---|")
    for name, group in found.items():
        cells = []
        for lengths in (True, False):
            fractions = [each for piece in group if (each := repeated(notes_of(piece), lengths=lengths)) is not None]
            mean, low, high = bootstrap_mean(fractions)
            cells.append(f"{mean:.3f} | {low:.3f}–{high:.3f}")
        print(f"| {name} | {' | '.join(cells)} | {len(fractions)} |", flush=True)


def sample(run: Trained) -> list[NDArray[np.int64]]:
    """Pieces [T, voices] of a system, of STEPS steps."""
    model, grid = require(run.model.model, PredictsNext), Grid(VOICES)
    never = {grid.boundary: float("-inf")}
    made = continue_tokens(
        model,
        [],
        boundary=grid.boundary,
        tokens=STEPS * VOICES,
        sampling=Sampling(seed=0, logit_bias=never),
        samples=SAMPLES,
    )
    return [grid.to_pitches(each.ids) for each in made]


def notes_of(piece: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The notes of the highest voice as (pitch, steps); equal pitches in a row are one note, rests are left out."""
    melody = piece[:, 0]
    bounds = [0, *(np.flatnonzero(np.diff(melody)) + 1).tolist(), len(melody)]
    return [(int(melody[start]), end - start) for start, end in pairwise(bounds) if melody[start] >= 0]


def repeated(notes: list[tuple[int, int]], *, lengths: bool = True) -> float | None:
    """The fraction of motifs that occurred before; None for a piece that is too short."""
    steps = [(later[0] - note[0], note[1] if lengths else 0) for note, later in pairwise(notes)]
    motifs = [tuple(steps[place : place + MOTIF]) for place in range(len(steps) - MOTIF + 1)]
    if len(motifs) < 2:
        return None
    seen: set[Any] = set()
    again = sum(_was_seen(motif, seen) for motif in motifs)
    return again / len(motifs)


def _was_seen(motif: Iterable[Any], seen: set[Any]) -> bool:
    known = motif in seen
    seen.add(motif)
    return known


def shuffle(piece: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """The melody of a piece with its notes in random order."""
    notes = notes_of(piece)
    order = np.random.default_rng(seed).permutation(len(notes))
    melody = np.concatenate([np.full(notes[place][1], notes[place][0]) for place in order])
    return melody[:, None]


if __name__ == "__main__":
    main()
