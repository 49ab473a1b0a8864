"""Streams in segments of varied length: every token once in an epoch, and batch k a pure function of k."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from lmlab.data.loaders.mixed import MixedLoader
from lmlab.data.loaders.streams import Streams, VariedStreams, Windows, vary


def make(length: int = 20_003, *, batch: int = 4, window: int = 70, seed: int = 0) -> VariedStreams:
    return VariedStreams(np.arange(length), batch=batch, window=window, seed=seed)


def test_segments_go_on_from_one_another_and_cover_each_row_once_an_epoch() -> None:
    loader = make()
    first_of_second = next(step for step in range(1, 1000) if loader.restarts(step))
    batches = [loader.batch(step) for step in range(first_of_second)]
    for before, after in itertools.pairwise(batches):
        assert torch.equal(before[:, -1], after[:, 0])
    targets = torch.cat([batch[:, 1:] for batch in batches], dim=1)
    assert targets.shape == (4, 20_002 // 4)
    assert torch.equal(targets, targets[:, :1] + torch.arange(targets.shape[1]))
    assert loader.steps_per_epoch == pytest.approx(first_of_second, rel=0.1)


def test_lengths_are_those_of_the_paper() -> None:
    loader = make(2_000_000, batch=1)
    lengths = np.array([loader.batch(step).shape[1] - 1 for step in range(2000)])
    halved = lengths < 52
    assert halved.mean() == pytest.approx(0.05, abs=0.015)
    assert lengths[~halved].mean() == pytest.approx(69.5, abs=0.7)  # the fraction is cut off
    assert lengths[~halved].std() == pytest.approx(5, abs=0.5)
    assert lengths[halved].mean() == pytest.approx(34.5, abs=2)
    assert [loader.rate_factor(step) for step in range(50)] == pytest.approx(list(lengths[:50] / 70))


def test_a_batch_of_one_of_several_languages_has_the_rate_of_its_length() -> None:
    mixed = MixedLoader(
        {"a": make(), "b": Streams(np.arange(500), batch=4, window=7, seed=0)}, {"a": 0.5, "b": 0.5}, seed=0
    )
    for step in range(50):
        length, window = mixed.batch(step).shape[1] - 1, 70 if mixed.part(step) == "a" else 7
        assert mixed.rate_factor(step) == pytest.approx(length / window)


def test_a_batch_depends_on_its_number_alone() -> None:
    one, other = make(), make()
    last = 400
    expected = one.batch(last)
    for step in (last + 1, 3, last):
        found = other.batch(step)
    assert torch.equal(found, expected)
    assert other.restarts(last) == one.restarts(last)
    assert not np.array_equal(one._ends(0), one._ends(1))


@pytest.mark.parametrize(("length", "batch", "window"), [(2, 1, 70), (9, 8, 70), (40, 3, 1), (200, 2, 3)])
def test_little_text_is_enough(length: int, batch: int, window: int) -> None:
    loader = make(length, batch=batch, window=window)
    for step in range(20):
        rows = loader.batch(step)
        assert rows.shape[0] == loader.batch_size
        assert rows.shape[1] >= 2


def test_only_streams_can_be_varied() -> None:
    tokens = np.arange(500)
    assert isinstance(vary(Streams(tokens, batch=2, window=9, seed=4)), VariedStreams)
    with pytest.raises(ValueError, match=r"train\.order = 'varied'"):
        vary(Windows(tokens, batch=2, window=9, seed=4))
