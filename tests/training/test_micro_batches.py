"""The division of a step into micro-batches, which follows from the settings and not from the processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmlab.data.loaders.streams import HalfReversed, Streams, Windows
from lmlab.training.distributed.world import ALONE, World, share
from lmlab.training.micro_batches import choose_micro_batches, divide, rows_of_loader, seed_of, slice_rows
from lmlab.training.settings import TrainConfig

TOKENS = np.arange(500, dtype=np.uint16)


class Third(World):
    """The last of three processes."""

    rank, size = 2, 3


def test_parts_are_shared_as_evenly_as_possible() -> None:
    assert [list(share(5, rank, 3)) for rank in range(3)] == [[0], [1, 2], [3, 4]]
    assert [list(share(1, rank, 3)) for rank in range(3)] == [[], [], [0]]
    assert list(Third().share(4)) == [2, 3]
    assert list(ALONE.share(4)) == [0, 1, 2, 3]


def test_shuffled_batches_are_made_smaller() -> None:
    """The rows of a step are those of the whole batch, in the same order."""
    config = TrainConfig(batch=8, accumulate=2, micro_batches=4)
    whole, small = (
        Windows(TOKENS, batch=rows, window=9, seed=0) for rows in (8, rows_of_loader(config, continuous=False))
    )
    division = divide(config, small)
    assert (division.groups, division.batches) == (8, 8)
    for step in (0, 3):
        micros = division.of_groups(step, range(8))
        rows = torch.cat([small.batch(micro.number) for micro in micros])
        assert rows.equal(torch.cat([whole.batch(2 * step + turn) for turn in range(2)]))
        assert [micro.position for micro in micros] == list(range(8 * step, 8 * step + 8))


def test_contiguous_batches_are_divided_by_rows() -> None:
    config = TrainConfig(batch=6, accumulate=2, micro_batches=4)
    loader = Streams(TOKENS, batch=rows_of_loader(config, continuous=True), window=5, seed=0)
    division = divide(config, loader)
    assert (division.groups, division.per_group, division.lanes, division.batches) == (4, 2, 4, 2)
    micros = division.of_groups(3, [1])
    assert [(micro.number, micro.lane) for micro in micros] == [(6, 1), (7, 1)]
    parts = [slice_rows(loader.batch(6), lane, 4) for lane in range(4)]
    assert [len(part) for part in parts] == [1, 2, 1, 2]
    assert torch.cat(parts).equal(loader.batch(6))


def test_batches_of_two_directions_are_divided_in_both() -> None:
    loader = HalfReversed(*(Streams(tokens, batch=2, window=5, seed=0) for tokens in (TOKENS, TOKENS[::-1])))
    first, second = (slice_rows(loader.batch(0), lane, 2) for lane in range(2))
    assert [len(each) for each in (*first, *second)] == [1, 1, 1, 1]
    with pytest.raises(ValueError, match=r"it has 2 that can be divided: raise train\.batch"):
        divide(TrainConfig(batch=4, micro_batches=3), loader)


@pytest.mark.parametrize(
    ("batch", "accumulate", "processes", "continuous", "expected"),
    [(32, 1, 2, False, 2), (32, 4, 2, False, 1), (32, 1, 3, False, 4), (9, 1, 3, False, 3), (32, 4, 3, True, 3)],
)
def test_there_is_work_for_every_process(
    batch: int, accumulate: int, processes: int, continuous: bool, expected: int
) -> None:
    config = TrainConfig(batch=batch, accumulate=accumulate)
    assert choose_micro_batches(config, processes=processes, continuous=continuous).micro_batches == expected


def test_what_the_settings_say_is_kept() -> None:
    config = TrainConfig(batch=32, micro_batches=8)
    assert choose_micro_batches(config, processes=2, continuous=False) is config
    assert choose_micro_batches(TrainConfig(), processes=1, continuous=False).micro_batches is None


def test_rows_that_cannot_be_divided() -> None:
    with pytest.raises(ValueError, match=r"train\.batch=32"):
        rows_of_loader(TrainConfig(batch=30, micro_batches=4), continuous=False)
    with pytest.raises(ValueError, match="cannot be divided among 2 processes"):
        choose_micro_batches(TrainConfig(batch=1), processes=2, continuous=False)


def test_each_micro_batch_has_a_seed_of_its_own() -> None:
    seeds = {seed_of(seed, position) for seed in range(3) for position in range(50)}
    assert len(seeds) == 150
    assert all(0 <= seed < 2**63 for seed in seeds)
