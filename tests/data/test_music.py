"""Music files: MIDI and piano rolls are read, bad files are one clear line, and any next-token system learns them."""

from __future__ import annotations

import json
import struct
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmlab.data import make_config, prepare
from lmlab.data.corpora.sequences import EncodedItem, SequenceSplit, split_items
from lmlab.data.readers.music.midi import check_midi, read_midi, write_midi
from lmlab.data.readers.music.rolls import read_rolls
from lmlab.data.readers.music.tunes import make_tunes
from lmlab.tokenizers.processors.notes import Events, clean, to_performance

pytest.importorskip("symusic")

NOTE = [(0, b"\x90\x3c\x50"), (480, b"\x80\x3c\x00")]


def number(value: int) -> bytes:
    """A variable-length number."""
    digits = [value & 127]
    while value := value >> 7:
        digits.insert(0, value & 127 | 128)
    return bytes(digits)


def midi(events: list[tuple[int, bytes]], *, division: int = 480, tracks: int = 1, named: int | None = None) -> bytes:
    """The bytes of a MIDI file whose tracks all have the same events."""
    body = b"".join(number(wait) + event for wait, event in events) + b"\x00\xff\x2f\x00"
    header = b"MThd" + struct.pack(">IHHH", 6, 1, named if named is not None else tracks, division)
    return header + (b"MTrk" + struct.pack(">I", len(body)) + body) * tracks


def test_a_midi_file_by_hand() -> None:
    """A quarter note at 120 a minute lasts half a second; after a tempo of 60 it lasts one."""
    events = [*NOTE, (0, b"\xff\x51\x03" + (1_000_000).to_bytes(3, "big")), *NOTE]
    found = read_midi(midi(events), name="a.mid")
    assert found.starts.tolist() == [0.0, 0.5]
    assert found.ends.tolist() == [0.5, 1.5]
    assert found.beats.tolist() == [[0.0, 1.0], [1.0, 2.0]]
    assert found.velocities.tolist() == [80, 80]


def test_midi_comes_back(tmp_path: Path) -> None:
    performance = to_performance(make_tunes(1)[0])
    write_midi(performance, tmp_path / "tune.mid")
    again = read_midi((tmp_path / "tune.mid").read_bytes(), name="tune.mid")
    assert sorted(clean(again)) == sorted(clean(performance))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a MIDI file"),
        (b"RIFF" + bytes(20), "not a MIDI file"),
        (midi(NOTE)[:-6], "cut off, or lies about its length"),
        (midi(NOTE)[:18], "cut off at byte 18"),
        (midi(NOTE, named=5), "has 1 of the 5 tracks"),
        (midi(NOTE, tracks=2000, named=1), "more than 1,024 tracks"),
        (midi(NOTE, tracks=1, named=60000), "60,000 tracks"),
        (midi(NOTE, division=0), "counts time in frames"),
        (midi(NOTE, division=0xE728), "counts time in frames"),
        (midi([(2**28 - 1, NOTE[0][1]), *NOTE[1:]]), "longer than 100,000 quarter notes"),
        (midi([(0, b"\x3c\x50")]), "damaged MIDI file"),
        (midi([(0, b"\xff\x01\x7f")]), "damaged MIDI file"),
        (midi([]), "has no notes"),
    ],
)
def test_bad_midi_is_one_line(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_midi(data, name="a.mid")
    assert str(caught.value).startswith("a.mid")
    assert "\n" not in str(caught.value)


def test_hanging_notes_are_left_out_with_a_warning() -> None:
    data = midi([(0, b"\x90\x40\x50"), *NOTE])
    assert check_midi(data, name="a.mid") == 1
    with pytest.warns(UserWarning, match=r"a\.mid: 1 note never ends and is left out"):
        assert read_midi(data, name="a.mid").pitches.tolist() == [60]


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=40), st.integers(0, 60), st.integers(0, 8))
def test_changed_midi_is_read_or_refused(noise: bytes, place: int, cut: int) -> None:
    """Bytes are put in the place of others: either there are notes, or a ValueError in one line."""
    whole = midi([*NOTE, *NOTE, (0, b"\xff\x51\x03\x07\xa1\x20"), *NOTE])
    data = (whole[:place] + noise + whole[place + len(noise) :])[: len(whole) - cut]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(ValueError):
            found = read_midi(data, name="a.mid")
            assert len(found.starts)
            assert (found.ends >= found.starts).all()
            assert found.pitches.max() < 128
            Events().encode(found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[60, 128]]", "pitch 128 is not between 0 and 127"),
        ("[[60, -5]]", "pitch -5"),
        ("[[60.5]]", "60.5 is not a MIDI pitch"),
        ('[["C"]]', "'C' is not a MIDI pitch"),
        ("[[true]]", "True is not a MIDI pitch"),
        ("[]", "has no pieces"),
        ("[[[]]]", "has no notes"),
        ('{"train": 3}', "has no pieces"),
        ('{"other": [[[60]]]}', "has a split 'other'"),
        ("[" * 100_000, "not valid JSON"),
        ("[[60,", "not valid JSON"),
        ("[[[60]], 3]", "piece 2 is not a list of steps"),
        ("[[Infinity]]", "is not a MIDI pitch"),
    ],
)
def test_bad_rolls_are_one_line(content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        list(read_rolls(content.encode(), name="a.json"))
    assert "\n" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200) | st.floats() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["train", "x"]), inner, max_size=2),
    max_leaves=12,
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(json_values)
def test_any_json_is_read_or_refused(value: object) -> None:
    with suppress(ValueError):
        found = list(read_rolls(json.dumps(value).encode(), name="a.json"))
        assert all(roll.pitches.max() < 128 and roll.pitches.min() >= -1 for roll in found)


def write_tunes(folder: Path, count: int) -> None:
    folder.mkdir()
    for place, tune in enumerate(make_tunes(count)):
        write_midi(to_performance(tune), folder / f"{place}.mid")


def test_folders_zips_and_rolls_are_recognized(tmp_path: Path) -> None:
    write_tunes(tmp_path / "midi", 12)
    (tmp_path / "midi" / "LICENSE.txt").write_text("free")
    with zipfile.ZipFile(tmp_path / "tunes.zip", "w") as archive:
        for path in (tmp_path / "midi").glob("*.mid"):
            archive.write(path, f"tunes/{path.name}")
    rolls = {"train": [tune.tolist() for tune in make_tunes(3)], "valid": [[[60, 64]]], "test": [[[60], []]]}
    (tmp_path / "rolls.json").write_text(json.dumps(rolls))
    for name, spec in (("midi", "events"), ("tunes.zip", "events"), ("rolls.json", "grid")):
        config = make_config({"text": str(tmp_path / name)})
        assert (config.kind, config.usual_tokenizer("bpe:4096")) == ("notes", spec)
    folder, packed, own = (
        prepare(make_config({"text": str(tmp_path / name)}), processor=None)
        for name in ("midi", "tunes.zip", "rolls.json")
    )
    assert isinstance(folder.train, SequenceSplit)
    assert isinstance(packed.train, SequenceSplit)
    assert sorted(ids.tolist() for ids in folder.train.items()) == sorted(ids.tolist() for ids in packed.train.items())
    assert isinstance(own.valid, SequenceSplit)
    assert [ids.tolist() for ids in own.valid.items()] == [[60, 64, 128, 128]]
    assert own.train.describe() == f"3 pieces, {3 * 128 * 4:,} notes"


def test_bad_files_are_refused_or_skipped(tmp_path: Path) -> None:
    write_tunes(tmp_path / "midi", 6)
    (tmp_path / "midi" / "bad.mid").write_bytes(b"MThd")
    config = {"text": str(tmp_path / "midi")}
    with pytest.raises(ValueError, match=r"bad\.mid is not a MIDI file.*data\.bad=skip"):
        prepare(make_config(config), processor="events")
    with pytest.warns(UserWarning, match=r"skipped: .*bad\.mid"):
        corpus = prepare(make_config({**config, "bad": "skip"}), processor="events")
    assert sum(len(split.as_tokens().documents) for split in (corpus.train, corpus.valid, corpus.test) if split) == 6


def items(*lengths: int) -> list[EncodedItem]:
    generator = np.random.default_rng(0)
    return [EncodedItem(str(place), generator.integers(0, 9, length)) for place, length in enumerate(lengths)]


def test_items_are_split_and_equal_ones_stay_together() -> None:
    fractions = {"train": 0.8, "valid": 0.1, "test": 0.1}
    many = items(*[50] * 60)
    twice = [*many, *many]
    splits = split_items(twice, fractions)
    assert {name: len(chosen) for name, chosen in splits.items()} == {"train": 96, "valid": 12, "test": 12}
    seen = {name: {item.ids.tobytes() for item in chosen} for name, chosen in splits.items()}
    assert not seen["train"] & seen["valid"]
    assert not seen["train"] & seen["test"]
    few = split_items(items(900, 20, 30, 40), fractions)
    assert {name: len(chosen) for name, chosen in few.items()} == {"train": 2, "valid": 1, "test": 1}
    with pytest.warns(UserWarning, match="too few to hold some out"):
        cut = split_items(items(100), fractions)
    assert [len(cut[name][0].ids) for name in fractions] == [80, 10, 10]
    with pytest.raises(ValueError, match="no training data"):
        split_items([], fractions)
