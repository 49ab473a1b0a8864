"""Packed files are unpacked only so far; the bytes that come out are counted."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lmlab.analysis.pair_sets import read_pairs
from lmlab.data.readers import files
from lmlab.data.readers.files import read_whole
from lmlab.data.readers.text import Source, read

LINE = b'{"sentence_good": "He runs.", "sentence_bad": "He run.", "linguistics_term": "a", "UID": "b"}\n'


@pytest.fixture(autouse=True)
def _small_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ALWAYS_ALLOWED", 1 << 20)


def write_zip(path: Path, *, lines: int, members: int = 1) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(members):
            archive.writestr(f"{number}.jsonl", LINE * lines)
    return path


def write_gzip(path: Path, *, lines: int) -> Path:
    path.write_bytes(gzip.compress(LINE * lines))
    return path


READERS: dict[str, Callable[[Path], object]] = {
    "text.gz": lambda path: list(read(Source(path.name, path))),
    "whole.gz": read_whole,
    "pairs.jsonl.gz": read_whole,
    "pairs.zip": read_pairs,
}


@pytest.mark.parametrize("name", list(READERS))
def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, name: str) -> None:
    write = write_zip if name.endswith(".zip") else write_gzip
    path = write(tmp_path / name, lines=50_000)
    assert path.stat().st_size * files.MOST_TIMES < 50_000 * len(LINE)
    with pytest.raises(ValueError, match=r"unpacks to more than [0-9,]+ bytes") as reported:
        READERS[name](path)
    assert path.name in str(reported.value)
    assert "unpack it yourself" in str(reported.value)


@pytest.mark.parametrize("name", list(READERS))
def test_what_unpacks_to_little_is_read(tmp_path: Path, name: str) -> None:
    write = write_zip if name.endswith(".zip") else write_gzip
    assert READERS[name](write(tmp_path / name, lines=5000))


def test_the_files_of_an_archive_are_counted_together(tmp_path: Path) -> None:
    one = (1 << 20) // len(LINE) - 10
    assert len(read_pairs(write_zip(tmp_path / "one.zip", lines=one)).pairs) == one
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_pairs(write_zip(tmp_path / "three.zip", lines=one, members=3))


def test_a_header_that_lies_about_the_size_is_not_believed(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "lying.zip", lines=50_000)
    size = (50_000 * len(LINE)).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (10).to_bytes(4, "little")))
    with pytest.raises(ValueError, match=r"unpacks to more than|damaged zip"):
        read_pairs(path)


def test_a_large_file_may_unpack_to_a_hundred_times_its_size(tmp_path: Path) -> None:
    path = tmp_path / "noise.gz"
    noise = b"".join(f"{number * number % 99991:x}\n".encode() for number in range(300_000))
    path.write_bytes(gzip.compress(noise))
    assert len(noise) > 1 << 20
    assert read_whole(path).encode() == noise


def test_blimp_is_read_whole(shared_data: Callable[[str], Path]) -> None:
    assert len(read_pairs(shared_data("blimp") / "BLiMP.zip").pairs) == 67_000
