"""Blocks are called, and nothing reaches into them from outside, so that each can be sharded or wrapped alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lineage_models import NETWORKS, make, tokens
from torch import nn

from lmlab.models.abilities import FillsInOrder, PredictsNext, ability
from lmlab.models.model import EncoderDecoder

REVERSIBLE = ("reformer",)  # its backward pass takes the blocks apart, on purpose


def guard(block: nn.Module) -> None:
    """Fail where a part of the block computes while the block itself is not being called."""
    inside: list[bool] = []

    def check(*_: Any) -> None:
        assert inside, "a part of a block is called from outside of it"

    for part in block.modules():
        if part is not block:
            part.register_forward_pre_hook(check)
    block.register_forward_pre_hook(lambda *_: inside.append(True))
    block.register_forward_hook(lambda *_: inside.pop() and None)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in REVERSIBLE])
def test_training_calls_blocks_only_as_a_whole(name: str) -> None:
    model = make(name).train()
    stacks = [each for path, each in model.named_modules() if path.split(".")[-1] == "blocks"]
    for stack in stacks:
        for block in stack:
            guard(block)
    inputs = {"source": tokens(2, 9)} if isinstance(model, EncoderDecoder) else {}
    hidden, state = model(tokens(2, 7), **inputs)
    hidden.sum().backward()
    if model.stateful and state is not None:
        model(tokens(2, 7), state=state)
    if (filler := ability(model, FillsInOrder)) is not None:
        at = torch.tensor([[1, 3], [0, 2]])
        filler.read_in_order(tokens=tokens(2, 7), order=torch.zeros(2, 7, dtype=torch.long).scatter(1, at, 1), at=at)
    if not isinstance(model, EncoderDecoder) and (reader := ability(model, PredictsNext)) is not None:
        reader.score(tokens(2, 6), tokens(2, 6, seed=2), None)
