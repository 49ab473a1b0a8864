"""Kinds of data: how recipes tell them, what each takes, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lmlab.config import read_toml
from lmlab.data import DATA, find_kind, load_config, make_config
from lmlab.data.corpora.pairs import PairFiles
from lmlab.data.readers.labelled import read_labelled
from lmlab.runs.recipe import make_recipe

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"text": "book.txt"}, "text"),
        ({"text": ["a.txt", "b.txt"], "valid": "c.txt"}, "text"),
        ({"kind": "languages", "text": {"en": "a.txt", "de": ["b.txt"]}}, "languages"),
        ({"text": {"en": "a.txt", "de": "b.txt"}}, "languages"),
        ({"text": ["en=a.txt", "de=b.txt"], "alpha": 0.3}, "languages"),
        ({"text": "en=a.txt"}, "languages"),
        ({"kind": "pairs", "source": "a", "target": "b", "valid": {"source": "c", "target": "d"}}, "pairs"),
        ({"source": "a", "target": "b", "valid_source": "c", "valid_target": "d", "test_pairs": "e.tsv"}, "pairs"),
        ({"pairs": "a.tsv", "longest": None}, "pairs"),
    ],
)
def test_forms(values: dict[str, Any], kind: str) -> None:
    assert find_kind(values) == kind
    config = make_config(values)
    assert config.kind == kind
    assert isinstance(config, load_config(kind))
    assert make_config(config.model_dump()) == config, "what is written down is read back"
    assert config.absolute().named == config.named


def test_flat_and_nested_pairs_are_the_same() -> None:
    flat = make_config({"pairs": "a.tsv", "valid_source": "c", "valid_target": ["d"], "test_pairs": "e"})
    nested = make_config({"pairs": "a.tsv", "valid": {"source": ["c"], "target": "d"}, "test": {"pairs": "e"}})
    assert flat == nested
    assert flat.valid == PairFiles(source=["c"], target=["d"])  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"unknown setting data\.valid\.sauce"):
        make_config({"pairs": "a.tsv", "valid": {"sauce": "c"}})


def test_labels_and_tables_are_the_same() -> None:
    assert make_config({"text": ["en=a", "de=b", "en=c"]}) == make_config({"text": {"en": ["a", "c"], "de": "b"}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "no text is named"),
        ({"valid": "a"}, "no text is named"),
        ({"text": "a", "source": "b", "target": "c"}, "text and source do not go together.*not both"),
        ({"kind": "txt", "text": "a"}, "unknown kind of data 'txt'; did you mean 'text'"),
        ({"text": "a", "txet": "b"}, r"unknown setting data\.txet; did you mean 'text'"),
        ({"pairs": "a", "longst": 3}, r"unknown setting data\.longst; did you mean 'longest'"),
        ({"text": "a", "longest": 20}, "longest belongs to pairs, and this learns from plain text"),
        ({"text": "a", "alpha": 0.3}, "alpha belongs to languages, and this learns from plain text"),
        ({"pairs": "a", "documents": "lines"}, "documents belongs to text and languages, and this learns from pairs"),
        ({"pairs": "a", "valid": "b"}, "valid is plain text, but this run trains on pairs; give --valid-source"),
        ({"text": ["en=a", "b"]}, "b has no language"),
        ({"text": {"en": "a", "de": "b"}, "valid": ["en=c"]}, "--valid has en, the text has en, de"),
        ({"kind": "languages", "text": ["a"]}, "give the language of each text"),
        ({"source": "a"}, "give both --source and --target"),
        ({"text": "a", "documents": "page"}, r"data\.documents = 'page'"),
        ({"text": 3}, r"data\.text = 3"),
    ],
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config(values)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_parse(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMLAB_DATA", str(tmp_path))
    monkeypatch.setenv("LMLAB_PAIRS", str(tmp_path / "pairs.tsv"))
    monkeypatch.setenv("LMLAB_BOOKS", str(tmp_path / "books"))
    recipe = make_recipe(read_toml(path))
    translates = ("multi30k-bart", "multi30k-seq2seq", "multi30k-transformer")
    assert recipe.data.kind == ("pairs" if path.stem in translates else "text")
    assert all(name.startswith(str(tmp_path)) for name in recipe.data.named)


def test_nothing_heavy_is_imported_for_the_table() -> None:
    code = "import sys, lmlab.data; print([name for name in ('torch', 'numpy', 'tokenizers') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    assert all(len(row.keys) < 4 for row in DATA.values())


@pytest.mark.parametrize(("names", "kind"), [(["deep/a.wav", "b.flac"], "sounds")])
@pytest.mark.parametrize("key", ["text", "examples"])
def test_a_kind_without_a_reader_is_named(names: list[str], kind: str, key: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\0\1")
    with pytest.raises(ValueError, match=f"{tmp_path}: these files are {kind}, and lmlab has no reader for {kind}"):
        make_config({key: str(tmp_path)})
    with pytest.raises(ValueError, match=f"lmlab has no reader for {kind}; it reads text, languages, pairs, examples"):
        make_config({"kind": kind})
    with pytest.raises(ValueError, match=f"lmlab has no reader for {kind}"):
        read_labelled(tmp_path)
    (tmp_path / "notes.txt").write_text("a text")
    assert make_config({key: str(tmp_path)}).kind == key, "text beside pictures is text"
    assert make_config({key: str(tmp_path / "absent")}).kind == key, "a missing file is an error when it is read"
