"""The loss of captions: surprisal of real tokens, and the doubly stochastic attention summed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmlab.data.corpora.pictures.captions import encode_fields
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.models.captioner import Captioner, CaptionerConfig
from lmlab.objectives.captioning import Captioning, CaptioningConfig, coverage_of, tokens_of
from lmlab.objectives.objective import IGNORE
from lmlab.tokenizers import resolve
from lmlab.tokenizers.frames import make_frame
from lmlab.tokenizers.processors.pictures import PictureProcessor

TEXTS = ["a red star", "a blue star left of a red star", "a star", "red", "a blue star", "a red star"]
TOKENIZER = resolve("words", lambda: iter(TEXTS))
FRAME = make_frame({"tokens": "start b boundary"}, TOKENIZER)


def make_split() -> PictureSplit:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)
    split = PictureSplit(pixels, np.arange(6), [None] * 6, TEXTS, {"caption": TEXTS})
    return PictureSplit(
        pixels, np.arange(6), [None] * 6, TEXTS, {"caption": TEXTS}, None, encode_fields(split, TOKENIZER)
    )


def make(coverage: float = 0.5) -> tuple[Captioning, Captioner]:
    objective = Captioning(CaptioningConfig(coverage=coverage), TOKENIZER, FRAME)
    objective.process_by(PictureProcessor(height=8, width=8))
    torch.manual_seed(0)
    config = CaptionerConfig(
        vocabulary=TOKENIZER.predicted, image=[8, 8], channels=3, convolutions=[8, 8], width=6, hidden=8, window=12
    )
    return objective, Captioner(config)


def test_targets_follow_the_tokens_and_padding_is_ignored() -> None:
    objective, _ = make()
    loader = objective.loader(make_split(), batch=6, window=12, seed=0, streams=False)
    raw = loader.batch(0)
    batch = objective.batch(raw)
    for row, number in enumerate(raw.rows.tolist()):
        ids = TOKENIZER.encode(TEXTS[number])
        length = int(batch.inputs["target_lengths"][row])
        assert batch.inputs["tokens"][row, :length].tolist() == [TOKENIZER.start, *ids]
        assert batch.labels["targets"][row, :length].tolist() == [*ids, TOKENIZER.boundary]
        assert (batch.labels["targets"][row, length:] == IGNORE).all()
    assert batch.counts["target"] == sum(len(TOKENIZER.encode(text)) + 1 for text in TEXTS)
    assert batch.units == {"images": 6}


def test_captions_are_cut_to_the_window() -> None:
    objective, _ = make()
    loader = objective.loader(make_split(), batch=6, window=3, seed=0, streams=False)
    longer = objective.loader(make_split(), batch=6, window=12, seed=0, streams=False)
    batch = objective.batch(loader.batch(0))
    assert batch.inputs["tokens"].shape[1] == 3
    assert objective.batch(longer.batch(0)).inputs["tokens"].shape[1] > 3, "each loader has its own window"


def test_the_loss_is_the_sum_over_captions() -> None:
    objective, model = make()
    loader = objective.loader(make_split(), batch=6, window=12, seed=0, streams=False)
    whole = objective.batch(loader.batch(0))
    with torch.no_grad():
        found = objective.loss(model, {}, whole)
    target = coverage = 0.0
    raw = loader.batch(0)
    for row in range(6):
        one = objective.batch(raw._replace(rows=raw.rows[row : row + 1], pixels=raw.pixels[row : row + 1]))
        with torch.no_grad():
            hidden, weights = model.attend(one.inputs["tokens"], pixels=one.inputs["pixels"])
            scores = model.logits(hidden[0]).log_softmax(-1)
        target -= float(scores.gather(1, one.labels["targets"][0][:, None]).sum())
        for region in range(weights.shape[2]):
            coverage += (1 - float(weights[0, :, region].sum())) ** 2
    assert float(found.sums["target"]) == pytest.approx(target, rel=1e-4)
    assert float(found.sums["coverage"]) == pytest.approx(coverage, rel=1e-4)
    assert objective.loss_weights == {"target": 1.0, "coverage": 0.5}
    assert "coverage" not in make(0.0)[0].loss(model, {}, whole).sums


def test_coverage_is_zero_where_every_region_gets_one_unit() -> None:
    weights = torch.eye(4)[None].repeat(2, 1, 1)
    assert float(coverage_of(weights, torch.ones(2, 4, dtype=torch.bool))) == 0
    half = torch.tensor([[True, True, False, False]] * 2)
    assert float(coverage_of(weights, half)) == 4


def test_pictures_without_captions_are_an_error() -> None:
    split = make_split()
    with pytest.raises(ValueError, match=r"no captions \(question were found\): name the column, --columns caption"):
        tokens_of(
            PictureSplit(split.pixels, split.pictures, split.labels, TEXTS, {"question": TEXTS}, None, {}), ("caption",)
        )
