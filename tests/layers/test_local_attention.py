"""Local attention against a mask over all pairs, and axial positions against a table."""

from __future__ import annotations

import pytest
import torch

from lmlab.layers.attention.local import LocalAttention
from lmlab.layers.attention.multi_head import attention_weights
from lmlab.layers.positions import AxialPositions, choose_shape
from lmlab.layers.watching import watching


@pytest.mark.parametrize("length", [1, 4, 5, 12, 19])
def test_a_token_sees_its_chunk_and_the_one_before(length: int) -> None:
    torch.manual_seed(0)
    layer = LocalAttention(8, 2, head_width=3, chunk=4).double()
    x = torch.randn(2, length, 8, dtype=torch.double)
    q, k, v = (part.transpose(1, 2) for part in layer.query_key_value(x).view(2, length, 3, 2, 3).unbind(2))
    mask = torch.tensor([[j <= i and j // 4 >= i // 4 - 1 for j in range(length)] for i in range(length)])
    weights = attention_weights(q, k, mask=mask)
    expected = layer.projection((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x), expected)
    with watching(layer, "probabilities") as seen:
        torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(seen["probabilities"][0], weights)
    assert layer.keys(length) >= mask.sum().item() / length


@pytest.mark.parametrize("window", [2, 7, 24, 64, 1000, 4096, 65536])
def test_any_window_has_its_axial_positions(window: int) -> None:
    rows, columns = choose_shape(window)
    assert window <= rows * columns < window + columns
    assert rows + columns <= 4 * window**0.5 + 2


def test_axial_positions_are_a_row_and_a_column() -> None:
    torch.manual_seed(0)
    positions = AxialPositions((3, 5), (2, 4))
    table = torch.cat((positions.rows[:, None].expand(3, 5, 2), positions.columns.expand(3, 5, 4)), -1).view(15, 6)
    assert torch.equal(positions(0, 15), table)
    assert torch.equal(positions(4, 7), table[4:11])
    assert torch.equal(positions(torch.tensor([2, 9]), 3), torch.stack((table[2:5], table[9:12])))
