"""Counting on disk gives the n-grams, counts and probabilities of counting in memory."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.models.ngram import NGram
from lmlab.ngrams.counting import count_ngrams
from lmlab.ngrams.counting_on_disk import ROW_BYTES, cut_groups
from lmlab.ngrams.disk_arrays import Packing, sort_order
from lmlab.ngrams.levels import Level, PackedLevel
from lmlab.ngrams.smoothing import kneser_ney
from lmlab.ngrams.smoothing_on_disk import estimate
from lmlab.runs.storage import read_tensors, write_tensors

pytestmark = pytest.mark.filterwarnings("ignore:too few n-grams")


def text(seed: int, *, vocabulary: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).zipf(1.3, size) % vocabulary


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(3, 60),
    size=st.integers(2, 5000),
    order=st.integers(1, 7),
    least=st.integers(1, 3),
    modified=st.booleans(),
)
def test_estimates_are_those_of_memory(
    seed: int, vocabulary: int, size: int, order: int, least: int, modified: bool
) -> None:
    """The text is cut into up to five buckets, in the middle of the n-grams of a context."""
    tokens, boundary = text(seed, vocabulary=vocabulary, size=size), seed % vocabulary
    minimum = [0, *sorted([1, least] * order)[: order - 1]]
    counted = count_ngrams(tokens, vocabulary=vocabulary, boundary=boundary, order=order)
    kept = [level.counts >= few for level, few in zip(counted, minimum, strict=True)]
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        expected = kneser_ney(counted, kept=kept, modified=modified)
        found = estimate(
            tokens,
            vocabulary=vocabulary,
            boundary=boundary,
            order=order,
            minimum_counts=minimum,
            modified=modified,
            memory=1024 * ROW_BYTES,
            folder=Path(folder),
        )
        files = found.files
        for n, (level, reference) in enumerate(zip(counted, expected, strict=True), start=1):
            every = (0, files.size(n))
            assert files.size(n) == len(level.keys)
            np.testing.assert_array_equal(files.counts(n, *every), level.counts)
            np.testing.assert_allclose(found.probabilities[n].read(*every), reference.probabilities, rtol=1e-12)
            if n < order:
                np.testing.assert_allclose(found.backoffs[n].read(*every), reference.backoffs, rtol=1e-12)


def fit_both(folder: Path, *, least: list[int] | None = None) -> tuple[NGram, NGram, np.ndarray]:
    tokens = text(7, vocabulary=50, size=20_000)
    config = NGram.Config(vocabulary=50, order=4, boundary=3, minimum_counts=least or [])
    folder.mkdir()
    packed = NGram.fit_on_disk(tokens, config=config, memory=4000 * ROW_BYTES, folder=folder)
    return NGram.fit(tokens, config=config), packed, tokens


@pytest.mark.parametrize("least", [None, [1, 1, 2, 3]])
def test_packed_levels_hold_the_same_ngrams(tmp_path: Path, least: list[int] | None) -> None:
    exact, packed, _ = fit_both(tmp_path / "files", least=least)
    for n, (whole, small) in enumerate(zip(exact.levels, packed.levels, strict=True), start=1):
        assert isinstance(small, Level if n == 1 else PackedLevel)
        found = small.unpack()
        np.testing.assert_array_equal(found.keys, whole.unpack().keys)
        every = np.arange(whole.size)
        contexts, words = found.keys // 50 if n > 1 else np.zeros(50, np.int64), found.keys % 50
        if n > 1:
            np.testing.assert_array_equal(small.find(contexts, words), every)
            absent = whole.find(contexts, (words + 1) % 50) < 0
            assert (small.find(contexts[absent], (words[absent] + 1) % 50) == -1).all()
        errors = np.abs(found.log_probabilities - whole.unpack().log_probabilities)
        assert errors.mean() < 0.01
        assert errors.max() < 1.0


def test_packed_scores_are_close_and_step_agrees_with_score(tmp_path: Path) -> None:
    exact, packed, _ = fit_both(tmp_path / "files")
    held_out = torch.from_numpy(text(8, vocabulary=50, size=3000))[None]
    nats = [model.score(held_out[:, :-1], held_out[:, 1:], model.start(1))[0].double() for model in (exact, packed)]
    assert abs(float(nats[0].mean() - nats[1].mean())) < 0.002 * float(nats[0].mean())
    steps, _ = packed.step(held_out[:, :500], packed.start(1))
    (one,), _ = packed.score(held_out[:, :500], held_out[:, 1:501], packed.start(1))
    assert float(-steps[0, held_out[0, 500]]) == pytest.approx(float(one[-1]), rel=1e-6)


def test_a_packed_model_is_saved_and_loaded(tmp_path: Path) -> None:
    _, packed, tokens = fit_both(tmp_path / "files")
    write_tensors(tmp_path / "model.safetensors", packed.tensors())
    loaded = NGram.from_tensors(packed.config, read_tensors(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(packed.surprisal(tokens[None]), loaded.surprisal(tokens[None]))
    longer = sum(level.size for level in packed.levels[1:])
    assert (tmp_path / "model.safetensors").stat().st_size < 8 * longer + 50 * 24 + 4 * 4096 + 4096


@pytest.mark.parametrize("damage", ["3.starts", "3.words", "3.probability_codes", "3.backoff_values", "2.starts"])
def test_packed_tensors_that_do_not_fit_are_refused(tmp_path: Path, damage: str) -> None:
    _, packed, _ = fit_both(tmp_path / "files")
    tensors = packed.tensors()
    shorter = {**tensors, damage: tensors[damage][:-1]}
    with pytest.raises(ValueError, match=f"the tensors {damage[0]}"):
        NGram.from_tensors(packed.config, shorter)
    starts = tensors["3.starts"].numpy().copy()
    starts[len(starts) // 2] = 2**31
    with pytest.raises(ValueError, match="the tensors 3"):
        NGram.from_tensors(packed.config, {**tensors, "3.starts": torch.from_numpy(starts)})


def test_too_little_memory_names_how_much_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"to sort 200,001 tokens; give at least 1M"):
        NGram.fit_on_disk(np.ones(200_000, np.int64), config=NGram.Config(vocabulary=5), memory=1000, folder=tmp_path)


def test_a_token_outside_of_the_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="token 7 is outside the vocabulary of 5"):
        NGram.fit_on_disk(np.array([1, 7]), config=NGram.Config(vocabulary=5), memory=10**9, folder=tmp_path)


@given(st.lists(st.integers(0, 20), max_size=40), st.integers(1, 30))
def test_groups_are_cut_whole(sizes: list[int], limit: int) -> None:
    parts = list(cut_groups(np.array(sizes, np.int64), limit))
    assert [0, *(high for _, high in parts)] == [*(low for low, _ in parts), len(sizes)]
    assert all(sum(sizes[low:high]) <= limit or high == low + 1 for low, high in parts)


@given(st.integers(0, 10**6), st.integers(2, 80_000), st.integers(1, 12))
def test_packed_rows_sort_as_sequences(seed: int, vocabulary: int, length: int) -> None:
    rows = np.random.default_rng(seed).integers(0, min(vocabulary, 4), (50, length)) * (vocabulary // 4 or 1)
    packing = Packing.of(vocabulary, length)
    packed = packing.pack(list(rows.T))
    assert rows[sort_order(packed, packing)].tolist() == sorted(rows.tolist())
    np.testing.assert_array_equal(np.stack(packing.unpack(packed), 1), rows)
