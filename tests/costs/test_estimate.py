"""The sum on paper: published totals, the memory of a strategy, and what does not make sense."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lmlab.costs.countries import GRIDS, WORLD, find_grid
from lmlab.costs.design import describe
from lmlab.costs.estimate import Speed, estimate, needed_memory, parse_count
from lmlab.costs.hardware import DEVICES, parse_hardware
from lmlab.costs.parameters import count_parameters
from lmlab.models import create
from lmlab.models.model import EncoderModel


@pytest.mark.parametrize(
    ("name", "size", "flops"),
    [("transformer", "base", 3.3e18), ("transformer", "big", 2.3e19), ("gpt3", "175B", 3.14e23)],
)
def test_published_training_flops_within_ten_per_cent(name: str, size: str, flops: float) -> None:
    assert estimate(describe(name, size=size)).training_flops == pytest.approx(flops, rel=0.1)


def test_transformer_flops_are_given_both_ways() -> None:
    """Vaswani et al. multiply time and the sustained rate; what is computed is less, and worked out here by hand."""
    result = estimate(describe("transformer", size="base"))
    d, f, V, T, pairs = 512, 2048, 37000, 30, 2.5e9
    encoder = 6 * (2 * (4 * d * d + 2 * d * f) + 4 * T * d)
    decoder = 6 * (2 * (8 * d * d + 2 * d * f) + 8 * T * d)
    assert result.counted_flops == pytest.approx(3 * pairs * (encoder + decoder + 2 * d * V), rel=1e-9)
    assert result.training_flops == 12 * 3600 * 8 * 9.5e12
    assert result.seconds == pytest.approx(12 * 3600), "the published run took as long as published"
    other = estimate(describe("transformer", size="base"), tokens=1e9)
    assert other.training_flops == other.counted_flops, "another run than the published one is counted"


def test_gpt3_took_the_energy_that_patterson_reports() -> None:
    result = estimate(describe("gpt3"))
    assert result.joules / 3.6e9 == pytest.approx(1287, rel=0.1)
    assert result.seconds / 86400 == pytest.approx(14.8)


def test_time_energy_co2e_and_money_by_hand() -> None:
    design = describe("gpt2", size="124M")
    result = estimate(design, tokens=1e10, hardware="a100x8", utilisation=0.5, country="FR", price_per_hour=2.0)
    seconds = 3 * design.forward_flops * 1e10 / (8 * 312e12 * 0.5)
    assert result.seconds == pytest.approx(seconds)
    assert result.joules == pytest.approx(seconds * 8 * 400 * 1.1 * 1.1)
    assert result.grams == pytest.approx(result.joules / 3.6e6 * 56)
    assert result.dollars == pytest.approx(seconds / 3600 * 8 * 2.0)


def test_memory_of_each_strategy_by_hand() -> None:
    design = describe("gpt2", size="124M")
    memory = needed_memory(design, batch=2, devices=4, moments=2, half=False)
    n = design.parameters.total
    assert memory["single"][:3] == (4 * n, 4 * n, 8 * n)
    assert memory["ddp"] == memory["single"], "each device holds everything"
    assert memory["fsdp"].gradients == n
    assert memory["fsdp"].optimizer == 2 * n
    assert memory["fsdp"].weights == n + 2 * 4 * design.block
    assert memory["fsdp"].activations == memory["ddp"].activations
    plain = needed_memory(design, batch=2, devices=1, moments=0, half=False)
    assert plain["single"].optimizer == 0
    assert plain["fsdp"] == plain["single"], "there is nobody to share with"
    electra = describe("electra", size="base")
    trained = needed_memory(electra, batch=1, devices=1, moments=2, half=False)["single"]
    assert trained.weights == 4 * (electra.parameters.total + electra.pretraining_only), "the generator is trained too"


def forward(model: Any, raw: torch.Tensor, state: Any) -> None:
    """A forward pass of training, up to the scores over the vocabulary."""
    if hasattr(model, "encode"):
        model(raw, source=raw)
    elif hasattr(model, "generator"):
        model.generator.output(model.generator(raw).hidden[:, :10])
        model.discriminator.discriminator_head(model(raw).hidden)
    elif isinstance(model, EncoderModel):
        model.output(model(raw).hidden[:, :10])
    else:
        model(raw, state=state)


@pytest.mark.parametrize(
    "name",
    ["gpt2", "gru", "nplm", "transformer-xl", "bert", "albert", "electra", "transformer", "bart", "seq2seq"],
)
def test_activations_are_what_a_real_step_keeps(name: str) -> None:
    """Counted without a real tensor, against what autograd saves in a real forward pass."""
    settings = {"dropout": 0.0, **({"cell": "gru"} if name == "seq2seq" else {})}  # a fused LSTM keeps more
    model = create(name, {"vocabulary": 50, **settings}, size="tiny").train()
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}
    holding = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        holding.append(tensor)
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    design = describe(name, size="tiny", vocabulary=50, settings=settings)
    raw = torch.zeros(3, design.window, dtype=torch.long)
    state = None
    if model.stateful:
        state = model.start(3)
        for _ in range(math.ceil(getattr(model.config, "memory", 0) / design.window)):
            state = model(raw, state=state).state
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward(model, raw, state)
    real = sum(size for place, size in kept.items() if place not in known)
    assert design.activations(3) == pytest.approx(real, rel=0.25)


def test_a_measured_speed_decides_time_and_energy() -> None:
    speed = Speed("here", 1000.0, 3000.0, 16.0, 1e11, 8e9, "CPU seconds x 8 W")
    result = estimate(describe("lstm", size="tiny"), tokens=60_000, speed=speed, validation_tokens=30_000)
    assert (result.seconds, result.validation_seconds) == (70.0, 10.0)
    assert result.joules == pytest.approx(70 * 16)
    assert result.dollars is None


def test_parameters_are_counted_once() -> None:
    tied = create("gpt2", {"vocabulary": 100}, size="tiny")
    counted = count_parameters(tied)
    assert counted.embedding == 100 * 64 + 64 * 64, "the softmax shares the table; positions are a table too"
    assert counted.total == sum(p.numel() for p in tied.parameters())
    untied = create("lstm", {"vocabulary": 100, "tied": False}, size="tiny")
    assert count_parameters(untied).embedding == 100 * 128


def test_defaults_are_stated() -> None:
    small = estimate(describe("gpt2"))
    assert small.design.size == "small"
    assert small.tokens == 20 * small.design.parameters.total
    assert "Hoffmann" in small.tokens_from
    assert (small.hardware, small.utilisation, small.grid) == ("a100x1", 0.4, WORLD)
    assert describe("gpt2", size="355M").vocabulary == 50257
    assert describe("gpt2", size="tiny").vocabulary == 4096


def test_hardware_is_read() -> None:
    assert parse_hardware("A100x8") == (DEVICES["a100"], 8)
    assert parse_hardware("rtx4090") == (DEVICES["rtx4090"], 1)
    assert parse_hardware("rtx4090x2") == (DEVICES["rtx4090"], 2)
    for text, near in (("h10x1024", "h100"), ("rtx4091", "rtx4090"), ("a10x8", "a10g"), ("v1000", "v100")):
        with pytest.raises(ValueError, match=f"did you mean '{near}'"):
            parse_hardware(text)
    for text in ("a100x0", "a100x-2", "a100xmany"):
        with pytest.raises(ValueError, match="not a number of devices"):
            parse_hardware(text)


def test_countries_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LMLAB_COUNTRY", raising=False)
    assert find_grid() == WORLD
    assert find_grid("se") == find_grid("SWE") == find_grid("Sweden") == GRIDS["SE"]
    monkeypatch.setenv("LMLAB_COUNTRY", "fr")
    assert find_grid().name == "France"
    assert find_grid("PL").grams(3.6e6) == 662
    with pytest.raises(ValueError, match="did you mean 'germany'"):
        find_grid("Germny")
    monkeypatch.setenv("LMLAB_COUNTRY", "Atlantis")
    with pytest.raises(ValueError, match="in LMLAB_COUNTRY"):
        find_grid()
    assert len({grid.alpha3 for grid in GRIDS.values()}) == len(GRIDS)
    assert all(10 < grid.grams_per_kwh < 1000 for grid in GRIDS.values())


@pytest.mark.parametrize(
    ("written", "amount"), [("300B", 3e11), ("5Mtokens", 5e6), ("1e9", 1e9), ("20_000", 2e4), ("2.5Gtokens", 2.5e9)]
)
def test_counts_are_read(written: str, amount: float) -> None:
    assert parse_count(written) == amount


def test_a_bare_m_could_be_minutes() -> None:
    with pytest.raises(ValueError, match="M could be millions or minutes; write 5Mtokens"):
        parse_count("5M")


@pytest.mark.parametrize("written", ["", "-5M", "0", "many", "5 parsecs", "1e999"])
def test_other_counts_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match="above zero"):
        parse_count(written)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tokens": -1.0}, "above 0"),
        ({"utilisation": 1.5}, "at most 1"),
        ({"utilisation": 0.0}, "above 0"),
        ({"price_per_hour": -3.0}, "price per hour"),
        ({"batch": 0}, "at least 1"),
        ({"country": "Atlantis"}, "no carbon intensity"),
        ({"hardware": "abacus"}, "unknown hardware"),
        ({"tokens": math.nan}, "tokens"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(describe("lstm", size="tiny"), **wrong)


def test_unknown_systems_and_sizes_name_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'albert'"):
        describe("alberta")
    with pytest.raises(ValueError, match="did you mean 'large'"):
        describe("bert", size="larg")
    with pytest.raises(ValueError, match="did you mean '124M'"):
        describe("gpt2", size="125M")
    with pytest.raises(ValueError, match="cannot be computed in advance"):
        describe("ngram")
