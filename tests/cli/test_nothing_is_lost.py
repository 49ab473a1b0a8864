"""Whatever a command writes, nothing that the user had before is gone afterwards."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
from pathlib import Path

import pytest

from lmlab.cli.texts import check_outputs
from standins import TEXT, write_run
from translators import write_translator

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")
WORDS = "the cat sat on the mat .\na dog ran .\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_translator(folder / "en-de")
    for name, kind, spec in (("gpt", "gpt2", "bpe:300"), ("counts", "ngram", "words")):
        (folder / name).mkdir()
        write_run(folder / name, kind, spec=spec)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, run_command) -> Path:
    """A folder with runs and texts, among them the same text by four names."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "s.en").write_text(WORDS)
    (tmp_path / "link").symlink_to("s.en")
    os.link(tmp_path / "s.en", tmp_path / "hard")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "s.en").write_text(WORDS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "book.txt").write_text(TEXT)
    (tmp_path / "vectors.json").write_text("[1, 2, 3]")
    (tmp_path / "page.html").write_text("<h1>mine</h1>")
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("convert gpt book.txt --to huggingface --overwrite", "book.txt exists already, and is not a folder"),
        ("convert gpt mine --to huggingface --overwrite", "neither a run nor a folder that lmlab has exported"),
        ("convert gpt theirs --to huggingface --overwrite", "neither a run nor a folder that lmlab has exported"),
        ("convert counts book.txt --to arpa --overwrite", "book.txt exists and is no ARPA file"),
        ("convert counts counts/config.json --overwrite", "config.json exists and is no ARPA file"),
        ("convert gpt en-de", "replace it with --overwrite"),
        ("translate en-de s.en -o s.en --overwrite", "-o s.en is read, too"),
        ("translate en-de s.en -o ./folder/../s.en --overwrite", "is read, too"),
        ("translate en-de s.en -o link --overwrite", "-o link is read, too"),
        ("translate en-de link -o s.en --overwrite", "-o s.en is read, too"),
        ("translate en-de s.en -o hard --overwrite", "-o hard is read, too"),
        ("translate en-de s.en -o en-de/config.json --overwrite", "is a file of what is read"),
        ("translate en-de s.en -o book.txt", "-o book.txt exists already: choose another name, or replace it with"),
        ("translate en-de s.en -o new.html --trace new.html", "name the same file"),
        ("translate en-de s.en --trace page.html", "--trace page.html exists already"),
        ("translate en-de s.en --alignments page.html", "--alignments page.html exists already"),
        ("translate en-de page.html --alignments page.html --overwrite", "--alignments page.html is read, too"),
        ("evaluate en-de --source s.en --target folder/s.en -o folder/s.en --overwrite", "is read, too"),
        ("evaluate en-de --source s.en --target folder/s.en -o book.txt", "exists already"),
        ("generate gpt a --beams 2 --trace page.html", "--trace page.html exists already"),
        ("embed gpt vectors.json -o vectors.npy --overwrite", "vectors.json is read, too"),
        ("embed gpt s.en -o vectors.npy", "vectors.json exists already"),
        ("average en-de --last 1 -o mine", "exists already"),
    ],
)
def test_what_is_there_stays(here: Path, run_command, arguments: str, message: str) -> None:
    before = content(here)
    said = run_command(*arguments.split())
    assert said.code == 2
    assert message in said.err
    assert content(here) == before


def test_standard_input_is_an_input_too(here: Path, run_command, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(here / "s.en") as file:
        kept = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WORDS.encode())))
            said = run_command("translate", "en-de", "-", "-o", "hard", "--overwrite")
        finally:
            os.dup2(kept, 0)
            os.close(kept)
    assert said.code == 2
    assert "-o hard is read, too" in said.err
    assert (here / "s.en").read_text() == WORDS


def test_standard_output_may_not_be_an_input(here: Path) -> None:
    with open(here / "s.en", "a") as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with pytest.raises(ValueError, match="standard output goes to a file that is read"):
                check_outputs({}, inputs=["link"])
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def test_what_is_ours_is_replaced_where_that_is_asked_for(here: Path, run_command) -> None:
    assert run_command("convert", "gpt", "hf").code == 0
    assert run_command("convert", "gpt", "hf", "--overwrite").code == 0
    (here / "by-link").symlink_to("hf")
    assert run_command("convert", "gpt", "by-link", "--overwrite").code == 0
    assert (here / "by-link").is_symlink()
    assert run_command("convert", "hf", "gpt", "--overwrite").code == 0
    for name in ("n.arpa", "n.arpa.gz"):
        assert run_command("convert", "counts", name).code == 0
        assert run_command("convert", "counts", name, "--overwrite").code == 0
    assert gzip.decompress((here / "n.arpa.gz").read_bytes()) == (here / "n.arpa").read_bytes()
    said = run_command("translate", "en-de", "s.en", "-o", "book.txt", "--tokens", "3", "--overwrite")
    assert said.code == 0, said.err
    assert (here / "book.txt").read_text() != TEXT
    assert run_command("translate", "en-de", "s.en", "-o", os.devnull, "--tokens", "3").code == 0
    assert not [path for path in here.iterdir() if path.name.startswith(".")], "nothing hidden is left"


def test_a_tokenizer_in_the_target_is_read_and_so_kept(here: Path, run_command) -> None:
    assert run_command("convert", "gpt", "hf").code == 0
    before = content(here)
    said = run_command("convert", "hf", "gpt", "--tokenizer", "gpt/tokenizer.json", "--overwrite")
    assert said.code == 2
    assert "holds gpt/tokenizer.json, which is read" in said.err
    assert content(here) == before


@pytest.mark.skipif(os.name != "posix", reason="needs pipes with names")
def test_a_pipe_stays_a_pipe_and_a_link_a_link(tmp_path: Path) -> None:
    """Renaming over /dev/null would replace it, for everybody on the machine."""
    from lmlab.files import write_bytes

    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_bytes(tmp_path / "pipe", b"passed on")
    assert os.read(reader, 100) == b"passed on"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "there.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "there.txt")
    write_bytes(tmp_path / "link.txt", b"new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "there.txt").read_text() == "new"
