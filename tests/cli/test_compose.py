"""lmlab compose: a MIDI file and a picture; runs and files that do not fit are one line."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from commands import lmlab_command
from lmlab.data.readers.music.midi import read_midi
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe

pytest.importorskip("symusic")


@pytest.fixture(scope="module")
def tunes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compose") / "tunes"
    values = {"data": {"text": "builtin:tunes"}, "model": {"kind": "music-transformer", "size": "tiny"}}
    run.start(make_recipe({**values, "train": {"budget": "60steps", "batch": 8, "evaluations": 1}}), path)
    return path


def test_a_piece_its_picture_and_its_continuation(
    tunes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again, drawn = tmp_path / "a.mid", tmp_path / "b.mid", tmp_path / "a.svg"
    assert lmlab_command(monkeypatch, "compose", tunes, "-o", first, "--picture", drawn, "-n", 120, "--seed", 3) == 0
    assert "notes" in capsys.readouterr().out
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")
    assert lmlab_command(monkeypatch, "compose", tunes, "-o", again, "-n", 120, "--seed", 3) == 0
    assert first.read_bytes() == again.read_bytes()
    piece = read_midi(first.read_bytes(), name="a.mid")
    longer = tmp_path / "longer.mid"
    assert (
        lmlab_command(monkeypatch, "compose", tunes, "--prime", first, "-o", longer, "-n", 40, "--prime-tokens", 80)
        == 0
    )
    continued = read_midi(longer.read_bytes(), name="longer.mid")
    before = piece.starts < 1.0
    assert set(piece.pitches[before].tolist()) <= set(continued.pitches.tolist())


def test_errors_are_one_line(
    tunes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.mid"
    bad.write_bytes(b"MThd")
    for words, message in (
        (("--picture", tmp_path / "a.gif"), "ends with .svg or .png"),
        (("--prime", bad), "not a MIDI file"),
        (("--prime", tmp_path / "none.mid"), "none.mid"),
    ):
        assert lmlab_command(monkeypatch, "compose", tunes, "-o", tmp_path / "out.mid", *words) != 0
        assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out.mid").exists()
