"""Relative attention by skewing equals the sum that it stands for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lmlab.layers.attention.relative import SkewedAttention, gathered_scores, skewed_scores


def naive_scores(q: Tensor, distances: Tensor, span: int) -> Tensor:
    """q_i · E_{min(i−j, L−1)} for each pair of a query and an earlier key, one by one; 0 for later keys."""
    batch, heads, length, _ = q.shape
    scores = torch.zeros(batch, heads, length, span, dtype=q.dtype)
    for i in range(length):
        for j in range(span - length + i + 1):
            apart = min(span - length + i - j, distances.shape[1] - 1)
            scores[:, :, i, j] = (q[:, :, i] * distances[:, apart]).sum(-1)
    return scores


@pytest.mark.parametrize(("length", "span", "known"), [(7, 7, 7), (7, 7, 20), (7, 7, 3), (2, 9, 4), (1, 5, 1)])
def test_skewing_is_the_naive_sum(length: int, span: int, known: int) -> None:
    """Also where the queries are the last of more keys, and where far distances are clipped."""
    torch.manual_seed(0)
    q, distances = torch.randn(2, 3, length, 4).double(), torch.randn(3, known, 4).double()
    past = torch.ones(length, span, dtype=torch.bool).tril(span - length)
    wanted = naive_scores(q, distances, span)
    torch.testing.assert_close(skewed_scores(q, distances, span) * past, wanted)
    positions = torch.arange(span - length, span).expand(2, -1)
    torch.testing.assert_close(gathered_scores(q, distances, span, positions) * past, wanted)


def test_only_distances_count() -> None:
    """The same tokens later in a text attend to each other in the same way."""
    torch.manual_seed(0)
    attention = SkewedAttention(8, 2, distances=16).double().eval()
    x = torch.randn(1, 5, 8).double()
    own = (attention.query_key_value(x).view(1, 5, 3, 2, 4).unbind(2))[0].transpose(1, 2)
    assert torch.equal(
        skewed_scores(own, attention.distances, 5)[..., 4, 4],
        skewed_scores(own[:, :, 4:], attention.distances, 1)[..., 0, 0],
    )
