"""Whisper as a run: killed and resumed to the bit, and clear errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lmlab
from killing import kill_while_saving
from lmlab.data.readers.clips import make_tones
from lmlab.data.readers.sounds import write_wav
from lmlab.runs import run
from lmlab.runs.storage import read_tensors

SIZES = {"model.width": 16, "model.heads": 2, "model.layers": 1, "model.inner": 32, "data.mels": 8}


def write_clips(folder: Path, count: int = 24) -> Path:
    rows = ["path\ttext"]
    for clip in make_tones(count, seed=3):
        write_wav(folder / f"{clip.name}.wav", *clip.read())
        rows.append(f"{clip.name}.wav\t{clip.text}")
    (folder / "clips.tsv").write_text("\n".join(rows) + "\n")
    return folder / "clips.tsv"


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clips(tmp_path_factory.mktemp("clips"))


def test_a_killed_run_resumes_to_the_bit(clips: Path, tmp_path: Path) -> None:
    """With dropout and masks, whose random numbers are part of a checkpoint."""
    settings = {**SIZES, "train.batch": 4, "train.save_seconds": 0}
    options = [f"--set={name}={value}" for name, value in settings.items()]
    command = ("train", "whisper", str(clips), "--budget", "12steps", *options)
    kill_while_saving(*command, "-o", str(tmp_path / "killed"), run="killed", saves=3)
    run.resume(tmp_path / "killed")
    lmlab.train("whisper", clips, output=tmp_path / "whole", budget="12steps", settings=settings)
    one, other = (read_tensors(tmp_path / name / "last" / "model.safetensors") for name in ("killed", "whole"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path\ttext\nlying.wav\thello\n", "states 1.0 seconds of sound in its header, but has 0.0"),
        ("path\ttext\nempty.wav\thello\n", "is empty"),
        ("path\ttext\nmissing.wav\thello\n", "missing.wav does not exist"),
        ("", "has the columns none"),
    ],
)
def test_bad_clips_are_one_line(content: str, message: str, tmp_path: Path) -> None:
    import struct

    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 0, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 16000)
    (tmp_path / "lying.wav").write_bytes(head + b"\0" * 20)
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "clips.tsv").write_text(content)
    settings = {**SIZES, "data.split": [1, 0, 0]}
    with pytest.raises(ValueError, match=message) as error:
        lmlab.train("whisper", tmp_path / "clips.tsv", output=tmp_path / "run", budget="2steps", settings=settings)
    assert "\n" not in str(error.value)
