"""Whatever goes wrong, the user reads one line that says what, and what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lmlab
from lmlab.cli.errors import in_words
from standins import write_run


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch):
    """Makes `lmlab list` raise an error."""

    def set_error(error: BaseException) -> None:
        import lmlab.cli.list as verb

        def list_(model: str | None = None) -> None:
            """List the models, the settings of one, or the built-in data."""
            raise error

        monkeypatch.setattr(verb, "list_", list_)

    return set_error


def test_an_unexpected_error_is_one_line(run_command, broken, monkeypatch) -> None:
    broken(RuntimeError("the matrix is\nnot square"))
    said = run_command("list")
    assert said.code == 1
    assert said.err == (
        "error: unexpected RuntimeError: the matrix is; run it again as lmlab --debug … for the traceback"
    )
    said = run_command("--debug", "list")
    assert said.code == 1
    assert "Traceback (most recent call last)" in said.err
    assert "not square" in said.err
    assert "Traceback" not in run_command("list").err, "the next command is as usual"
    monkeypatch.setenv("LMLAB_DEBUG", "1")
    assert "Traceback" in run_command("list").err
    monkeypatch.setenv("LMLAB_DEBUG", "0")
    assert "Traceback" not in run_command("list").err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a.bin"), "no space left on the device: a.bin"),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), "no space left on"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), "permission denied: a"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a"), "a does not exist"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "a"), "a is a folder, not a file"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"), "a/b is a file, not a folder"),
        (FileExistsError(errno.EEXIST, "File exists", "a"), "a exists already"),
        (OSError(errno.EROFS, "Read-only file system", "a"), "the file system is read-only: a"),
        (OSError("something odd"), "something odd"),
        (MemoryError(), "not enough memory"),
        (ValueError("a = 3: give 4"), "a = 3: give 4"),
    ],
)
def test_what_the_user_can_fix_is_reported_in_words(run_command, broken, error: BaseException, message: str) -> None:
    broken(error)
    said = run_command("list")
    assert said.code == 2
    assert said.err.startswith(f"error: {message}")
    assert "rrno" not in said.err
    assert "os error" not in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top-p", "7"], "error: --top-p 7.0: it must be above 0 and at most 1"),
        (["--min-p", "-1"], "error: --min-p -1.0: it must be between 0 and 1"),
        (["--temperature", "-1"], "error: --temperature -1.0: it must be finite"),
        (["--repetition-penalty", "0"], "error: --repetition-penalty 0.0: it must be above 0"),
        (["--beams", "2", "--top-k", "3"], "error: --beams 2 with --top-k: beam search draws nothing"),
        (["--beams", "2", "--samples", "3"], "error: --samples 3 with --beams 2: a search gives at most"),
    ],
)
def test_options_are_named_as_they_are_typed(run_command, tmp_path, arguments: list[str], message: str) -> None:
    (tmp_path / "run").mkdir()
    write_run(tmp_path / "run", "gpt2", spec="words")
    said = run_command("generate", "run", "the", *arguments)
    assert said.code == 2
    assert said.err.startswith(message)


def test_settings_and_files_keep_their_names(run_command, tmp_path) -> None:
    said = run_command("train", "gpt2", "device = 3.txt", "-o", "run", "--set", "model.layers=none")
    assert "model.layers = None" in said.err
    said = run_command("generate", "top_k", "the")
    assert "error: top_k does not exist" in said.err


def test_nothing_is_shown_before_an_error(run_command, tmp_path) -> None:
    from lmlab.models import create
    from lmlab.runs.model_files import model_tensors, write_config
    from lmlab.runs.storage import write_tensors
    from lmlab.tokenizers import train

    tokenizer = train("wordpiece:120", ["the cat sat on the mat . " * 9])
    (tmp_path / "bert").mkdir()
    tokenizer.save(tmp_path / "bert" / "tokenizer.json")
    model = create("bert", {"vocabulary": tokenizer.vocabulary}, size="tiny")
    write_config(tmp_path / "bert", "bert", model.config.model_dump())
    write_tensors(tmp_path / "bert" / "model.safetensors", model_tensors(model))
    for arguments in (("bert", "hi"), ("bert", "hi", "--samples", "2"), ("bert", "hi", "--json")):
        said = run_command("generate", *arguments)
        assert said.code == 2
        assert said.out == ""
        assert "lmlab fill" in said.err
    (tmp_path / "gpt").mkdir()
    write_run(tmp_path / "gpt", "gpt2", spec="words")
    said = run_command("generate", "gpt", "hi", "--top-p", "3")
    assert (said.code, said.out) == (2, "")


def test_weights_that_do_not_fit_are_named_in_few_words(run_command, tmp_path) -> None:
    import json

    (tmp_path / "run").mkdir()
    write_run(tmp_path / "run", "gpt2", spec="words")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["model"]["layers"] = 40
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    said = run_command("next", "run", "the")
    assert said.code == 2
    assert "missing: blocks.10" in said.err
    assert " more" in said.err
    assert said.err.count("blocks.") == 3


def test_two_files_are_both_named() -> None:
    error = OSError(errno.ENOTEMPTY, "Directory not empty", "a", None, "b")
    assert in_words(error) == "the folder is not empty: a, b"


def test_an_interrupt_that_a_library_turned_into_an_error_is_still_one(run_command, broken) -> None:
    error = ImportError("initialization failed")
    error.__cause__ = KeyboardInterrupt()
    broken(error)
    said = run_command("list")
    assert (said.code, said.err) == (130, "")


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("place", ["lmlab.cli.errors", "typer", "rich", "pydantic", "torch", "lmlab.language_model"])
def test_ctrl_c_while_something_is_imported(tmp_path, place: str) -> None:
    """The signal is sent when an import of that module begins, as if the user had pressed the keys just then.

    Later, in the midst of torch's own import, it may end by its own abort: nobody can catch that.
    """
    write_run(tmp_path, "gpt2", spec="words")
    code = f"""
import importlib.abc, os, signal, sys
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {place!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from lmlab.cli import main
main()
"""
    arguments = ["generate", str(tmp_path), "the", "--device", "cpu", "-n", "3"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 130, done
    assert done.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_the_first_thing_that_is_imported_is_nothing_slow() -> None:
    """Nobody catches Ctrl-C before `main`, so what comes before it must be over at once."""
    code = "import sys; before = set(sys.modules); import lmlab.cli; print(*sorted(set(sys.modules) - before))"
    sources = str(Path(lmlab.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) <= {"__future__", "lmlab", "lmlab.cli"}
