"""Masked words and regions of texts with pictures: what is masked, and that the loss is what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lmlab.data.loaders.regions import DescribedBatch
from lmlab.data.readers.media import Picture, Regions
from lmlab.objectives.masked_captions import MaskedCaptions, MaskedCaptionsConfig
from lmlab.objectives.objective import IGNORE
from lmlab.tokenizers import train
from lmlab.tokenizers.frames import make_frame
from lmlab.tokenizers.processors.pictures import PictureProcessor
from regions import make_model

TEXTS = ["a red circle left of a blue square", "a star", "a small green cross above a large star and a circle"]


def make_objective(**settings: Any) -> tuple[MaskedCaptions, Any]:
    tokenizer = train("words", TEXTS).with_specials(("pad", "cls", "sep", "mask"))
    frame = make_frame({"tokens": "cls:0 a:0 sep:0 b:1 sep:1"}, tokenizer)
    objective = MaskedCaptions(MaskedCaptionsConfig(**settings), tokenizer, frame)
    objective.process_by(PictureProcessor(height=4, width=4, channels=1))
    return objective, tokenizer


def make_raw(tokenizer: Any, rows: int = 12) -> DescribedBatch:
    generator = np.random.default_rng(0)
    pictures = []
    for row in range(rows):
        count = 1 + row % 5
        boxes = np.sort(generator.random((count, 4)), axis=1).astype(np.float32)
        vectors = generator.normal(size=(count, 7)).astype(np.float32)
        pictures.append(Picture(np.zeros((4, 4, 1), np.uint8), Regions(boxes, (), vectors)))
    texts = [tokenizer.encode_batch([TEXTS[row % 3]])[0] for row in range(rows)]
    return DescribedBatch(texts, pictures, np.arange(rows) % 2 == 0, 24)


def test_only_rows_that_match_are_predicted() -> None:
    objective, tokenizer = make_objective(region_masking_rate=0.3)
    raw = make_raw(tokenizer)
    batch = objective.batch(raw, np.random.default_rng(1))
    targets = batch.labels["targets"]
    assert (targets[1::2] == IGNORE).all()
    assert (targets[::2] != IGNORE).any(1).all()
    assert batch.labels["match"].tolist() == [0, 1] * 6
    rows = batch.labels["region_positions"] // batch.inputs["regions"].shape[1]
    assert set(rows.tolist()) == set(range(0, 12, 2)), "at least one region of each row"
    assert batch.counts == {"masked": int((targets != IGNORE).sum()), "match": 12, "regions": len(rows)}
    assert objective.loss_weights == {"masked": 1.0, "match": 1.0, "regions": 1.0}


def test_masked_regions_are_zero_and_their_targets_are_the_vectors() -> None:
    objective, tokenizer = make_objective(region_masking_rate=0.5)
    raw = make_raw(tokenizer, 200)
    batch = objective.batch(raw, np.random.default_rng(1))
    longest = batch.inputs["regions"].shape[1]
    hidden = 0
    for place, target in zip(batch.labels["region_positions"].tolist(), batch.labels["region_targets"], strict=True):
        row, region = divmod(place, longest)
        features = raw.pictures[row].regions.features  # type: ignore[union-attr]
        torch.testing.assert_close(target, torch.from_numpy(features[region]))  # type: ignore[index]
        hidden += not batch.inputs["regions"][row, region].any()
    assert 0.8 < hidden / len(batch.labels["region_positions"]) < 0.97, "nine of ten"
    chosen = np.bincount(batch.labels["region_positions"].numpy() // longest, minlength=200)[::2]
    assert chosen.tolist() == [max(1, round(0.5 * (1 + row % 5))) for row in range(0, 200, 2)]


@pytest.mark.parametrize("name", ["visualbert", "vilbert"])
@torch.no_grad()
def test_the_loss_is_the_sum_of_its_terms(name: str) -> None:
    objective, tokenizer = make_objective(region_masking_rate=0.3 if name == "vilbert" else 0.0, masking_rate=0.3)
    batch = objective.batch(make_raw(tokenizer), np.random.default_rng(2))
    model = make_model(name, vocabulary=tokenizer.vocabulary, window=24)
    found = objective.loss(model, {}, batch)
    both = model.read_both(**batch.inputs)
    masked = match = 0.0
    for row in range(12):
        match += F.cross_entropy(model.match(both.joint[row : row + 1]), batch.labels["match"][row : row + 1])
        for place, target in zip(batch.labels["positions"][row], batch.labels["targets"][row], strict=True):
            if target != IGNORE:
                logits = model.output.logits(both.words[row, place])
                masked -= logits.log_softmax(-1)[target]
    torch.testing.assert_close(found.sums["masked"], torch.as_tensor(masked), atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(found.sums["match"], torch.as_tensor(match), atol=1e-3, rtol=1e-4)
    assert found.watched["accuracy"].shape == (batch.counts["masked"],)
    if name == "vilbert":
        predicted = model.predict_regions(both.regions.flatten(0, 1)[batch.labels["region_positions"]])
        errors = (predicted - batch.labels["region_targets"]).square().mean(-1).sum()
        torch.testing.assert_close(found.sums["regions"], errors, atol=1e-3, rtol=1e-4)


def test_without_matching_nothing_else_is_asked() -> None:
    objective, tokenizer = make_objective(matching=False)
    raw = make_raw(tokenizer)._replace(matches=np.ones(12, bool))
    batch = objective.batch(raw, np.random.default_rng(1))
    loss = objective.loss(make_model("visualbert", vocabulary=tokenizer.vocabulary, window=24), {}, batch)
    assert set(loss.sums) == set(objective.loss_weights) == {"masked"}


def test_empty_texts_have_a_loss_of_zero() -> None:
    objective, tokenizer = make_objective()
    raw = make_raw(tokenizer)._replace(texts=[np.zeros(0, np.uint32)] * 12)
    batch = objective.batch(raw, np.random.default_rng(1))
    model = make_model("visualbert", vocabulary=tokenizer.vocabulary, window=24).train()
    loss = objective.loss(model, {}, batch)
    assert float(loss.sums["masked"]) == 0
    loss.sums["masked"].backward()
