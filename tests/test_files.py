"""Files and folders that are written: complete or not there, with nothing temporary left."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen
from sys import executable
from typing import Any

import pytest

from lmlab.files import FullDiskError, is_alive, write_text, writing, writing_folder


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def interrupt(written: AbstractContextManager[Path], error: BaseException) -> None:
    """Write a half, then fail."""
    with written as new:
        (new / "half" if new.is_dir() else new).write_text("half")
        raise error


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.EIO, "injected")])
@pytest.mark.parametrize("shared", [False, True])
def test_an_error_leaves_the_old_file(tmp_path: Path, error: BaseException, shared: bool) -> None:
    path = tmp_path / "out.txt"
    write_text(path, "old")
    with pytest.raises(type(error)):
        interrupt(writing(path, shared=shared), error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.txt"]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(FullDiskError, match=r"no space left on device: .*out\.txt could not be written"):
        interrupt(writing(tmp_path / "out.txt"), OSError(errno.ENOSPC, "No space left on device"))
    assert names(tmp_path) == []


def test_two_that_write_a_shared_file_have_names_of_their_own(tmp_path: Path) -> None:
    with writing(tmp_path / "a", shared=True) as first, writing(tmp_path / "a", shared=True) as second:
        assert first != second
        first.write_text("1")
        second.write_text("2")
    assert (tmp_path / "a").read_text() == "1", "the block that ends last is the outer one"
    assert names(tmp_path) == ["a"]


def test_a_folder_replaces_the_one_before(tmp_path: Path) -> None:
    path, new, previous = tmp_path / "last", tmp_path / "last.new", tmp_path / "previous"
    for number in range(3):
        with writing_folder(path, new=new, previous=previous) as folder:
            (folder / "number").write_text(str(number))
    assert ((path / "number").read_text(), (previous / "number").read_text()) == ("2", "1")
    with writing_folder(path, new=new) as folder:
        (folder / "other").touch()
    assert names(tmp_path) == ["last", "last/other", "previous", "previous/number"]


def test_a_folder_that_is_not_wanted_or_not_complete_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "mine").touch()
    with writing_folder(path, new=tmp_path / "new", wanted=lambda: False) as folder:
        (folder / "other").touch()
    with pytest.raises(KeyboardInterrupt):
        interrupt(writing_folder(path, new=tmp_path / "new"), KeyboardInterrupt())
    assert names(tmp_path) == ["folder", "folder/mine"]


def test_a_folder_comes_back_if_its_successor_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "mine").touch()
    rename = os.rename

    def fail(source: Any, target: Any, **options: Any) -> None:
        if Path(source).name == "new":
            raise OSError(errno.EIO, "injected")
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="injected"), writing_folder(path, new=tmp_path / "new") as folder:
        (folder / "other").touch()
    assert names(tmp_path) == ["folder", "folder/mine"]


def test_all_of_a_folder_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with writing_folder(tmp_path / "folder", new=tmp_path / "new") as folder:
        (folder / "in").mkdir()
        for name in ("data", "in/data"):
            (folder / name).write_text("content")
    assert {path.stat().st_ino for path in (tmp_path / "folder").rglob("*")} <= synced


@pytest.mark.skipif(os.name != "posix", reason="Windows does not say whether a process runs")
def test_a_process_that_has_ended_is_not_alive() -> None:
    process = Popen([executable, "-c", ""])
    process.wait()
    assert is_alive(os.getpid())
    assert not is_alive(process.pid)
    assert not is_alive(0)
