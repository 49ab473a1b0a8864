"""Communication on paper, against a ring that is simulated."""

from __future__ import annotations

import numpy as np
import pytest

from lmlab.costs.communication import BETWEEN, WITHIN, exchanges
from lmlab.costs.design import describe


def ring_all_reduce(values: np.ndarray) -> tuple[np.ndarray, int]:
    """The sum of the rows in every row, as a ring of devices computes it, and the numbers that each sends."""
    devices = len(values)
    chunks = [np.array_split(row.copy(), devices) for row in values]
    sent = 0
    for step in range(2 * (devices - 1)):
        moving = [(rank, (rank - step) % devices) for rank in range(devices)]
        copies = [chunks[rank][number].copy() for rank, number in moving]
        sent += max(map(len, copies))
        for (rank, number), copy in zip(moving, copies, strict=True):
            to = (rank + 1) % devices
            chunks[to][number] = chunks[to][number] + copy if step < devices - 1 else copy
    return np.stack([np.concatenate(row) for row in chunks]), sent


def test_what_ddp_sends_is_that_of_a_ring() -> None:
    design = describe("gpt2", size="tiny")
    values = np.random.default_rng(0).integers(0, 9, (8, 800))
    found, sent = ring_all_reduce(values)
    assert (found == values.sum(0)).all()
    ddp, fsdp, many, _ = exchanges(design, batch=8, flops_per_second=1e12)
    assert ddp.sent == pytest.approx(4 * design.parameters.total * sent / 800)
    assert fsdp.sent == pytest.approx(1.5 * ddp.sent)
    assert many.sent == pytest.approx(ddp.sent * (1023 / 1024) / (7 / 8))
    assert ddp.seconds * WITHIN == pytest.approx(ddp.sent)
    assert many.seconds * BETWEEN == pytest.approx(many.sent)


def test_more_rows_are_more_efficient() -> None:
    design = describe("gpt2", size="124M")
    few, many = (exchanges(design, batch=rows, flops_per_second=1e14)[2] for rows in (1, 64))
    assert few.efficiency < many.efficiency < many.overlapped <= 1
    computing = 64 * design.mean_window * design.training_flops / 1e14
    assert many.efficiency == pytest.approx(computing / (computing + many.seconds))
