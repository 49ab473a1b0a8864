"""The contrastive loss against sums by hand: equal captions and equal pictures are no negatives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from captioned import END, START, ToyPictures, make_learner, make_objective
from lmlab.data.loaders.captions import CaptionBatch, CaptionLoader
from lmlab.objectives.contrastive import hash_tokens


def test_the_loss_is_the_sum_over_both_directions_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    pictures, texts = (F.normalize(torch.randn(7, 5, generator=generator), dim=-1) for _ in range(2))
    picture_numbers, caption_numbers = [0, 1, 2, 2, 3, 4, 5], [9, 8, 7, 6, 9, 5, 9]
    vectors = {
        **{"pictures": pictures, "texts": texts, "scale": torch.full((7,), 4.0)},
        **{"picture_numbers": torch.tensor(picture_numbers), "caption_numbers": torch.tensor(caption_numbers)},
    }
    found = make_objective().compare({}, vectors)
    total, chance = 0.0, []
    for i in range(7):
        apart = [
            j
            for j in range(7)
            if i == j or (picture_numbers[i] != picture_numbers[j] and caption_numbers[i] != caption_numbers[j])
        ]
        chance.append(math.log(len(apart)))
        for rows, columns in ((pictures, texts), (texts, pictures)):
            scores = {j: math.exp(4.0 * float(rows[i] @ columns[j])) for j in apart}
            total -= math.log(scores[i] / sum(scores.values())) / 2
    assert float(found.sums["pairs"]) == pytest.approx(total, rel=1e-5)
    assert found.watched["chance"].tolist() == pytest.approx(chance, rel=1e-5)
    assert float(found.watched["temperature"]) == pytest.approx(0.25)


def test_vectors_that_are_all_equal_have_the_loss_of_chance() -> None:
    same = torch.ones(6, 4) / 2
    numbers = torch.arange(6)
    vectors = {"pictures": same, "texts": same, "scale": torch.full((6,), 50.0)}
    loss = make_objective().compare({}, {**vectors, "picture_numbers": numbers, "caption_numbers": numbers})
    assert float(loss.sums["pairs"]) / 6 == pytest.approx(math.log(6), rel=1e-5)


def test_a_batch_has_framed_captions_and_equal_ones_have_equal_numbers() -> None:
    captions = [np.array([1, 2]), np.array([3]), np.array([1, 2]), np.arange(20)]
    raw = CaptionBatch(np.zeros((4, 8, 12, 3), np.uint8), captions, np.array([0, 1, 2, 1]), window=6)
    batch = make_objective().batch(raw)
    assert batch.inputs["tokens"].tolist()[0] == [START, 1, 2, END, 0, 0]
    assert batch.inputs["tokens"].tolist()[3] == [START, 0, 1, 2, 3, END], "the end is kept where a caption is cut"
    assert batch.inputs["lengths"].tolist() == [4, 3, 4, 6]
    assert batch.inputs["pixels"].shape == (4, 3, 8, 12)
    numbers = batch.labels["captions"].tolist()
    assert numbers[0] == numbers[2]
    assert len(set(numbers)) == 3
    assert numbers[1] == hash_tokens([START, 3, END])
    assert (batch.counts, batch.units) == ({"pairs": 4}, {"pairs": 4})


def test_an_evaluation_watches_recall() -> None:
    learner = make_learner().eval()
    batch = learner.objective.batch(CaptionLoader(ToyPictures(12), batch=12, window=9, seed=0).batch(0), None)
    watched = learner(batch).watched
    metrics = {name: make() for name, make in learner.objective.watched_metrics.items()}
    for name, metric in metrics.items():
        metric.add(watched[name])
    assert metrics["text_to_picture_at_1"].value() <= metrics["text_to_picture_at_5"].value() <= 1
    assert metrics["picture_to_text_at_10"].value() > 0.5
    learner.train()
    assert set(learner(batch).watched) == {"chance", "temperature"}


def test_every_epoch_has_each_pair_once_in_batches_of_nearly_equal_size() -> None:
    data = ToyPictures(23)
    loader = CaptionLoader(data, batch=5, window=9, seed=1)
    for epoch in range(2):
        batches = [loader.batch(epoch * 5 + number) for number in range(5)]
        assert sorted(int(each) for batch in batches for each in batch.pictures) == list(range(23))
        assert {len(batch.pictures) for batch in batches} == {4, 5}
    again = CaptionLoader(data, batch=5, window=9, seed=1)
    assert np.array_equal(again.batch(7).pictures, loader.batch(7).pictures)
    assert not np.array_equal(loader.batch(0).pictures, loader.batch(5).pictures)
    with pytest.raises(ValueError, match="1 pairs of a picture and a caption"):
        CaptionLoader(ToyPictures(1), batch=5, window=9, seed=1)


def test_flops_are_three_times_those_of_the_forward_pass() -> None:
    learner = make_learner()
    batch = learner.objective.batch(CaptionLoader(ToyPictures(8), batch=8, window=9, seed=0).batch(0), None)
    forward = learner.model.matching_flops(batch.inputs) + 2 * 8 * 8 * 10
    assert learner.objective.batch_flops(learner.model, batch) == 3 * forward
