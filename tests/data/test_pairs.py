"""Parallel text: reading, aligning, splitting, filtering, encoding, and the messages when something is wrong."""

from __future__ import annotations

import gzip
import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lmlab.data.corpora import pair_shards, pairs
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.pairs import PairSplit, prepare_pairs
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers import train

SOURCES = [f"the {i} cats sat on {i * i} mats" for i in range(60)]
TARGETS = [f"die {i} Katzen saßen auf {i * i} Matten" for i in range(60)]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "a.en", SOURCES), write(tmp_path / "a.de", TARGETS)


def decoded(corpus: Corpus, split: PairSplit) -> list[tuple[str, str]]:
    """The texts of all rows, after a check of their form."""
    found = []
    source_tokenizer = corpus.source_tokenizer or corpus.tokenizer
    for index in range(len(split)):
        source, target = split.row(index)
        assert source_tokenizer.boundary not in source
        assert corpus.tokenizer.boundary not in target
        assert (len(source), len(target)) == (split.lengths[0][index], split.lengths[1][index])
        found.append((source_tokenizer.decode(source), corpus.tokenizer.decode(target)))
    return found


def test_rows_by_hand(tmp_path: Path, cache: Path) -> None:
    source, target = write(tmp_path / "x", ["ab", "é"]), write(tmp_path / "y", ["c", "de f"])
    corpus = prepare_pairs(source=source, target=target, tokenizer="bytes", split=(1,), cache=cache)
    first, second = corpus.train.row(0), corpus.train.row(1)
    assert [row.tolist() for row in first] == [[97, 98], [99]]
    assert [row.tolist() for row in second] == [[0xC3, 0xA9], [100, 101, 32, 102]]
    assert corpus.train.tokens.tolist() == [256, 99, 256, 100, 101, 32, 102, 256]
    assert (corpus.train.bytes, corpus.train.words, len(corpus.train)) == (7, 3, 2)
    assert (corpus.valid, corpus.test, corpus.dropped) == (None, None, {})


def test_all_forms_of_the_same_pairs_are_equal(
    files: tuple[Path, Path], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = list(zip(SOURCES, TARGETS, strict=True))
    tsv = write(tmp_path / "p.tsv", [f"{a}\t{b}" for a, b in both])
    plain = write(tmp_path / "p.jsonl", [json.dumps({"source": a, "target": b}) for a, b in both])
    nested = write(tmp_path / "n.txt", [json.dumps({"translation": {"en": a, "de": b}, "id": 1}) for a, b in both])
    swapped = write(tmp_path / "s.json", [json.dumps({"translation": {"de": b, "en": a}}) for a, b in both])
    flat = write(tmp_path / "f.jsonl", [json.dumps({"de": b, "en": a}) for a, b in both])
    packed = tmp_path / "p.tsv.gz"
    packed.write_bytes(gzip.compress(tsv.read_bytes()))
    halves = [write(tmp_path / f"{name}{i}", lines[i * 30 : i * 30 + 30]) for name, lines in
              (("en", SOURCES), ("de", TARGETS)) for i in (0, 1)]  # fmt: skip
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(tsv.read_bytes())))
    forms: list[dict[str, object]] = [
        {"source": files[0], "target": files[1]},
        {"source": halves[:2], "target": halves[2:]},
        *({"pairs": pairs} for pairs in (tsv, plain, nested, packed, "-")),
        *({"pairs": pairs, "languages": ("en", "de")} for pairs in (swapped, flat)),
    ]
    for form in forms:
        corpus = prepare_pairs(**form, tokenizer="characters", split=(1,), cache=cache)  # type: ignore[arg-type]
        assert decoded(corpus, corpus.train) == both


def test_parts_are_disjoint_whole_and_near_their_shares(files: tuple[Path, Path], cache: Path) -> None:
    corpus = prepare_pairs(source=files[0], target=files[1], tokenizer="characters", split=(0.7, 0.2, 0.1), cache=cache)
    assert corpus.valid is not None
    assert corpus.test is not None
    found = [decoded(corpus, part) for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(part) for part in found] == [42, 12, 6]
    assert sorted(pair for part in found for pair in part) == sorted(zip(SOURCES, TARGETS, strict=True))
    assert list(corpus.test.texts()) == found[2]
    with pytest.raises(ValueError, match="not stored in the run"):
        list(corpus.train.texts())


def test_pairs_with_the_same_source_stay_together(tmp_path: Path, cache: Path) -> None:
    source = write(tmp_path / "x", [f"sentence {i % 20}" for i in range(100)])
    target = write(tmp_path / "y", [f"Satz {i}" for i in range(100)])
    corpus = prepare_pairs(source=source, target=target, tokenizer="bytes", split=(0.8, 0.2), cache=cache)
    assert corpus.valid is not None
    train_sources, valid_sources = ({pair[0] for pair in decoded(corpus, p)} for p in (corpus.train, corpus.valid))
    assert not train_sources & valid_sources
    assert len(train_sources) + len(valid_sources) == 20


def test_too_few_pairs_to_split(tmp_path: Path, cache: Path) -> None:
    source, target = write(tmp_path / "x", ["a", "b"]), write(tmp_path / "y", ["c", "d"])
    with pytest.raises(ValueError, match=r"2 pairs \(2 different sources\) are too few to split into train 0.9"):
        prepare_pairs(source=source, target=target, tokenizer="bytes", cache=cache)


@pytest.mark.parametrize("shorter", [0, 1])
def test_unequal_line_counts_are_reported_with_the_place(files: tuple[Path, Path], cache: Path, shorter: int) -> None:
    lines = [SOURCES, TARGETS]
    write(files[shorter], lines[shorter][:57])
    with pytest.raises(ValueError, match="ends after line 57") as error:
        prepare_pairs(source=files[0], target=files[1], tokenizer="bytes", cache=cache)
    message = str(error.value)
    assert message.startswith(f"{files[shorter]} ends after line 57, but {files[1 - shorter]} has 60 lines")
    assert lines[1 - shorter][57] in message
    assert not list((cache / "corpora").iterdir())


def test_blank_lines_at_the_end_are_named_as_such(files: tuple[Path, Path], cache: Path) -> None:
    with files[1].open("a") as file:
        file.write("\n \n")
    with pytest.raises(ValueError, match=r"has 62 lines \(only blank lines, which can be removed\)"):
        prepare_pairs(source=files[0], target=files[1], tokenizer="bytes", cache=cache)


def test_only_newlines_end_lines(tmp_path: Path, cache: Path) -> None:
    """Python's splitlines would cut at all of these, and the files would fall out of step."""
    source = write(tmp_path / "x", ["a\x85b", "c\x0bd", "e\u2028f"])
    target = write(tmp_path / "y", ["1", "2", "3"])
    corpus = prepare_pairs(source=source, target=target, tokenizer="characters", split=(1,), cache=cache)
    assert decoded(corpus, corpus.train) == [("a\x85b", "1"), ("c\x0bd", "2"), ("e\u2028f", "3")]


def test_windows_line_ends_and_a_missing_last_newline(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\r\nb")
    (tmp_path / "y").write_bytes(b"\xef\xbb\xbfc\nd\n")
    corpus = prepare_pairs(
        source=tmp_path / "x", target=tmp_path / "y", tokenizer="characters", split=(1,), cache=cache
    )
    assert decoded(corpus, corpus.train) == [("a", "c"), ("b", "d")]


def test_empty_sides_are_left_out_and_reported(tmp_path: Path, cache: Path) -> None:
    source = write(tmp_path / "x", ["a", "", "c", "d", " "])
    target = write(tmp_path / "y", ["1", "2", "\t", "4", ""])
    with pytest.warns(TextWarning, match="3 pairs with an empty side were left out: lines 2, 3, 5"):
        corpus = prepare_pairs(source=source, target=target, tokenizer="characters", split=(1,), cache=cache)
    assert decoded(corpus, corpus.train) == [("a", "1"), ("d", "4")]
    assert corpus.dropped == {"empty": 3}
    with pytest.warns(TextWarning, match="lines 2, 3, 5"):
        again = prepare_pairs(source=source, target=target, tokenizer="characters", split=(1,), cache=cache)
    assert again.dropped == {"empty": 3}


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["a\tb", "c", "d\te\tf", "g\th"], ["line 2: no tabs where", "line 3: 2 tabs where", "'c'"]),
        (['{"source": "a", "target": "b"}', "{oops"], ["line 2: not JSON", "column 2"]),
        (['{"source": "a", "target": "b"}', '{"source": "a"}'], ["line 2: no text under 'target' (it has 'source')"]),
        (['{"source": "a", "target": "b"}', '{"source": "a", "target": 3}'], ["line 2: no text under 'target'"]),
        (['{"source": "a", "target": "b"}', "[1]"], ["line 2: not a JSON object"]),
        (['{"source": "a", "target": "b"}', '{"source": "a", "target": "\\ud800"}'], ["line 2: half a surrogate pair"]),
        (['{"en": "a", "de": "b"}'], ["line 1: no text under 'source' and 'target'", "data.languages says"]),
    ],
)
def test_malformed_lines_are_an_error_with_their_numbers(
    tmp_path: Path, cache: Path, lines: list[str], named: list[str]
) -> None:
    with pytest.raises(ValueError, match="is not a file of pairs") as error:
        prepare_pairs(pairs=write(tmp_path / "p.txt", lines), tokenizer="bytes", split=(1,), cache=cache)
    for part in named:
        assert part in str(error.value)


def test_only_the_first_bad_lines_are_listed(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "p.tsv", ["a\tb", *(["no tab"] * 100)])
    with pytest.raises(ValueError, match="reading stopped there") as error:
        prepare_pairs(pairs=path, tokenizer="bytes", split=(1,), cache=cache)
    assert str(error.value).count("no tab'") == 5


def test_length_filters_report_what_they_dropped(tmp_path: Path, cache: Path) -> None:
    texts = [("a" * 10, "b" * 10), ("a" * 11, "b"), ("a" * 3, "b" * 9), ("a" * 3, "b" * 10), ("a", "b" * 11)]
    path = write(tmp_path / "p.tsv", ["\t".join(pair) for pair in texts])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        corpus = prepare_pairs(
            pairs=path, valid_pairs=path, tokenizer="bytes", split=(1,), longest=10, ratio=3, cache=cache
        )
    assert decoded(corpus, corpus.train) == [texts[0], texts[2]]
    assert corpus.dropped == {"long": 2, "ratio": 1}
    messages = " ".join(str(warning.message) for warning in caught)
    assert "2 of 5 training pairs were skipped: more than 10 tokens on a side" in messages
    assert "1 of 5 training pairs were skipped: one side more than 3 times" in messages
    assert "in both the training and the valid pairs" in messages
    assert corpus.valid is not None
    assert decoded(corpus, corpus.valid) == texts, "what a model is judged on stays whole"
    with pytest.raises(ValueError, match="all 5 training pairs"):
        prepare_pairs(pairs=path, tokenizer="bytes", split=(1,), longest=1, cache=cache)


def test_lengths_are_counted_in_batches_of_any_size(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"source": files[0], "target": files[1], "tokenizer": "characters", "split": (1,), "longest": 31}
    with pytest.warns(TextWarning):
        whole = prepare_pairs(**options, cache=tmp_path / "one")  # type: ignore[arg-type]
    monkeypatch.setattr(pair_shards, "BATCH", 40)
    with pytest.warns(TextWarning):
        small = prepare_pairs(**options, cache=tmp_path / "two")  # type: ignore[arg-type]
    expected = [pair for pair in zip(SOURCES, TARGETS, strict=True) if max(map(len, pair)) <= 31]
    assert decoded(whole, whole.train) == decoded(small, small.train) == expected
    assert 0 < len(expected) < 60


def test_separate_vocabularies(files: tuple[Path, Path], cache: Path) -> None:
    shared = prepare_pairs(source=files[0], target=files[1], tokenizer="words", cache=cache)
    assert shared.source_tokenizer is None
    assert {"cats", "Katzen"} <= shared.tokenizer.engine.get_vocab().keys()
    corpus = prepare_pairs(
        source=files[0], target=files[1], tokenizer="words", source_tokenizer="characters", cache=cache
    )
    assert corpus.source_tokenizer is not None
    assert corpus.source_tokenizer.kind == "characters"
    vocabulary = corpus.tokenizer.engine.get_vocab()
    assert "Katzen" in vocabulary
    assert "cats" not in vocabulary
    assert set(decoded(corpus, corpus.train)) <= set(zip(SOURCES, TARGETS, strict=True))
    assert corpus.text_fingerprint == shared.text_fingerprint
    assert corpus.fingerprint != shared.fingerprint
    again = prepare_pairs(
        source=files[0], target=files[1], tokenizer="words", source_tokenizer="characters", cache=cache
    )
    assert again.folder == corpus.folder
    assert again.source_tokenizer is not None
    assert again.source_tokenizer.fingerprint == corpus.source_tokenizer.fingerprint


def test_a_tokenizer_of_ones_own(files: tuple[Path, Path], tmp_path: Path, cache: Path) -> None:
    own = train("characters", SOURCES + TARGETS)
    own.save(tmp_path / "tokenizer.json")
    given = prepare_pairs(source=files[0], target=files[1], tokenizer=own, cache=cache)
    read = prepare_pairs(source=files[0], target=files[1], tokenizer=tmp_path / "tokenizer.json", cache=cache)
    assert given.tokenizer.fingerprint == own.fingerprint
    assert given.folder == read.folder


def test_the_second_time_comes_from_the_cache(
    files: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare_pairs(source=files[0], target=files[1], tokenizer="characters", cache=cache)
    monkeypatch.setattr(pairs, "build_folder", lambda *given, **more: pytest.fail("it is there already"))
    second = prepare_pairs(source=files[0], target=files[1], tokenizer="characters", cache=cache)
    assert second.folder == first.folder
    assert second.fingerprint == first.fingerprint
    assert np.array_equal(second.train.tokens, first.train.tokens)


def test_every_choice_has_its_own_place(files: tuple[Path, Path], cache: Path) -> None:
    choices: list[dict[str, object]] = [
        {}, {"split": (0.8, 0.2)}, {"longest": 200}, {"ratio": 9.0}, {"tokenizer": "bytes"}, {"languages": ("a", "b")},
        {"source_tokenizer": "bytes"}, {"valid_source": files[1], "valid_target": files[0]},
        {"source": files[1], "target": files[0]},
    ]  # fmt: skip
    usual: dict[str, object] = {"source": files[0], "target": files[1], "tokenizer": "characters", "cache": cache}
    folders = [prepare_pairs(**{**usual, **choice}).folder for choice in choices]  # type: ignore[arg-type]
    assert len(set(folders)) == len(choices)


@pytest.mark.parametrize(
    "name", ["pairs.json", "source_tokenizer.json", "train-source.tokens", "valid-target.txt", "index.json"]
)
def test_a_damaged_cache_is_made_again(files: tuple[Path, Path], cache: Path, name: str) -> None:
    options = {"source": files[0], "target": files[1], "tokenizer": "bytes", "source_tokenizer": "characters"}
    first = prepare_pairs(**options, cache=cache)  # type: ignore[arg-type]
    rows = decoded(first, first.train)
    (first.folder / name).unlink()
    again = prepare_pairs(**options, cache=cache)  # type: ignore[arg-type]
    assert decoded(again, again.train) == rows
    assert (again.folder / name).is_file()


def test_a_text_that_changes_meanwhile_is_reported(
    files: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = pairs.build_folder

    def change(*given: object, **more: object) -> None:
        build(*given, **more)  # type: ignore[arg-type]
        files[0].write_text("changed")

    monkeypatch.setattr(pairs, "build_folder", change)
    with pytest.raises(ValueError, match="changed while it was being read"):
        prepare_pairs(source=files[0], target=files[1], tokenizer="bytes", cache=cache)
    assert not list((cache / "corpora").iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no pairs were given"),
        ({"source": "x"}, "--source was given without --target"),
        ({"valid_target": "x"}, "--valid-target was given without --valid-source"),
        ({"pairs": "x", "target": "y"}, "give one or the other"),
        ({"pairs": "missing.tsv"}, "missing.tsv does not exist"),
        ({"pairs": []}, "no file was given"),
        ({"pairs": "builtin"}, "has no translations"),
        ({"pairs": "x", "longest": 0}, "longest = 0 is not allowed"),
        ({"pairs": "x", "ratio": 0.5}, r"ratio = 0\.5 is not allowed"),
        ({"pairs": "x", "languages": ["en"]}, "give two keys"),
        ({"pairs": "x", "tokenizer": "bpp:300"}, "did you mean 'bpe'"),
    ],
)
def test_wrong_options_are_reported(cache: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_pairs(**options, cache=cache)  # type: ignore[arg-type]


def test_files_without_a_partner_are_reported(files: tuple[Path, Path], cache: Path) -> None:
    with pytest.raises(ValueError, match="2 source files and 1 target files"):
        prepare_pairs(source=[files[0], files[0]], target=files[1], cache=cache)


def test_progress_is_reported_to_the_end(files: tuple[Path, Path], cache: Path) -> None:
    reported: list[tuple[str, int, int]] = []
    prepare_pairs(
        source=files[0], target=files[1], tokenizer="bytes", cache=cache, progress=lambda *what: reported.append(what)
    )
    stages = dict.fromkeys(stage for stage, _, _ in reported)
    assert list(stages) == ["checking", "reading", "training the tokenizer", "encoding"]
    for stage in stages:
        last = [(done, total) for name, done, total in reported if name == stage][-1]
        assert last[0] == last[1]


def test_multi30k(shared_data: Callable[[str], Path], cache: Path) -> None:
    folder = shared_data("multi30k")
    corpus = prepare_pairs(
        source=folder / "train.en",
        target=folder / "train.de",
        valid_source=folder / "val.en",
        valid_target=folder / "val.de",
        test_source=folder / "test_2016_flickr.en",
        test_target=folder / "test_2016_flickr.de",
        tokenizer="bpe:8192",
        cache=cache,
    )
    assert corpus.valid is not None
    assert corpus.test is not None
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [29_000, 1014, 1000]
    assert (corpus.train.source.words, corpus.train.words) == (345_020, 322_383)
    assert corpus.train.source.bytes == 1_801_238
    assert corpus.train.bytes == 2_110_398 - 40, "40 lines have a space at an end"
    assert corpus.tokenizer.vocabulary == 8192
    lines = [(folder / f"test_2016_flickr.{language}").read_text("utf-8").split("\n") for language in ("en", "de")]
    texts = [(a.strip(), b.strip()) for a, b in zip(*lines, strict=True) if a and b]
    assert list(corpus.test.texts()) == decoded(corpus, corpus.test) == texts
