"""Finding and reading texts: what is accepted, what is cleaned, and the messages when it cannot be used."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.data.readers.text import Source, TextWarning, find, read, safe_cut


def no_pipe(stream: IO[bytes], name: str) -> Path:
    raise AssertionError("nothing comes through a pipe")


def names(found: list[Source], root: Path) -> list[str]:
    return [str(source.path.relative_to(root)) if source.path else source.name for source in found]


def written(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    return Source(path.name, path)


def test_folders_are_searched_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/c", ".hidden", "a/.git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names(find([tmp_path], spool=no_pipe), tmp_path) == ["a/c", "a/z.md", "b.txt"]


def test_globs_files_and_the_built_in_corpus(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).write_text("text", encoding="utf-8")
    found = find([f"{tmp_path}/*.txt", str(tmp_path / "c.md"), "builtin"], spool=no_pipe)
    assert names(found, tmp_path) == ["a.txt", "b.txt", "c.md", "builtin"]


def test_a_text_given_twice_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text", encoding="utf-8")
    with pytest.warns(TextWarning, match="more than once"):
        assert len(find([path, str(path)], spool=no_pipe)) == 1


def test_binary_and_empty_files_in_a_folder_are_skipped_and_reported(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("text", encoding="utf-8")
    (tmp_path / "image").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.warns(TextWarning, match="2 files that are not text were skipped: empty .*image"):
        assert names(find([tmp_path], spool=no_pipe), tmp_path) == ["good.txt"]


def tar_of(text: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("book.txt")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return packed.getvalue()


def zip_of(text: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("book.txt", text)
    return packed.getvalue()


PROSE = b"It was a dark and stormy night. " * 5000
BINARIES = {
    "a.tar": (tar_of(PROSE), "a tar archive"),
    "b.tar.gz": (gzip.compress(tar_of(PROSE)), "a tar archive"),
    "c.zip": (zip_of(PROSE), "a zip archive"),
    "no-suffix": (zip_of(PROSE), "a zip archive"),
    "d.txt": (b"\x89PNG\r\n\x1a\n" + PROSE, "a PNG image"),
    "e.pdf": (b"%PDF-1.7\n" + PROSE, "a PDF document"),
    "f.bz2": (bz2.compress(PROSE), "packed with bzip2"),
    "g.xz": (lzma.compress(PROSE), "packed with xz"),
}


def test_archives_and_images_in_a_folder_are_skipped_and_counted(tmp_path: Path) -> None:
    """Their text, and that of a small program in an archive, is not read as if it were plain text."""
    for name, (data, _) in BINARIES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "good.txt").write_bytes(PROSE)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(PROSE))
    (tmp_path / "BZhou.txt").write_bytes(b"BZhou is no archive. " + PROSE)
    reported = (
        rf"{len(BINARIES)} files that are not text were skipped: a\.tar \(a tar archive.*and {len(BINARIES) - 3} more"
    )
    for item in (tmp_path, f"{tmp_path}/*"):
        with pytest.warns(TextWarning, match=reported):
            found = find([item], spool=no_pipe)
        assert names(found, tmp_path) == ["BZhou.txt", "good.txt", "packed.gz"]


@pytest.mark.parametrize("name", BINARIES)
def test_what_is_no_text_is_an_error_that_says_what_it_is(name: str, tmp_path: Path) -> None:
    data, kind = BINARIES[name]
    (tmp_path / name).write_bytes(data)
    for item in (tmp_path / name, f"{tmp_path}/*"):
        with pytest.raises(ValueError, match=f"{name} cannot be used as a text: it is {kind}"):
            find([item], spool=no_pipe)


def test_symbolic_links_in_a_ring_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    with pytest.warns(TextWarning, match="again .*folder above"):
        assert names(find([tmp_path], spool=no_pipe), tmp_path) == ["a.txt"]
    with pytest.raises(ValueError, match=r"cannot be read.*symbolic links"):
        find([tmp_path / "self"], spool=no_pipe)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("missing.txt", None, "does not exist"),
        ("*.nothing", None, "no file matches"),
        ("empty.txt", b"", "is empty"),
        ("nuls", b"ab\0\0" * 100, "binary"),
        ("noise", bytes(range(128, 256)) * 10, "binary, or not in UTF-8"),
        ("utf16.txt", "hello".encode("utf-16"), "UTF-16"),
        ("broken.gz", gzip.compress(os.urandom(100_000))[:500], "damaged gzip"),
        ("bad\0name", None, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_reported(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        find([f"{tmp_path}/{name}"], spool=no_pipe)


def test_nothing_given_or_found_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no text was given"):
        find([], spool=no_pipe)
    with pytest.raises(ValueError, match="contains no text"):
        find([tmp_path], spool=no_pipe)
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        find([os.devnull], spool=no_pipe)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may read everything")
def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    (tmp_path / "a.txt").chmod(0)
    with pytest.raises(ValueError, match="permission denied"):
        find([tmp_path / "a.txt"], spool=no_pipe)


def test_text_is_cleaned(tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\rthree\xc3\xa9\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "".join(read(source)) == "one\ntwo\rthreeé\n"


def test_replaced_bytes_are_counted(tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", b"caf\xe9 and \xff\xfe na\0me\n")
    with pytest.warns(TextWarning) as caught:
        assert "".join(read(source)) == "caf\ufffd and \ufffd\ufffd name\n"
    messages = [str(warning.message) for warning in caught]
    assert messages == [
        "a.txt: 3 bytes that are not UTF-8 were replaced by U+FFFD",
        "a.txt: 1 NUL bytes were dropped",
    ]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_the_size_of_blocks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    data = "é😀\r\n\r\r\nabc".encode() * 5 + b"\xff\xe2\x82"
    monkeypatch.setattr("lmlab.data.readers.text.BLOCK", max(block, 3))
    source = written(tmp_path / "a.txt", data)
    want = "é😀\n\r\nabc" * 5 + "\ufffd\ufffd\ufffd"
    with pytest.warns(TextWarning, match="3 bytes"):
        assert "".join(read(source)) == want
    packed = written(tmp_path / "a.gz", gzip.compress(data[:20]) + gzip.compress(data[20:]))
    with pytest.warns(TextWarning, match="3 bytes"):
        assert "".join(read(packed)) == want


def test_a_gzip_file_cut_short_later_on_is_reported(tmp_path: Path) -> None:
    data = gzip.compress(os.urandom(1 << 20).hex().encode())
    with pytest.raises(ValueError, match="damaged gzip"):
        list(read(written(tmp_path / "a.gz", data[: len(data) // 2])))


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from("ab!'\n \t\u00a0\x1c1é"), max_size=12))
def test_cuts_are_before_white_space_after_something_else(text: str) -> None:
    allowed = [i for i in range(1, len(text)) if text[i] in " \n" and not text[i - 1].isspace()]
    assert safe_cut(text) == (max(allowed) if allowed else len(text))
