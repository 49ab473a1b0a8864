"""Replaced token detection, against transformers' two ELECTRAs and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_masked import TEXTS, attention_mask, split_of, tokenizer_of
from torch import Tensor, nn

from framed import encoder_frame
from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders.rows import Rows
from lmlab.models.abilities import Detects, require
from lmlab.models.electra import Electra, ElectraConfig
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.objectives.replaced_tokens import Replaced, ReplacedConfig, sample_tokens
from lmlab.tokenizers import Tokenizer
from losses import loss_of, mean_of


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizer_of("wordpiece:120")


@pytest.fixture(scope="module")
def data(tokenizer: Tokenizer) -> TextSplit:
    return split_of(tokenizer, TEXTS)


def first_batch(
    tokenizer: Tokenizer, data: TextSplit, *, step: int = 0, **settings: Any
) -> tuple[Replaced, Rows, Batch]:
    objective = Replaced(ReplacedConfig(**settings), tokenizer, encoder_frame(tokenizer))
    raw = objective.loader(data, batch=16, window=64, seed=1, streams=False).batch(step)
    return objective, raw, objective.batch(raw, np.random.default_rng(step))


def test_chosen_tokens_are_masked_or_left(tokenizer: Tokenizer, data: TextSplit) -> None:
    for unit, fraction in (("token", 1.0), ("word", 1.0), ("span", 1.0), ("token", 0.85)):
        _, raw, batch = first_batch(tokenizer, data, unit=unit, mask_fraction=fraction)
        tokens, places = batch.inputs["tokens"], batch.labels["positions"]
        assert places is not None
        assert places.shape == batch.labels["targets"].shape == batch.labels["sample"].shape == (16, 10)
        seen = tokens.gather(1, places)
        masked = seen == tokenizer.special("mask")
        assert (masked | (seen == batch.labels["targets"])).all()
        assert masked.sum() == (tokens == tokenizer.special("mask")).sum()
        assert masked.all() if fraction == 1 else abs(masked.sum() - 136) < 20  # 160 places, 4.5 deviations
        assert torch.equal(tokens.scatter(1, places, batch.labels["targets"]), torch.from_numpy(raw.tokens))
        assert set(batch.inputs) == {"tokens"}


def test_tokens_are_drawn_from_the_softmax() -> None:
    torch.manual_seed(0)
    scores = torch.randn(7) * 2
    numbers = torch.rand(40_000)
    drawn = sample_tokens(scores.expand(40_000, 7), numbers)
    fraction = torch.bincount(drawn, minlength=7) / 40_000
    wanted = scores.softmax(0)
    assert (abs(fraction - wanted) < 4.5 * (wanted * (1 - wanted) / 40_000).sqrt()).all()
    edges = wanted.cumsum(0)
    by_hand = [(edges <= number).sum().item() for number in numbers[:200]]
    assert drawn[:200].tolist() == by_hand


def test_tokens_without_probability_are_never_drawn() -> None:
    scores = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(5, 5)
    assert sample_tokens(scores, torch.tensor([0.0, 0.49, 0.51, 0.999, 0.5])).tolist() == [1, 1, 3, 3, 3]


class Theirs(nn.Module):
    """ElectraForMaskedLM and ElectraForPreTraining with the methods that an objective asks for."""

    class Generator(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            from transformers import ElectraForMaskedLM

            self.electra = ElectraForMaskedLM(config)

        vocabulary, window, device = 0, None, torch.device("cpu")

        def read(self, *, tokens: Tensor, at: Tensor, lengths: Tensor | None = None) -> Tensor:
            hidden = self.electra.electra(tokens, attention_mask=attention_mask(tokens, lengths))[0]
            return hidden[torch.arange(len(at))[:, None], at]

        fill = nll = total_nll = head_flops = reading_flops = read

        def logits(self, hidden: Tensor) -> Tensor:
            return self.electra.generator_lm_head(self.electra.generator_predictions(hidden))

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        from transformers import ElectraConfig as TheirConfig
        from transformers import ElectraForPreTraining

        torch.manual_seed(0)
        sizes: dict[str, Any] = {
            "vocab_size": vocabulary, "embedding_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 32, "max_position_embeddings": 64, "initializer_range": 0.3,
        }  # fmt: skip
        self.generator = self.Generator(TheirConfig(hidden_size=16, **sizes))
        self.discriminator = ElectraForPreTraining(TheirConfig(hidden_size=32, **sizes))
        self.eval()

    def offers(self) -> tuple[object, ...]:
        return (self.generator, self)

    def detect(self, *, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        hidden = self.discriminator.electra(tokens, attention_mask=attention_mask(tokens, lengths))[0]
        return self.discriminator.discriminator_predictions(hidden)

    detection_flops = detect


@pytest.mark.parametrize("padded", [False, True])
def test_the_loss_is_that_of_the_two_electras(tokenizer: Tokenizer, data: TextSplit, padded: bool) -> None:
    pytest.importorskip("transformers")
    model = Theirs(tokenizer.vocabulary)
    objective, raw, batch = first_batch(tokenizer, data)
    if padded:
        lengths = np.array([64, 40, 30, 64] * 4)
        tokens = np.where(np.arange(64) < lengths[:, None], raw.tokens, tokenizer.special("pad"))
        raw = raw._replace(tokens=tokens, lengths=lengths)
        batch = objective.batch(raw, np.random.default_rng(0))
    with torch.no_grad():
        loss = loss_of(objective, model, batch)

        tokens, places = batch.inputs["tokens"], batch.labels["positions"]
        mask = attention_mask(tokens, batch.inputs.get("lengths"))
        assert places is not None
        labels = torch.full_like(tokens, IGNORE)
        for row in range(16):
            kept = batch.labels["targets"][row] != IGNORE
            labels[row, places[row, kept]] = batch.labels["targets"][row, kept]
        generator = model.generator.electra(tokens, attention_mask=mask, labels=labels)
        filled = torch.from_numpy(raw.tokens).clone()
        for row in range(16):
            for k in range(places.shape[1]):
                if batch.labels["targets"][row, k] != IGNORE:
                    edges = generator.logits[row, places[row, k]].softmax(0).cumsum(0)
                    filled[row, places[row, k]] = (edges <= batch.labels["sample"][row, k] * edges[-1]).sum()
        replaced = filled != torch.from_numpy(raw.tokens)
        discriminator = model.discriminator(filled, attention_mask=mask, labels=replaced.long())

    real = torch.ones_like(replaced) if mask is None else mask.bool()
    assert loss.sums["masked"] / batch.counts["masked"] == pytest.approx(generator.loss.item(), rel=1e-4)
    assert batch.counts["detection"] == real.sum()
    detection = loss.sums["detection"] / batch.counts["detection"]
    assert detection.item() == pytest.approx(discriminator.loss.item(), rel=1e-4)
    assert mean_of(objective, batch, loss).item() == pytest.approx(
        generator.loss.item() + 50 * discriminator.loss.item(), rel=1e-4
    )
    reported = discriminator.logits > 0
    watched = {name: (values.sum(), values.numel()) for name, values in loss.watched.items()}
    assert watched["accuracy"] == ((generator.logits.argmax(-1) == labels).sum(), (labels != IGNORE).sum())
    assert watched["detection_accuracy"] == (((reported == replaced) & real).sum(), real.sum())
    assert watched["detection_recall"] == ((reported & replaced).sum(), replaced.sum())
    assert watched["original_share"] == ((~replaced & real).sum(), real.sum())
    assert 0 < replaced.sum() < batch.labels["targets"].numel() + 1


@pytest.fixture
def electra(tokenizer: Tokenizer) -> Electra:
    torch.manual_seed(0)
    return Electra(
        ElectraConfig(
            vocabulary=tokenizer.vocabulary, width=32, heads=2, layers=2, window=64, generator=0.5, dropout=0.0
        )
    )


def test_no_gradient_of_detection_reaches_the_generator(
    tokenizer: Tokenizer, data: TextSplit, electra: Electra
) -> None:
    assert electra.generator is not None
    objective, _, batch = first_batch(tokenizer, data)
    loss = loss_of(objective, electra.train(), batch)
    loss.sums["detection"].backward(retain_graph=True)
    own = {name for name, _ in electra.generator.blocks.named_parameters()}
    assert own
    assert all(p.grad is None for p in electra.generator.blocks.parameters())
    assert all(p.grad is None for p in electra.generator.output.transform.parameters())
    loss.sums["masked"].backward()
    assert all(p.grad is not None for p in electra.generator.blocks.parameters())
    assert not loss.watched, "nothing is measured in training"


def test_the_loss_of_our_electra_by_hand(tokenizer: Tokenizer, data: TextSplit, electra: Electra) -> None:
    assert electra.generator is not None
    objective, raw, batch = first_batch(tokenizer, data, weight=7.0)
    with torch.no_grad():
        loss, again = (mean_of(objective, batch, loss_of(objective, electra.eval(), batch)) for _ in range(2))
        scores = electra.generator.output.logits(electra.generator(batch.inputs["tokens"]).hidden)
        labels = torch.full_like(batch.inputs["tokens"], IGNORE).scatter(
            1, batch.labels["positions"], batch.labels["targets"]
        )
        masked = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)
        at_places = scores.gather(1, batch.labels["positions"][:, :, None].expand(-1, -1, scores.shape[-1]))
        drawn = sample_tokens(at_places.flatten(0, 1), batch.labels["sample"].flatten()).view(16, 10)
        original = torch.from_numpy(raw.tokens)
        filled = original.scatter(1, batch.labels["positions"], drawn)
        detection = F.binary_cross_entropy_with_logits(
            require(electra, Detects).detect(tokens=filled), (filled != original).float()
        )
    assert again == loss, "a batch brings its own random numbers"
    assert loss.item() == pytest.approx((masked + 7 * detection).item(), rel=1e-5)


def test_flops_count_both_parts_and_the_head_at_masks(tokenizer: Tokenizer, data: TextSplit, electra: Electra) -> None:
    assert electra.generator is not None
    objective = Replaced(ReplacedConfig(), tokenizer, encoder_frame(tokenizer))
    loader = objective.loader(data, batch=4, window=64, seed=0, streams=False)
    generator, discriminator = electra.generator, require(electra, Detects)
    filling = generator.body_flops(64, fraction=10 / 64) * 256 + generator.output.flops() * 40
    detecting = discriminator.detection_flops({"tokens": torch.zeros(4, 64)})
    assert objective.step_flops(electra, {}, loader) == pytest.approx(3 * (filling + detecting))


def test_half_an_electra_cannot_be_trained(tokenizer: Tokenizer, data: TextSplit) -> None:
    objective, _, batch = first_batch(tokenizer, data)
    for parts in ("generator", "discriminator"):
        model = Electra(
            ElectraConfig(
                vocabulary=tokenizer.vocabulary, width=32, heads=2, layers=1, window=64, generator=0.5, parts=parts
            )
        )
        with pytest.raises(ValueError, match=r"electra is .*; it cannot .* train .*electra"):
            loss_of(objective, model, batch)
