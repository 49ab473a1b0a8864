"""Published shapes: their formulas against other people's implementations and against the papers' figures."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lmlab.costs.design import describe
from lmlab.costs.parameters import Parameters, count_parameters
from lmlab.costs.shapes import PUBLISHED, SHAPES
from lmlab.models import create

transformers = pytest.importorskip("transformers")


def reference(name: str, size: str) -> Any:
    """The same system of the transformers library, on the meta device; its defaults are the base sizes."""
    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    positions = {"max_position_embeddings": 514, "type_vocab_size": 1}
    bart = {"vocab_size": 50265, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6}
    bart |= {"encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    albert = {"vocab_size": 30000, "num_hidden_layers": 24, "num_attention_heads": 16}
    settings: dict[tuple[str, str], dict[str, Any]] = {
        ("bert", "base"): {},
        ("bert", "large"): large,
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
    family = {"xlm-r": "Roberta"}.get(name, name.capitalize())
    config = getattr(transformers, f"{family}Config")(**settings[name, size])
    config._attn_implementation = "eager"
    with torch.device("meta"):
        return getattr(transformers, f"{family}Model")(config)


REFERENCES = [(name, size) for name in SHAPES if name not in ("transformer", "gpt3") for size in SHAPES[name]]


@pytest.mark.parametrize(("name", "size"), REFERENCES)
def test_parameters_are_those_of_the_transformers_library(name: str, size: str) -> None:
    model = reference(name, size)
    tables = {module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    expected = Parameters(sum(p.numel() for p in model.parameters()), sum(weight.numel() for weight in tables))
    assert describe(name, size=size).parameters == expected


@pytest.mark.parametrize(("name", "size"), [("bert", "base"), ("albert", "large"), ("bart", "base")])
def test_forward_flops_are_those_that_torch_counts(name: str, size: str) -> None:
    """Of the stack; the scores over the vocabulary, which the library's model leaves out, are added by hand."""
    from torch.utils.flop_counter import FlopCounterMode

    model, shape, window = reference(name, size), SHAPES[name][size], 128
    tokens = torch.zeros(2, window, dtype=torch.long, device="meta")
    inputs = {"input_ids": tokens, "decoder_input_ids": tokens} if name == "bart" else {"input_ids": tokens}
    with FlopCounterMode(display=False) as counter:
        model.eval()(**inputs)
    d, e, V = shape.width, shape.embedding, shape.vocabulary
    head = shape.predicted * 2 * (d * e * shape.head + e * V)
    ours = shape.forward_flops(window) - head
    assert ours == pytest.approx(counter.get_total_flops() / tokens.numel(), rel=0.02)


@pytest.mark.parametrize("size", ["base", "big"])
def test_transformer_parameters_are_those_of_torch(size: str) -> None:
    shape = SHAPES["transformer"][size]
    heads = shape.width // 64
    with torch.device("meta"):
        stacks = torch.nn.Transformer(shape.width, heads, 6, 6, shape.inner)
    final_norms = 2 * 2 * shape.width  # torch adds them, the paper has none
    expected = sum(p.numel() for p in stacks.parameters()) - final_norms + 37000 * shape.width
    assert shape.parameters().total == expected


def test_gpt3_is_gpt2_grown() -> None:
    """The formulas give what the real model has."""
    for size, heads in (("125M", 12), ("2.7B", 32), ("175B", 96)):
        shape = SHAPES["gpt3"][size]
        with torch.device("meta"):
            model = create(
                "gpt2",
                {"vocabulary": 50257, "width": shape.width, "heads": heads, "layers": shape.layers, "window": 2048},
            )
        assert shape.parameters() == count_parameters(model)
        assert shape.forward_flops(2048) == pytest.approx(model.flops(2048), rel=1e-6)


@pytest.mark.parametrize(("name", "size"), sorted(PUBLISHED))
def test_published_parameters_within_ten_per_cent(name: str, size: str) -> None:
    design = describe(name, size=size)
    assert design.published is not None
    assert design.parameters.total == pytest.approx(PUBLISHED[name, size].parameters, rel=0.1)


@pytest.mark.parametrize(
    ("size", "exact"),
    [("124M", 124_439_808), ("355M", 354_823_168), ("774M", 774_030_080), ("1.5B", 1_557_611_200)],
)
def test_gpt2_sizes_are_exact(size: str, exact: int) -> None:
    assert describe("gpt2", size=size).parameters.total == exact


def test_settings_change_a_shape() -> None:
    shallow = describe("bert", settings={"layers": 2})
    assert shallow.parameters.total == 109_482_240 - 10 * SHAPES["bert"]["base"].block()
    assert shallow.published is None, "it is no longer the published one"
    longer = describe("bert", settings={"window": 1024})
    assert longer.parameters.total == 109_482_240 + 512 * 768
    with pytest.raises(ValueError, match="did you mean 'layers'"):
        describe("bert", settings={"layer": 2})
    with pytest.raises(ValueError, match="whole number above 0"):
        describe("bert", settings={"layers": -2})


def test_electra_trains_a_generator_too() -> None:
    design = describe("electra", size="base")
    assert design.thrown_away > 10e6
    assert 3 * design.forward_flops * 766_000 * 256 * 512 == pytest.approx(6.4e19, rel=0.1), "Clark et al., table 1"
