"""Music as tokens: events and grids, there and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.tokenizers.processors import is_processor, load_processor, make_processor
from lmlab.tokenizers.processors.notes import Events, Grid, Performance, clean, to_grid, to_performance


def performance(*notes: tuple[float, float, int, int]) -> Performance:
    """A performance of notes (start, end, pitch, velocity), at 60 quarter notes a minute."""
    table = np.array(sorted(notes), dtype=np.float64).reshape(-1, 4)
    return Performance(
        table[:, 0], table[:, 1], table[:, 2].astype(np.int64), table[:, 3].astype(np.int64), table[:, :2]
    )


def test_events_of_two_notes_by_hand() -> None:
    """The vocabulary of Oore et al. 2018: 128 + 128 + 100 + 32, and the boundary."""
    events = Events()
    assert events.vocabulary == 128 + 128 + 100 + 32 + 1
    ids = events.encode(performance((0.0, 1.5, 60, 66), (0.5, 1.5, 64, 66)))
    shown = [events.show(token) for token in ids.tolist()]
    assert shown == [
        *("velocity 66", "C4 on", "wait 500 ms", "E4 on", "wait 1000 ms", "C4 off", "E4 off"),
    ]
    assert ids.tolist() == [356 + 16, 60, 256 + 49, 64, 256 + 99, 128 + 60, 128 + 64]


note = st.tuples(st.integers(0, 3000), st.integers(1, 400), st.integers(0, 127), st.integers(1, 127))


@settings(deadline=None, max_examples=60)
@given(st.lists(note, max_size=30))
def test_events_come_back(notes: list[tuple[int, int, int, int]]) -> None:
    """What comes back are the notes without overlaps, at times of 10 ms and loudness in steps of four."""
    given = performance(*((start / 100, (start + length) / 100, pitch, loud) for start, length, pitch, loud in notes))
    back = Events().decode(Events().encode(given))
    assert sorted(clean(back)) == sorted(clean(given))
    assert np.array_equal(Events().encode(back), Events().encode(given))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 388), max_size=60))
def test_any_events_are_music(ids: list[int]) -> None:
    """A model may generate note-offs without notes and notes without ends: they still decode."""
    found = Events().decode(ids)
    assert (found.ends > found.starts).all()
    assert len(Events().spans(ids)) == len(ids)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(-1, 127), min_size=4, max_size=4), min_size=1, max_size=20))
def test_grids_come_back(steps: list[list[int]]) -> None:
    pitches = np.array(steps, dtype=np.int64)
    grid = Grid(4)
    ids = grid.encode(pitches)
    assert len(ids) == pitches.size
    assert np.array_equal(grid.to_pitches(ids), pitches)
    sounding = to_grid(to_performance(pitches), voices=4)
    wanted = [sorted({pitch for pitch in step if pitch >= 0}, reverse=True) for step in steps]
    while wanted and not wanted[-1]:
        wanted.pop()
    assert [[pitch for pitch in step if pitch >= 0] for step in sounding.tolist()] == wanted


def test_a_grid_keeps_the_highest_and_the_lowest_voices() -> None:
    chord = performance(*((0.0, 0.25, pitch, 80) for pitch in (40, 50, 60, 70, 80)))
    assert to_grid(chord, voices=3).tolist() == [[80, 70, 40]]


def test_specs() -> None:
    assert make_processor("grid:2").spec == "grid:2"
    assert make_processor("events") == Events()
    assert is_processor("grid:2")
    assert not is_processor("bpe:4096")
    for wrong, message in (("grid:x", "allowed: grid"), ("grid:99", "1 to 16 voices"), ("events:3", "allowed: events")):
        with pytest.raises(ValueError, match=message):
            make_processor(wrong)


def test_processors_are_saved_and_damage_is_named(tmp_path: Path) -> None:
    Grid(3).save(tmp_path / "processor.json")
    assert load_processor(tmp_path) == Grid(3)
    assert load_processor(tmp_path / "none") is None
    for damaged in ("", "[]", '{"kind": "os"}', '{"kind": "grid", "voices": "x"}', '{"kind": "grid", "strange": 1}'):
        (tmp_path / "processor.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"processor\.json is damaged"):
            load_processor(tmp_path)
