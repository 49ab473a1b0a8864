"""The built-in corpus: large enough, the same every time, without repetition."""

from __future__ import annotations

import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from lmlab.data.readers import builtin_corpus as builtin
from lmlab.data.readers.builtin_corpus import builtin_documents


def test_it_is_large_and_clean() -> None:
    documents = builtin_documents()
    assert sum(len(text.split()) for _, text in documents) > 250_000
    assert len({name for name, _ in documents}) == len(documents) > 300
    names = dict(documents)
    assert "Return the median (middle value) of numeric data." in names["statistics"]
    assert 'The "for" statement' in names["topic compound"]
    assert "Return a capitalized version of the string." in names["builtins"]
    for _, text in documents:
        assert not re.search(r"[ \t]\n|\n{3,}|\0", text)
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


def test_no_paragraph_is_in_two_documents() -> None:
    seen: dict[str, str] = {}
    for name, text in builtin_documents():
        for paragraph in {" ".join(part.split()) for part in text.split("\n\n")}:
            if len(paragraph) >= builtin.REPEATED:
                assert seen.setdefault(paragraph, name) == name, paragraph


def test_another_process_reads_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = (
        "from hashlib import sha256; from lmlab.data.readers.builtin_corpus import builtin_documents;"
        "print(sha256(repr(builtin_documents()).encode()).hexdigest())"
    )
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path))
    runs = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(2)]
    monkeypatch.undo()
    assert {run.stdout.strip() for run in runs} == {sha256(repr(builtin_documents()).encode()).hexdigest()}


def test_a_damaged_cache_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(builtin, "_sources", lambda root: [("m", "a text of some length. " * 20)])
    first = builtin_documents()
    (cached,) = tmp_path.glob("builtin-*.json")
    cached.write_text(cached.read_text(encoding="utf-8")[:-5], encoding="utf-8")
    assert builtin_documents() == first
