"""Batches by token count: every row once in an epoch, within the budget, little padding, pure functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framed import pair_frame
from lmlab.data.corpora.pairs import PairSplit, prepare_pairs
from lmlab.data.corpora.text import prepare_text
from lmlab.data.loaders.bucketing import Buckets
from lmlab.data.loaders.pairs import PairBatches
from lmlab.data.loaders.passages import Passages
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers import train as tokenizer_of
from lmlab.tokenizers.pieces import describe_pieces

FRAME = pair_frame(tokenizer_of("bytes", []))


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> PairSplit:
    generator = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("pairs")
    lengths = generator.integers(1, 30, 500)
    rows = [("x" * n, "y" * max(1, n + generator.integers(-5, 5))) for n in lengths.tolist()]
    (folder / "p.tsv").write_text("".join(f"{i % 10}{a}\t{i // 10}{b}\n" for i, (a, b) in enumerate(rows)))
    return prepare_pairs(pairs=folder / "p.tsv", tokenizer="bytes", split=(1,), cache=folder).train


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60), st.integers(20, 100))
def test_every_row_once_and_within_the_budget(lengths: list[tuple[int, int]], tokens: int) -> None:
    first, last = (np.array(side) for side in zip(*lengths, strict=True))
    buckets = Buckets([first, last], tokens=tokens, seed=3)
    for epoch in range(2):
        batches = [buckets.rows(epoch * buckets.count + place) for place in range(buckets.count)]
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
        assert all(len(rows) * max(first[rows].max(), last[rows].max()) <= tokens for rows in batches)


def test_batches_are_pure_and_change_from_epoch_to_epoch(split: PairSplit) -> None:
    loader, other = (PairBatches(split, frame=FRAME, tokens=400, seed=1) for _ in range(2))
    count = int(loader.steps_per_epoch)
    forwards = [loader.batch(step).target.tolist() for step in range(2 * count)]
    backwards = [other.batch(step).target.tolist() for step in reversed(range(2 * count))]
    assert forwards == backwards[::-1]
    assert forwards[:count] != forwards[count:]
    members = [sorted(map(tuple, (frozenset(map(tuple, rows)) for rows in epoch)))
               for epoch in (forwards[:count], forwards[count:])]  # fmt: skip
    assert members[0] != members[1], "not only the order of batches changes"
    assert PairBatches(split, frame=FRAME, tokens=400, seed=2).batch(0).target.tolist() != forwards[0]


def test_rows_are_those_of_the_split(split: PairSplit) -> None:
    loader = PairBatches(split, frame=FRAME, tokens=400, seed=0)
    expected = sorted(([*source, 256], [256, *target, 256]) for source, target in map(split.row, range(len(split))))
    found, tokens, targets, boundary = [], 0, 0, 256
    for step in range(int(loader.steps_per_epoch)):
        raw = loader.batch(step)
        assert raw.source.size <= 400
        assert raw.target[:, 1:].size <= 400
        for source, n, target, m in zip(*raw, strict=True):
            found.append((source[:n].tolist(), target[: m + 1].tolist()))
            assert (source[n:] == boundary).all()
            assert (target[m + 1 :] == boundary).all()
        tokens += int(raw.source_lengths.sum() + raw.target_lengths.sum())
        targets += int(raw.target_lengths.sum())
    assert sorted(found) == expected
    assert loader.units_per_step["tokens"] == pytest.approx(tokens / loader.steps_per_epoch)
    assert loader.units_per_step["targets"] == pytest.approx(targets / loader.steps_per_epoch)
    assert loader.batch_size == round(len(split) / loader.steps_per_epoch)
    assert loader.restarts(1)


def test_long_pairs_are_left_out_and_reported(split: PairSplit) -> None:
    longest = np.maximum(*split.lengths) + 1  # with the boundary
    with pytest.warns(TextWarning, match=f"{(longest > 12).sum()} of 500 pairs are left out"):
        loader = PairBatches(split, frame=FRAME, tokens=400, longest=12, seed=0)
    rows = sum(len(loader.batch(step).source) for step in range(int(loader.steps_per_epoch)))
    assert rows == (longest <= 12).sum()
    with pytest.raises(ValueError, match="all 500 pairs have more than 2 tokens"):
        PairBatches(split, frame=FRAME, tokens=400, longest=2, seed=0)


def test_little_is_padding(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shared_data("multi30k")
    corpus = prepare_pairs(
        source=folder / "train.en", target=folder / "train.de", tokenizer="words:5000", split=(1,), cache=tmp_path
    )
    loader = PairBatches(corpus.train, frame=pair_frame(corpus.tokenizer), tokens=2048, seed=0)
    batches = [loader.batch(step) for step in range(int(loader.steps_per_epoch))]
    places = sum(raw.source.size + raw.target[:, 1:].size for raw in batches)
    real = sum(int(raw.source_lengths.sum() + raw.target_lengths.sum()) for raw in batches)
    assert 1 - real / places < 0.05


def test_passages_are_documents_or_pieces_of_them(tmp_path: Path) -> None:
    text = "abcdefghij\nA. b\nxyz\n"
    (tmp_path / "t").write_text(text)
    corpus = prepare_text([tmp_path / "t"], tokenizer="bytes", documents="lines", split=(1,), cache=tmp_path)
    loader = Passages(corpus.train, around=1, tokens=10, longest=5, seed=0, pieces=describe_pieces(corpus.tokenizer))
    found, sentences = [], []
    for step in range(int(loader.steps_per_epoch)):
        raw = loader.batch(step)
        assert raw.begins is not None
        assert len(raw.lengths) * (raw.lengths.max() + 1) <= 10
        ends = np.cumsum(raw.lengths)
        found += [bytes(raw.tokens[end - n : end].tolist()).decode() for end, n in zip(ends, raw.lengths, strict=True)]
        sentences += [raw.begins[end - n : end].tolist() for end, n in zip(ends, raw.lengths, strict=True)]
    assert sorted(found) == ["A. b", "abcd", "efgh", "ij", "xyz"]
    assert sentences[found.index("A. b")] == [True, False, True, False], "the space belongs to the word after it"
    assert loader.units_per_step["tokens"] == pytest.approx((17 + 5) / loader.steps_per_epoch)
    assert Passages(corpus.train, around=1, tokens=10, longest=5, seed=0).batch(0).begins is None
    with pytest.raises(ValueError, match="have no room for text"):
        Passages(corpus.train, around=1, tokens=10, longest=1, seed=0)
