"""Both parts of ELECTRA against Hugging Face's implementation, what they share, and the published sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoders import (
    attention_weights_of,
    batch_of,
    block_weights,
    embedding_weights,
    filler,
    head_weights,
    random_shapes,
    renamed,
    their_sizes,
)
from lmlab.config import build
from lmlab.layers.watching import watching
from lmlab.models import create
from lmlab.models.abilities import Detects, ability, require
from lmlab.models.electra import Electra, ElectraConfig
from lmlab.runs.model_files import model_tensors, with_new_names
from lmlab.runs.storage import read_tensors, write_tensors

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def make(**values: Any) -> Electra:
    fields = {"vocabulary": 97, "width": 24, "heads": 4, "layers": 2, "window": 20, "generator": 0.5, **values}
    return Electra(ElectraConfig.model_validate(fields))


def reference_of(cls: Any, shape: dict[str, int], embedding_width: int) -> nn.Module:
    config = transformers.ElectraConfig(
        **their_sizes(shape),
        embedding_size=embedding_width,
    )
    reference: nn.Module = cls(config).eval()
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    return reference


def encoder_weights(theirs: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    weights = embedding_weights(theirs, "electra.embeddings")
    if "electra.embeddings_project.weight" in theirs:
        weights |= renamed(theirs, {"projection": "electra.embeddings_project"})
    for i in range(layers):
        weights |= block_weights(theirs, f"blocks.{i}", f"electra.encoder.layer.{i}")
    return weights


@pytest.mark.parametrize("number", range(22))
@torch.no_grad()
def test_parts_agree_with_transformers(number: int) -> None:
    """The generator's scores and the discriminator's, with and without padding, for random configurations."""
    shape = random_shapes(22, seed=14)[number]
    embedding_width = shape["width"] if number % 3 == 0 else 1 + 5 * number % 13
    tokens, segments, lengths, real = batch_of(shape)
    for part, cls in (
        ("generator", transformers.ElectraForMaskedLM),
        ("discriminator", transformers.ElectraForPreTraining),
    ):
        reference = reference_of(cls, shape, embedding_width)
        theirs = reference.state_dict()
        weights = encoder_weights(theirs, shape["layers"])
        if part == "generator":
            weights |= head_weights(theirs, "generator_predictions.dense", "generator_predictions.LayerNorm")
            weights["output.softmax.bias"] = theirs["generator_lm_head.bias"]
        else:
            head = "discriminator_predictions"
            weights |= renamed(theirs, {"detector": f"{head}.dense", "detector_output": f"{head}.dense_prediction"})
        model = make(**shape, embedding_width=embedding_width, generator=1.0, parts=part).eval()
        model.load_state_dict({f"{part}.{name}": weight for name, weight in weights.items()})
        for given, mask in ((None, None), (lengths, real)):
            expected = reference(tokens, token_type_ids=segments, attention_mask=mask).logits
            hidden = model(tokens, segments=segments, lengths=given).hidden
            found = filler(model).logits(hidden) if part == "generator" else model.main.discriminator_head(hidden)
            kept = torch.ones_like(real).bool() if mask is None else mask.bool()
            torch.testing.assert_close(found[kept], expected[kept], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("size", "discriminator", "published", "generator_width"),
    [("small", 13_549_057, 14e6, 64), ("base", 109_483_009, 110e6, 256), ("large", 335_142_913, 335e6, 256)],
)
def test_published_parameter_counts(size: str, discriminator: int, published: float, generator_width: int) -> None:
    with torch.device("meta"):
        model = create("electra", {"vocabulary": 30522, "parts": "discriminator"}, size=size)
        both = create("electra", {"vocabulary": 30522}, size=size)
    assert sum(parameter.numel() for parameter in model.parameters()) == discriminator
    assert discriminator == pytest.approx(published, rel=0.04)
    assert isinstance(both, Electra)
    assert both.generator is not None
    assert both.generator.config.width == generator_width


def test_parts_share_their_tables(tmp_path: Path) -> None:
    model = make(embedding_width=10)
    assert model.generator is not None
    assert model.discriminator is not None
    assert model.generator.config.width == 12
    assert model.generator.config.heads == 2
    for name in ("embedding", "positions", "segments"):
        assert getattr(model.generator, name).weight is getattr(model.discriminator, name).weight
    assert model.generator.output.softmax.weight is model.discriminator.embedding.weight
    assert model.generator.embedding_norm.weight is not model.discriminator.embedding_norm.weight
    path = tmp_path / "model.safetensors"
    write_tensors(path, model_tensors(model))
    stored = read_tensors(path)
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in model.parameters())
    assert [name for name in stored if name.endswith(("embedding.weight", "softmax.weight"))] == [
        "discriminator.embedding.weight"
    ]


@pytest.mark.parametrize("embedding_width", [10, None])
def test_gradients_reach_every_parameter(embedding_width: int | None) -> None:
    model = make(embedding_width=embedding_width).train()
    assert model.generator is not None
    tokens, segments = torch.randint(97, (4, 20)), torch.randint(2, (4, 20))
    generated = model.generator(tokens, segments=segments).hidden
    loss = filler(model).total_nll(generated[:, :3].flatten(0, 1), tokens[:, :3].flatten())
    (loss + require(model, Detects).detect(tokens=tokens, segments=segments).sum()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_each_part_says_what_it_cannot_do() -> None:
    tokens = torch.randint(97, (2, 5))
    both = make()
    hidden = both(tokens).hidden
    assert hidden.shape == (2, 5, 24)
    assert require(both, Detects).detect(tokens=tokens).shape == (2, 5)
    assert filler(both).fill(tokens=tokens, at=tokens[:, :2] % 5).shape == (2, 2, 97)
    alone = make(parts="generator")
    hidden = alone(tokens).hidden
    assert hidden.shape == (2, 5, 12)
    assert filler(alone).logits(hidden).shape == (2, 5, 97)
    with pytest.raises(ValueError, match="cannot detect replaced tokens"):
        require(alone, Detects)
    discriminator = make(parts="discriminator")
    assert discriminator.generator is None
    with pytest.raises(ValueError, match=r"is a replaced-token detector; it cannot predict masked tokens"):
        filler(discriminator)


def test_the_generator_needs_whole_heads() -> None:
    with pytest.raises(ValueError, match=r"model\.generator = 0\.3: 2 heads do not divide the width 5"):
        build(ElectraConfig, {"vocabulary": 9, "width": 18, "heads": 6, "generator": 0.3}, where="model")


def test_both_parts_need_their_heads() -> None:
    with pytest.raises(ValueError, match=r"model\.parts = 'both': training both parts needs their heads"):
        build(ElectraConfig, {"vocabulary": 9, "head": False}, where="model")
    model = make(parts="discriminator", head=False)
    assert ability(model, Detects) is None


def test_flops_as_torch_counts_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = make(embedding_width=10, inner=50).eval()
    assert model.generator is not None
    tokens = torch.randint(97, (3, 20))
    with FlopCounterMode(display=False) as counter, watching(model, *attention_weights_of(model)):
        model.generator(tokens)
        require(model, Detects).detect(tokens=tokens)
    detecting = require(model, Detects).detection_flops({"tokens": tokens})
    stated = model.generator.body_flops(20) * tokens.numel() + detecting
    assert counter.get_total_flops() == pytest.approx(stated)
    assert model.pretraining_flops(20) * tokens.numel() == pytest.approx(stated + model.head_flops() * tokens.numel())
    assert model.body_flops(20) < 0.7 * model.pretraining_flops(20), "a task reads the discriminator alone"


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_narrow_sizes_begin_with_larger_weights(size: str) -> None:
    """lmlab's own with N(0, 1 / inputs), the paper's with N(0, 0.02²); the tables of vectors always with the latter."""
    model = create("electra", {"vocabulary": 97, "layers": 2}, size=size)
    assert isinstance(model, Electra)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.weight.numel() >= 1000:
            wanted = module.in_features**-0.5 if size == "tiny" else 0.02
            assert module.weight.std().item() == pytest.approx(wanted, rel=0.15)
    assert model.main.embedding.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_a_discriminator_begins_as_the_generator_of_a_run_that_has_no_other() -> None:
    learnt, both = make(parts="generator", generator=1.0), make(generator=0.5)
    fresh = model_tensors(both)
    adapted = both.adapt(model_tensors(learnt), fresh)
    assert adapted.keys() == fresh.keys()
    assert learnt.generator is not None
    for name, tensor in learnt.generator.state_dict().items():
        if name.startswith(("blocks.", "embedding.", "positions.")):
            assert adapted[f"discriminator.{name}"].equal(tensor), name
    drawn = [name for name in adapted if name.startswith(("generator.blocks.", "discriminator.detector_output."))]
    assert drawn
    assert all(adapted[name].equal(fresh[name]) for name in drawn), "a generator of another size is drawn anew"
    assert both.adapt(dict(fresh), fresh) == fresh, "a run with both parts passes on both"
    with pytest.raises(ValueError, match=r"smaller than the discriminator .* model.generator=1"):
        both.adapt(model_tensors(make(parts="generator", generator=0.5)), fresh)


def test_only_a_generator_alone_may_be_given_a_discriminator() -> None:
    assert Electra.changeable({"parts": "generator"}) == ("parts", "generator")
    assert Electra.changeable({"parts": "both"}) == ()


def test_names_of_earlier_versions_are_read() -> None:
    new = model_tensors(make())
    old = {name.replace("detector_output", "verdict"): tensor for name, tensor in new.items()}
    assert old.keys() != new.keys()
    assert with_new_names(old, Electra).keys() == new.keys()
