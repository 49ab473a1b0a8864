"""ELMo's mix of layers with its options: normalised vectors, dropout, and the penalty that holds weights together."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lmlab.layers.layer_mix import Mix, side_by_side
from lmlab.models import load_class
from lmlab.objectives.objective import weighted_mean
from lmlab.tokenizers import train
from toy_tasks import EXAMPLES, toy_task

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


def test_normalised_layers() -> None:
    layers = 5 * torch.randn(2, 3, 4, 7) + 1
    expected = sum(F.layer_norm(layers[..., number, :], (7,)) for number in range(4)) / 4
    torch.testing.assert_close(Mix(4, norm=True)(layers), expected)


def test_dropout_is_on_in_training_alone() -> None:
    mix, layers = Mix(3, dropout=0.5), torch.ones(50, 3, 20)
    assert torch.equal(mix.eval()(layers), torch.ones(50, 20))
    torch.manual_seed(0)
    assert 0.4 < (mix.train()(layers) == 0).float().mean() < 0.6


def test_the_penalty_is_a_term_of_the_loss() -> None:
    """λ Σ s², once for each step, however many examples it has."""
    tokenizer = train("spelled", ["the film was good bad sad nice a cat and dog on mat\n"])
    task = toy_task("classification", load_class("elmo"), tokenizer=tokenizer, method="mix", pool="mean", mix_decay=0.3)
    torch.manual_seed(0)
    model = load_class("elmo")(
        load_class("elmo").Config.model_validate(
            {"vocabulary": tokenizer.predicted, "width": 6, "cells": 9, "filters": [[2, 6]], "letter_width": 4}
        )
    ).eval()
    heads = task.heads(model)
    with torch.no_grad():
        heads["mix"].scores.copy_(torch.tensor([1.0, -2.0, 0.5]))  # type: ignore[union-attr]
    batch = task.batch(task.items(EXAMPLES["classification"]))
    sums = task.loss(model, heads, batch).sums
    assert dict(task.loss_weights) == {"label": 1.0, "mix": 0.3}
    assert batch.counts["mix"] == 1
    assert float(sums["mix"].detach()) == pytest.approx(1 + 4 + 0.25)
    mean = weighted_mean(sums, batch.counts, task.loss_weights)
    assert float(mean.detach()) == pytest.approx(float(sums["label"].detach()) / 6 + 0.3 * 5.25)


def test_layers_of_different_widths_are_not_mixed() -> None:
    """None is left out in silence: the numbers of the others would be wrong."""
    with pytest.raises(ValueError, match="layers of widths 8, 16, 8"):
        side_by_side([torch.zeros(1, 2, width) for width in (8, 16, 8)])
    assert side_by_side([torch.zeros(1, 2, 8)] * 3).shape == (1, 2, 3, 8)
