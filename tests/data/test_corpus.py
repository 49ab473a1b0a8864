"""Preparing a corpus: the stream of tokens, the parts, the cache, and the messages when something is wrong."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lmlab.data.corpora.corpus import Corpus, TextSplit
from lmlab.data.corpora.text import prepare_text
from lmlab.data.readers import documents as documents_module
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers import TokenizerWarning, train

LINES = [f"the {i} cats sat on the {i * i} mats\n" for i in range(200)]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(LINES), encoding="utf-8")
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def documents_of(corpus: Corpus, split: TextSplit) -> list[str]:
    """The texts in a stream of tokens, after a check of its form."""
    boundary = corpus.tokenizer.boundary
    tokens = split.tokens.tolist()
    assert tokens[0] == tokens[-1] == boundary
    starts = split.documents.tolist()
    assert all(tokens[start - 1] == boundary for start in starts)
    return [
        corpus.tokenizer.decode(tokens[start : end - 1])
        for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True)
    ]


def test_the_stream_has_a_boundary_around_every_document(tmp_path: Path, cache: Path) -> None:
    for name, content in (("a.txt", "ab"), ("b.txt", "é\nc"), ("c.txt", "d")):
        (tmp_path / "texts" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "texts" / name).write_text(content, encoding="utf-8")
    corpus = prepare_text([tmp_path / "texts"], tokenizer="bytes", split=(1,), cache=cache)
    assert corpus.train.tokens.tolist() == [256, 97, 98, 256, 0xC3, 0xA9, 10, 99, 256, 100, 256]
    assert corpus.train.documents.tolist() == [1, 4, 9]
    assert [Path(name).name for name in corpus.train.names or []] == ["a.txt", "b.txt", "c.txt"]
    assert (corpus.train.bytes, corpus.train.words) == (7, 4)
    assert corpus.train.tokens.dtype == np.uint16
    assert corpus.valid is None
    assert corpus.test is None


@pytest.mark.parametrize("tokenizer", ["bpe:300", "characters", "bytes", "unigram:270"])
@pytest.mark.parametrize("how", ["file", "lines", "blank"])
def test_all_of_the_text_is_there_once(text: Path, cache: Path, tokenizer: str, how: str) -> None:
    corpus = prepare_text([text], tokenizer=tokenizer, documents=how, cache=cache)
    parts = [corpus.train, corpus.valid, corpus.test]
    found = [document for part in parts if part is not None for document in documents_of(corpus, part)]
    lines = ("" if how == "file" else "\n").join(found).splitlines()
    assert sorted(line for line in lines if line) == sorted("".join(LINES).splitlines())
    assert sum(part.words for part in parts if part) == len("".join(LINES).split())
    for part in (corpus.valid, corpus.test):
        assert part is not None
        assert part.text_path is not None
        assert list(part.texts()) == documents_of(corpus, part)
        assert part.text_path.stat().st_size == part.bytes
        assert 0 < part.bytes / len("".join(LINES)) < 0.1
    with pytest.raises(ValueError, match="not stored in the run"):
        list(corpus.train.texts())


def test_small_pieces_give_the_same_corpus(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare_text([text], tokenizer="bpe:300", cache=tmp_path / "one")
    monkeypatch.setattr(documents_module, "PIECE", 50)
    monkeypatch.setattr("lmlab.data.corpora.shards.BATCH", 200)
    pieces = prepare_text([text], tokenizer=whole.tokenizer, cache=tmp_path / "two")
    assert pieces.train.tokens.tolist() == whole.train.tokens.tolist()
    assert pieces.train.words == whole.train.words


def test_words_count_as_the_literature_does(text: Path, cache: Path) -> None:
    """Every newline is one `<eos>`, and the last one is the boundary at the end."""
    corpus = prepare_text([text], tokenizer="words", split=(1,), cache=cache)
    assert len(corpus.train.tokens) - 1 == corpus.train.words + len(LINES)
    assert documents_of(corpus, corpus.train) == ["".join(LINES).removesuffix("\n")]


def test_wikitext_has_its_published_size(shared_data: Callable[[str], Path], cache: Path) -> None:
    folder = shared_data("wikitext2")
    corpus = prepare_text(
        [folder / "train.txt"],
        valid=[folder / "valid.txt"],
        test=[folder / "test.txt"],
        tokenizer="words",
        cache=cache,
    )
    assert corpus.valid is not None
    assert corpus.test is not None
    assert [len(part.tokens) - 1 for part in (corpus.train, corpus.valid, corpus.test)] == [2088628, 217646, 245569]
    assert corpus.tokenizer.vocabulary == 33278


def test_only_the_training_part_trains_the_tokenizer(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "train.txt").write_text("abc abc\n", encoding="utf-8")
    (tmp_path / "valid.txt").write_text("xyz\n", encoding="utf-8")
    corpus = prepare_text([tmp_path / "train.txt"], valid=[tmp_path / "valid.txt"], tokenizer="characters", cache=cache)
    assert corpus.tokenizer.vocabulary == 2 + len("abc \n")
    assert corpus.valid is not None
    assert corpus.valid.tokens[1:4].tolist() == [corpus.tokenizer.unknown] * 3
    assert corpus.test is None


def test_a_test_text_of_its_own_leaves_valid_to_the_split(text: Path, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "test.txt").write_text("another text", encoding="utf-8")
    corpus = prepare_text([text], test=[tmp_path / "test.txt"], tokenizer="bytes", cache=cache)
    assert corpus.test is not None
    assert corpus.valid is not None
    assert documents_of(corpus, corpus.test) == ["another text"]
    assert corpus.train.bytes / len("".join(LINES)) == pytest.approx(0.95, abs=0.01)
    assert corpus.train.bytes + corpus.valid.bytes == len("".join(LINES))


def test_large_vocabularies_take_four_bytes(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join(map(str, range(70_000))), encoding="utf-8")
    corpus = prepare_text([tmp_path / "a.txt"], tokenizer="words", split=(1,), cache=cache)
    assert corpus.train.tokens.dtype == np.uint32
    assert documents_of(corpus, corpus.train)[0].endswith(" 69999")


def test_packed_files_and_standard_input_are_texts_too(
    text: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = prepare_text([text], tokenizer="bpe:300", cache=cache)
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(text.read_bytes()))
    packed = prepare_text([tmp_path / "text.txt.gz"], tokenizer="bpe:300", cache=cache)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
    piped = prepare_text(["-"], tokenizer="bpe:300", cache=cache)
    assert plain.train.tokens.tolist() == packed.train.tokens.tolist() == piped.train.tokens.tolist()
    assert piped.fingerprint == plain.fingerprint
    assert not list((cache / "corpora").glob(".*")), "what came through the pipe is not left behind"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(ValueError, match="standard input is empty"):
        prepare_text(["-"], tokenizer="bytes", cache=cache)


@pytest.mark.skipif(os.name == "nt", reason="there are no named pipes")
def test_a_named_pipe_is_a_text(text: Path, tmp_path: Path, cache: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(text.read_bytes()))
    writer.start()
    piped = prepare_text([tmp_path / "pipe"], tokenizer="bytes", cache=cache)
    writer.join()
    assert piped.fingerprint == prepare_text([text], tokenizer="bytes", cache=cache).fingerprint


def test_the_second_time_comes_from_the_cache(text: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare_text([text], tokenizer="bpe:300", cache=cache)
    monkeypatch.setattr("lmlab.data.corpora.text.gather", None)
    second = prepare_text([text], tokenizer="bpe:300", cache=cache)
    assert second.fingerprint == first.fingerprint
    assert second.train.tokens.tolist() == first.train.tokens.tolist()
    assert second.tokenizer.fingerprint == first.tokenizer.fingerprint


def test_every_choice_has_its_own_place(text: Path, cache: Path) -> None:
    corpora = [
        prepare_text([text], tokenizer="bytes", cache=cache),
        prepare_text([text], tokenizer="characters", cache=cache),
        prepare_text([text], tokenizer="bytes", split=(0.8, 0.2), cache=cache),
        prepare_text([text], tokenizer="bytes", documents="lines", cache=cache),
    ]
    text.write_text("other " * 100, encoding="utf-8")
    corpora.append(prepare_text([text], tokenizer="bytes", cache=cache))
    assert len({corpus.fingerprint for corpus in corpora}) == 5
    assert len({corpus.folder for corpus in corpora}) == 5


@pytest.mark.parametrize(
    "name", ["train.tokens", "train.documents", "valid.txt", "test.places", "index.json", "tokenizer.json"]
)
@pytest.mark.parametrize("harm", ["cut", "missing"])
def test_a_damaged_cache_is_made_again(text: Path, cache: Path, name: str, harm: str) -> None:
    first = prepare_text([text], tokenizer="bytes", cache=cache)
    want = np.array(first.train.tokens)
    path = first.folder / name
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    second = prepare_text([text], tokenizer="bytes", cache=cache)
    assert second.train.tokens.tolist() == want.tolist()
    assert [folder.name for folder in (cache / "corpora").iterdir()] == [first.folder.name]


@pytest.mark.parametrize("harm", ["[]", "{}", '{"format": 1}', "null", '{"format": 99, "splits": {}, "warnings": []}'])
def test_a_wrong_index_is_not_believed(text: Path, cache: Path, harm: str) -> None:
    first = prepare_text([text], tokenizer="bytes", cache=cache)
    (first.folder / "index.json").write_text(harm, encoding="utf-8")
    assert len(prepare_text([text], tokenizer="bytes", cache=cache).train.tokens) == len(first.train.tokens)


def test_an_error_leaves_nothing_behind(text: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lmlab.data.corpora.text.write_index", fail)
    with pytest.raises(KeyboardInterrupt):
        prepare_text([text], tokenizer="bytes", cache=cache)
    assert list((cache / "corpora").iterdir()) == []


KILLED = """
import os, sys
import lmlab.data.corpora.text as corpus
corpus.write_index = lambda *args: os.kill(os.getpid(), 9)
corpus.prepare_text([sys.argv[1]], tokenizer="bytes", cache=corpus.Path(sys.argv[2]))
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
def test_a_killed_process_leaves_no_half_corpus(text: Path, cache: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(text), str(cache)], check=False)
    assert done.returncode == -9
    left = list((cache / "corpora").iterdir())
    assert len(left) == 1
    corpus = prepare_text([text], tokenizer="bytes", cache=cache)
    assert list((cache / "corpora").iterdir()) == [corpus.folder], "what the dead process left is cleared away"


def test_a_text_that_changes_meanwhile_is_reported(text: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmlab.data.corpora import text as module

    gather = module.gather

    def change(*args: object, **kwargs: object) -> object:
        time.sleep(0.01)
        text.write_text("changed " * 400, encoding="utf-8")
        return gather(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "gather", change)
    with pytest.raises(ValueError, match="changed while it was being read"):
        prepare_text([text], tokenizer="bytes", cache=cache)


def test_warnings_are_repeated_from_the_cache(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 " * 100)
    for _ in range(2):
        with pytest.warns(TextWarning, match="100 bytes that are not UTF-8"), pytest.warns(TokenizerWarning):
            prepare_text([tmp_path / "a.txt"], tokenizer="bpe:9999", cache=cache)


def test_a_test_text_in_the_training_text_is_reported(text: Path, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "copy.txt").write_bytes(text.read_bytes())
    with pytest.warns(TextWarning, match="in both the training and the test text"):
        prepare_text([text], test=[tmp_path / "copy.txt"], tokenizer="bytes", cache=cache)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "bpe:12"}, "at least 257"),
        ({"tokenizer": "nothing/here.json"}, "does not exist"),
        ({"documents": "line"}, "did you mean 'lines'"),
        ({"split": (0.5, 0.4)}, "sum to 1"),
        ({"valid": ["nowhere.txt"]}, "nowhere.txt does not exist"),
        ({"valid": []}, "no text was given"),
    ],
)
def test_wrong_options_are_reported(text: Path, cache: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_text([text], cache=cache, **options)  # type: ignore[arg-type]


def test_a_cache_that_cannot_be_written_is_reported(text: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    with pytest.raises(ValueError, match="LMLAB_CACHE"):
        prepare_text([text], cache=tmp_path / "file")


def test_progress_is_reported_to_the_end(text: Path, cache: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    prepare_text([text], tokenizer="bpe:300", cache=cache, progress=lambda *report: reports.append(report))
    stages = list(dict.fromkeys(stage for stage, _, _ in reports))
    assert stages == ["checking", "reading", "training the tokenizer", "encoding"]
    for stage in stages:
        done, total = [(done, total) for name, done, total in reports if name == stage][-1]
        assert done == total > 0


def test_an_existing_tokenizer_is_used_as_it_is(text: Path, tmp_path: Path, cache: Path) -> None:
    tokenizer = train("bpe:270", ["the cats sat on the mats " * 9])
    tokenizer.save(tmp_path / "tokenizer.json")
    by_path = prepare_text([text], tokenizer=str(tmp_path / "tokenizer.json"), cache=cache)
    by_object = prepare_text([text], tokenizer=tokenizer, cache=cache)
    assert by_path.tokenizer.fingerprint == by_object.tokenizer.fingerprint == tokenizer.fingerprint
    assert by_path.folder == by_object.folder
    assert by_path.train.tokens.tolist()[1:-1] == tokenizer.encode(documents_of(by_path, by_path.train)[0])


def test_the_index_can_be_read_by_people(text: Path, cache: Path) -> None:
    corpus = prepare_text([text], tokenizer="bytes", cache=cache)
    index = json.loads((corpus.folder / "index.json").read_text(encoding="utf-8"))
    assert index["splits"]["train"]["tokens"] == len(corpus.train.tokens)
    assert index["warnings"] == []


def test_memory_stays_bounded(tmp_path: Path, cache: Path) -> None:
    """Preparing 60 MB, half of it one line without a space, adds little to the memory of the process."""
    code = """
import resource, sys
from pathlib import Path
from lmlab.data.corpora.text import prepare_text
unit = 1 if sys.platform == "darwin" else 1024
prepare_text([sys.argv[2]], tokenizer=sys.argv[3], cache=Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
prepare_text([sys.argv[4]], tokenizer=sys.argv[3], cache=Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before)
"""
    pytest.importorskip("resource")
    (tmp_path / "small.txt").write_text("the cats sat on the mats\n" * 200_000, encoding="utf-8")
    with (tmp_path / "large.txt").open("w", encoding="utf-8") as file:
        for _ in range(30):
            file.write("the cats sat on the mats\n" * 40_000)
        for _ in range(30):
            file.write("thecatssatonthemats" * 55_000)
    paths = [str(cache), str(tmp_path / "small.txt"), "bytes", str(tmp_path / "large.txt")]
    done = subprocess.run([sys.executable, "-c", code, *paths], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 40e6


def test_shares_without_valid_and_test_warn_of_nothing(text: Path, cache: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare_text([text], tokenizer="bytes", split=(1, 0, 0), cache=cache)
