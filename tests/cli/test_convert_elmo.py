"""lmlab convert of the two files in which ELMo is published, as a user types it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("h5py")


@pytest.fixture
def files(shared_data: Callable[[str], Path], tmp_path: Path) -> Path:
    """A folder with options and weights, as they are downloaded."""
    folder = tmp_path / "files"
    folder.mkdir()
    source = shared_data("elmo_fixture")
    for path in (*source.glob("*options.json"), *source.glob("*weights.hdf5")):
        shutil.copyfile(path, folder / path.name)
    return folder


def test_published_files_become_a_run(run_command: Any, files: Path, tmp_path: Path) -> None:
    said = run_command("convert", "files", "elmo")
    assert (said.code, said.err) == (0, "")
    assert json.loads((tmp_path / "elmo" / "config.json").read_text())["kind"] == "elmo"
    (tmp_path / "sentences.txt").write_text("The cat sat .\nNobody wrote zxqvw down .\nThe cat sat .\n")
    read = ("embed", "elmo", "sentences.txt", "--layers", "mix", "--pool", "mean", "-o", "vectors.npy")
    assert run_command(*read).code == 0
    vectors = np.load(tmp_path / "vectors.npy")
    assert np.isfinite(vectors).all()
    assert len(vectors) == 3
    np.testing.assert_allclose(vectors[0], vectors[2], rtol=1e-4, atol=1e-5, err_msg="the same sentence")
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    said = run_command("convert", "elmo", "elmo.vec", "--to", "word2vec")
    assert said.code == 2
    assert "elmo reads words by their characters and has no table of word vectors" in said.err
    said = run_command("train", "elmo", "sentences.txt", "--from", "elmo", "-o", "more")
    assert said.code == 2
    assert "the output layer (softmax) was not published" in said.err
    said = run_command("convert", "files", "elmo")
    assert said.code == 2
    assert "--overwrite" in said.err
    assert run_command("convert", "files", "elmo", "--overwrite").code == 0


def test_bad_files_get_one_line_and_leave_nothing(run_command: Any, files: Path, tmp_path: Path) -> None:
    (options,) = files.glob("*options.json")
    (weights,) = files.glob("*weights.hdf5")
    whole = options.read_text()
    options.write_text(whole[: len(whole) // 2])
    said = run_command("convert", "files", "elmo")
    assert (said.code, said.err.count("error:")) == (2, 1)
    assert options.name in said.err
    options.write_text(whole)
    shutil.copyfile(weights, files / "second.hdf5")
    said = run_command("convert", "files", "elmo")
    assert said.code == 2
    assert f"files has weights in {weights.name} and second.hdf5" in said.err
    (files / "second.hdf5").unlink()
    weights.write_bytes(b"no HDF5")
    said = run_command("convert", "files", "elmo")
    assert (said.code, said.err.count("error:")) == (2, 1)
    assert weights.name in said.err
    assert not (tmp_path / "elmo").exists()
