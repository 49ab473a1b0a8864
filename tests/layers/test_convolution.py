"""Convolutions over pictures: shapes, FLOPs, and vectors of a picture that depend on it alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from lmlab.layers.convolution import RegionEncoder, ResidualBlock


@pytest.mark.parametrize(("height", "width"), [(48, 48), (28, 33), (9, 16)])
def test_grid_and_flops_are_those_of_the_forward_pass(height: int, width: int) -> None:
    torch.manual_seed(0)
    encoder = RegionEncoder(3, (8, 16, 24))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        regions = encoder(torch.randn(2, 3, height, width))
    assert regions.shape == (2, 24, *encoder.grid(height, width))
    assert counter.get_total_flops() == 2 * encoder.flops(height, width)


def test_a_picture_is_read_alone_in_training_too() -> None:
    torch.manual_seed(0)
    encoder = RegionEncoder(3, (8, 16)).double().train()
    pictures = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(encoder(pictures)[2:3], encoder(pictures[2:3]))


def test_a_block_computes_its_equation() -> None:
    torch.manual_seed(0)
    block = ResidualBlock(8, 16, stride=2).double()
    x = torch.randn(2, 8, 6, 6, dtype=torch.float64)
    assert isinstance(block.around, torch.nn.Conv2d)
    inner = F.conv2d(x, block.one.weight, stride=2, padding=1)
    inner = F.relu(F.group_norm(inner, 2, block.one_norm.weight, block.one_norm.bias))
    inner = F.conv2d(inner, block.two.weight, padding=1)
    inner = F.group_norm(inner, 2, block.two_norm.weight, block.two_norm.bias)
    around = F.conv2d(x, block.around.weight, block.around.bias, stride=2)
    torch.testing.assert_close(block(x), F.relu(around + inner))
