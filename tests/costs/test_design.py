"""Designs counted on the real models: against other people's implementations, the papers' figures and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from encoders import attention_weights_of
from lmlab.costs.benchmark import synthetic_task
from lmlab.costs.design import describe
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.costs.published import PUBLISHED
from lmlab.layers.watching import watching
from lmlab.models import LINEAGE, create, systems_that_read
from lmlab.objectives.seq2seq import Seq2Seq, pair_batch
from lmlab.training.settings import TrainConfig

COUNTED = [name for name in systems_that_read("text") if name != "ngram"]


def reference(name: str, size: str) -> Any:
    """The same system of the transformers library, on the meta device; its defaults are the base sizes."""
    transformers = pytest.importorskip("transformers")
    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    positions = {"max_position_embeddings": 514, "type_vocab_size": 1}
    bart = {"vocab_size": 50265, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6}
    bart |= {"encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    albert = {"vocab_size": 30000, "num_hidden_layers": 24, "num_attention_heads": 16}
    settings: dict[tuple[str, str], dict[str, Any]] = {
        ("bert", "base"): {},
        ("bert", "large"): large,
        ("mbert", "base"): {"vocab_size": 119_547},
        ("roberta", "base"): {"vocab_size": 50265, **positions},
        ("roberta", "large"): {"vocab_size": 50265, **positions, **large},
        ("xlm-r", "base"): {"vocab_size": 250002, **positions},
        ("xlm-r", "large"): {"vocab_size": 250002, **positions, **large},
        ("albert", "base"): {
            **albert,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
        },
        ("albert", "large"): {**albert, "hidden_size": 1024, "intermediate_size": 4096},
        ("albert", "xlarge"): {**albert, "hidden_size": 2048, "intermediate_size": 8192},
        ("albert", "xxlarge"): {
            **albert,
            "hidden_size": 4096,
            "intermediate_size": 16384,
            "num_hidden_layers": 12,
            "num_attention_heads": 64,
        },
        ("electra", "small"): {"embedding_size": 128, "hidden_size": 256, "intermediate_size": 1024},
        ("electra", "base"): {
            "embedding_size": 768,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
        },
        ("electra", "large"): {"embedding_size": 1024, **large},
        ("bart", "base"): bart,
        ("bart", "large"): {"vocab_size": 50265},
    }
    family = {"xlm-r": "Roberta", "mbert": "Bert"}.get(name, name.capitalize())
    config = getattr(transformers, f"{family}Config")(**settings[name, size])
    without = {"add_pooling_layer": False} if family == "Roberta" else {}
    with torch.device("meta"):
        return getattr(transformers, f"{family}Model")(config, **without)


@pytest.mark.parametrize(
    ("name", "size"),
    [key for key in PUBLISHED if key[0] in ("bert", "mbert", "roberta", "xlm-r", "albert", "electra", "bart")],
)
def test_parameters_are_those_of_the_transformers_library(name: str, size: str) -> None:
    """Without the heads of pre-training, and of ELECTRA without the generator."""
    model = reference(name, size)
    tables = {module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    expected = Parameters(sum(p.numel() for p in model.parameters()), sum(weight.numel() for weight in tables))
    if name == "bart":  # its tables have two idle rows each
        idle = 2 * 2 * model.config.d_model
        expected = Parameters(expected.total - idle, expected.embedding - idle)
    assert describe(name, size=size).parameters == expected


@pytest.mark.parametrize("size", ["base", "big"])
def test_transformer_parameters_are_those_of_torch(size: str) -> None:
    width, heads, inner = {"base": (512, 8, 2048), "big": (1024, 16, 4096)}[size]
    with torch.device("meta"):
        stacks = torch.nn.Transformer(width, heads, 6, 6, inner, batch_first=True)
    final_norms = 2 * 2 * width  # torch adds them, the paper has none
    expected = sum(p.numel() for p in stacks.parameters()) - final_norms + 37000 * width
    assert describe("transformer", size=size).parameters == Parameters(expected, 37000 * width)


@pytest.mark.parametrize(("name", "size"), sorted(PUBLISHED))
def test_published_parameters_within_ten_per_cent(name: str, size: str) -> None:
    design, published = describe(name, size=size), PUBLISHED[name, size]
    assert design.published is published
    assert design.vocabulary == published.vocabulary
    if published.parameters is not None:
        assert design.parameters.total == pytest.approx(published.parameters, rel=0.1)


@pytest.mark.parametrize(
    ("size", "exact"),
    [("124M", 124_439_808), ("355M", 354_823_168), ("774M", 774_030_080), ("1.5B", 1_557_611_200)],
)
def test_gpt2_sizes_are_exact(size: str, exact: int) -> None:
    assert describe("gpt2", size=size).parameters.total == exact


@pytest.mark.parametrize("name", COUNTED)
def test_what_pre_training_needs_is_all_there_is(name: str) -> None:
    design = describe(name, size="tiny", vocabulary=60)
    with torch.device("meta"):
        model = create(name, {"vocabulary": 60}, size="tiny")
    assert design.parameters.total + design.pretraining_only == sum(weight.numel() for weight in model.parameters())
    assert (design.pretraining_only > 0) == (LINEAGE[name].does[0] == "masks")
    assert design.parameters.embedding == count_parameters(model).embedding, "heads share their tables"
    assert design.size in LINEAGE[name].sizes


def test_tables_of_tokens_positions_and_segments_are_embeddings() -> None:
    def tables(name: str, **settings: Any) -> int:
        return count_parameters(create(name, {"vocabulary": 100, **settings}, size="tiny")).embedding

    assert tables("bert") == (100 + 64 + 2) * 64
    assert tables("roberta") == (100 + 64 + 2 + 1) * 64, "two idle positions, one segment"
    assert tables("albert") == (100 + 64 + 2) * 32, "of the small width"
    assert tables("electra") == (100 + 64 + 2) * 32, "the generator shares them"
    assert tables("transformer") == 100 * 64, "sine waves are not learnt"
    assert tables("transformer", source_vocabulary=30) == 130 * 64
    assert tables("bart") == (100 + 2 * 128) * 64, "each stack has positions of its own"
    assert tables("seq2seq") == 100 * 64, "its softmax is not tied"


@pytest.mark.parametrize("name", ["bert", "albert", "electra"])
def test_flops_of_masked_models_are_those_that_torch_counts(name: str) -> None:
    """Of the real objective on a real batch: head and last layer work at 15% of the places, the pooler once a row."""
    design = describe(name, size="tiny", vocabulary=500)
    assert design.predicted == 0.15
    model = create(name, design.settings or {}, size="tiny").train().requires_grad_(requires_grad=False)
    objective, text = synthetic_task(model, design, tokens=20_000, seed=0)
    raw = objective.loader(text, batch=4, window=design.window, seed=0, streams=False).batch(0)
    batch = objective.batch(raw, np.random.default_rng(0))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        objective.loss(model, {}, batch)
    assert design.forward_flops * batch.units["tokens"] == pytest.approx(counter.get_total_flops(), rel=0.03)


@pytest.mark.parametrize("name", ["transformer", "bart", "seq2seq"])
def test_flops_of_encoder_decoders_are_those_that_torch_counts(name: str) -> None:
    """For each pair of a source and a target token, of rows as long as the design says."""
    settings = {"cell": "rnn"} if name == "seq2seq" else {}  # torch counts no fused LSTM
    design = describe(name, size="tiny", vocabulary=500, window=24, settings=settings)
    assert design.unit == "pair of a source and a target token"
    assert (design.window, design.mean_window) == (24, 24)
    model = create(name, design.settings or {}, size="tiny").train()
    model.requires_grad_(requires_grad=False)
    rows, full = np.random.default_rng(0).integers(0, 500, (3, 25)), np.full(3, 24)
    batch = pair_batch(rows[:, 1:], full, rows, full, tokens=6 * 24)
    with FlopCounterMode(display=False) as counter, watching(model, *attention_weights_of(model)):
        Seq2Seq().loss(model, {}, batch)
    assert design.forward_flops * 3 * 24 == pytest.approx(counter.get_total_flops(), rel=0.03)


def test_settings_and_windows_change_a_design() -> None:
    block = describe("bert", size="base").block
    shallow = describe("bert", size="base", settings={"layers": 2})
    assert shallow.parameters.total == 109_482_240 - 10 * block
    assert shallow.published is None, "it is no longer the published one"
    longer = describe("bert", size="base", settings={"window": 1024})
    assert longer.parameters.total == 109_482_240 + 512 * 768
    assert describe("bert", size="base").mean_window == 246
    assert describe("bert", size="base", window=128).mean_window == 128
    assert describe("bert", size="base", vocabulary=1000).published is None
    assert describe("transformer").mean_window == 30 < describe("transformer").window == 64
    with pytest.raises(ValueError, match="did you mean 'layers'"):
        describe("bert", settings={"layer": 2})
    with pytest.raises(ValueError, match="omit this setting"):
        describe("electra", settings={"parts": "discriminator"})


def test_default_sizes_train_on_a_cpu() -> None:
    """None is a published one, and the vocabulary is that of the tokenizer that the system gets."""
    for name in COUNTED:
        design = describe(name)
        assert (name, design.size) not in PUBLISHED
        assert design.parameters.total < 10e6
    assert describe("electra").size == "mini"
    assert describe("transformer").vocabulary == describe("mbert").vocabulary == 8192
    assert describe("bert").vocabulary == 4096


def test_electra_trains_a_generator_too() -> None:
    design = describe("electra", size="base")
    assert design.pretraining_only > 10e6
    assert 3 * design.forward_flops * 766_000 * 256 * 512 == pytest.approx(6.4e19, rel=0.1), "Clark et al., table 1"


def test_shared_layers_cost_as_much_as_others() -> None:
    """ALBERT has one block, and computes it in each layer."""
    bert, albert = (describe(name, size="base", vocabulary=1000, window=512) for name in ("bert", "albert"))
    assert albert.forward_flops == pytest.approx(bert.forward_flops, rel=0.01)
    assert albert.activations(2) == pytest.approx(bert.activations(2), rel=0.03)
    assert albert.parameters.total < bert.parameters.total / 8


def test_designs_fit_the_settings_of_training() -> None:
    for name in COUNTED:
        config = TrainConfig(**LINEAGE[name].training)
        assert describe(name, window=config.window).window <= {"reformer": 1024, "whisper": 448}.get(
            name, 256
        )  # for long texts
