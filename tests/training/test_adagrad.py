"""Adagrad against torch's, of dense and of sparse gradients, and what other rules do with sparse ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.training.optimizers import Adagrad, create_optimizer, settle_gradients
from lmlab.training.settings import TrainConfig
from lmlab.training.step import clip_gradients


def make_table() -> nn.Parameter:
    torch.manual_seed(0)
    return nn.Parameter(torch.randn(7, 3, dtype=torch.float64))


def loss_of(table: Tensor, tokens: Tensor, *, sparse: bool) -> Tensor:
    target = torch.linspace(-1, 1, 3, dtype=torch.float64)
    return ((F.embedding(tokens, table, sparse=sparse) - target) ** 3).sum()


BATCHES = [torch.tensor(each) for each in ([1, 2, 2, 5], [5, 5, 0], [2, 6, 1])]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_is_torchs_adagrad(sparse: bool, decay: float) -> None:
    own, reference = make_table(), make_table()
    config = TrainConfig(optimizer="adagrad", rate=0.3, decay=decay)
    optimizer = create_optimizer([{"params": [own], "weight_decay": decay}], config)
    assert isinstance(optimizer, Adagrad)
    theirs = torch.optim.Adagrad([reference], lr=0.3, weight_decay=decay)
    for tokens in BATCHES:
        loss_of(own, tokens, sparse=sparse).backward()
        settle_gradients([own], config)
        assert own.grad is not None
        assert own.grad.is_sparse == (sparse and not decay)
        loss_of(reference, tokens, sparse=False).backward()
        for each in (optimizer, theirs):
            each.step()
            each.zero_grad()
    torch.testing.assert_close(own, reference)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_other_rules_take_the_same_gradient_dense(optimizer: Any) -> None:
    config = TrainConfig(optimizer=optimizer, rate=0.1)
    tables = [make_table(), make_table()]
    for table, sparse in zip(tables, (True, False), strict=True):
        rule = create_optimizer([{"params": [table], "weight_decay": 0.0}], config)
        for tokens in BATCHES:
            loss_of(table, tokens, sparse=sparse).backward()
            settle_gradients([table], config)
            rule.step()
            rule.zero_grad()
    torch.testing.assert_close(*tables)


@pytest.mark.parametrize("limit", [0.5, 1e9, float("inf")])
def test_sparse_gradients_are_measured_and_clipped_as_dense_ones(limit: float) -> None:
    own, reference, other = make_table(), make_table(), nn.Parameter(torch.ones(4, dtype=torch.float64))
    others = copy.deepcopy(other)
    (loss_of(own, BATCHES[0], sparse=True) + (other**2).sum()).backward()
    (loss_of(reference, BATCHES[0], sparse=False) + (others**2).sum()).backward()
    norm = clip_gradients(settle_gradients([own, other], TrainConfig(optimizer="adagrad")), limit)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_([reference, others], limit))
    assert own.grad is not None
    torch.testing.assert_close(own.grad.to_dense(), reference.grad)
    torch.testing.assert_close(other.grad, others.grad)


def test_rows_without_a_gradient_stay() -> None:
    table, before = make_table(), make_table()
    config = TrainConfig(optimizer="adagrad", rate=0.3)
    loss_of(table, BATCHES[0], sparse=True).backward()
    settle_gradients([table], config)
    create_optimizer([{"params": [table], "weight_decay": 0.0}], config).step()
    moved = (table != before).any(1)
    assert moved.nonzero().flatten().tolist() == [1, 2, 5]


@pytest.mark.parametrize("rows", [[1, 4, 7], [7, 1, 7]])
def test_a_sparse_gradient_has_each_row_once(rows: list[int]) -> None:
    table = nn.Parameter(torch.zeros(9, 2))
    table.grad = torch.sparse_coo_tensor(torch.tensor([rows]), torch.ones(3, 2), (9, 2))
    dense = table.grad.to_dense()
    values = settle_gradients([table], TrainConfig(optimizer="adagrad"))
    assert table.grad.is_coalesced()
    assert len(values[0]) == len(set(rows))
    torch.testing.assert_close(table.grad.to_dense(), dense)
