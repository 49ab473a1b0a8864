"""lmlab cost as a user meets it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from lmlab.cli import app
from lmlab.models import systems_that_read


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["cost", *arguments], env={"COLUMNS": "200"})


def priced(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    values: dict[str, Any] = json.loads(result.stdout)
    return values


@pytest.mark.parametrize("name", [name for name in systems_that_read("text") if name != "ngram"])
def test_every_system_has_a_cost(name: str) -> None:
    values = priced(name, "--size", "tiny", "--budget", "1Mtokens", "--hardware", "h100x4")
    assert values["parameters"] == values["embedding_parameters"] + values["non_embedding_parameters"]
    thrice = pytest.approx(3e6 * values["forward_flops_per_token"])
    if name == "reformer":  # reversible layers compute their inputs again
        assert values["training_flops"] > 3e6 * values["forward_flops_per_token"]
    else:
        assert values["training_flops"] == thrice
    assert values["memory"]["fsdp"]["total"] <= values["memory"]["ddp"]["total"]
    assert all(values[key] > 0 for key in ("seconds", "joules", "grams", "dollars"))


def test_settings_vocabulary_batch_and_country_count() -> None:
    plain = priced("gpt2", "--size", "tiny", "--budget", "1Mtokens")
    deeper = priced("gpt2", "--size", "tiny", "--budget", "1Mtokens", "--set", "model.layers=4", "--vocabulary", "100")
    assert deeper["non_embedding_parameters"] > 1.9 * plain["non_embedding_parameters"]
    assert deeper["embedding_parameters"] < plain["embedding_parameters"]
    larger = priced("gpt2", "--size", "tiny", "--budget", "1Mtokens", "--set", "train.batch=64", "--country", "Norway")
    assert larger["memory"]["single"]["activations"] > 3 * plain["memory"]["single"]["activations"]
    assert larger["grams"] == pytest.approx(plain["grams"] * 30 / 473)
    sgd = priced("lstm", "--size", "tiny", "--set", "train.optimizer=sgd")
    assert sgd["memory"]["single"]["optimizer"] == 0


def test_published_sizes_have_the_names_of_their_papers() -> None:
    base = priced("bert", "--size", "base")
    assert base["parameters"] == 109_482_240
    assert base["basis"] == "counted on models/bert.py"
    assert base["pretraining_only_parameters"] == 768 * 768 + 3 * 768 + 30522 + 2 * 768 + 2, (
        "transform, norm, bias, pairs"
    )
    assert priced("transformer", "--size", "base")["training_flops"] == pytest.approx(3.3e18, rel=0.1)
    assert priced("electra", "--size", "small")["parameters"] == pytest.approx(14e6, rel=0.1)
    assert priced("electra")["size"] == "mini"


def test_the_table_tells_the_same() -> None:
    shown = invoke("gpt3")
    assert shown.exit_code == 0
    for part in ("174,604,259,328", "14.8 days", "v100x10000", "3.14e+23", "FSDP", "473 g/kWh"):
        assert part in shown.output
    both = invoke("transformer", "--size", "big").output
    for part in ("2.3e+19", "counted", "one is a pair of a source and a target token", "per pair, in rows of 30"):
        assert part in both
    assert "624,188 that only pre-training needs" in invoke("bert", "--size", "base").output
    assert "a vocabulary of 30,000 (Bahdanau" in invoke("seq2seq", "--size", "rnnsearch").output


@pytest.mark.parametrize("name", ["nplm", "bert", "albert", "electra", "transformer", "bart", "seq2seq"])
def test_this_machine_is_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the objective of each: next tokens, blanks and sentence pairs, replaced tokens, translations, repairs."""
    from lmlab.costs import benchmark

    monkeypatch.setattr(benchmark, "SECONDS", 0.2)
    monkeypatch.setattr(benchmark, "VALIDATION_SECONDS", 0.05)
    monkeypatch.setattr(benchmark, "TEXT", 20_000)
    values = priced(
        *(
            name,
            "--size",
            "tiny",
            "--budget",
            "100ktokens",
            "--hardware",
            "this",
            "--vocabulary",
            "200",
            "--set",
            "train.batch=8",
        ),
        *("--set", "train.window=32"),
    )
    assert values["hardware"].startswith("this machine")
    assert values["trial_batch"] == 8
    assert values["training_seconds"] > 0
    assert values["validation_seconds"] > 0
    assert 0 < values["utilisation"] < 1


def test_the_speed_of_a_translator_is_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop counts the tokens of both sides, the sum on paper one pair of them."""
    from lmlab.costs import benchmark
    from lmlab.costs.design import describe
    from lmlab.models import create
    from lmlab.training.progress import TrainingProgress
    from lmlab.training.settings import TrainConfig

    done = TrainingProgress(units={"tokens": 6000}, seconds=2.0, cost=(2.0, 2.0, 16.0))
    monkeypatch.setattr(benchmark.Trainer, "run", lambda _: done)
    monkeypatch.setattr(benchmark, "Validator", lambda *_, **__: lambda: None)
    monkeypatch.setattr(benchmark, "VALIDATION_SECONDS", 0.0)
    for name, pairs in (("transformer", 1500), ("seq2seq", 1500), ("bart", 3000), ("bert", 3000)):
        design = describe(name, size="tiny", vocabulary=200)
        model = create(name, design.settings or {}, size="tiny")
        speed, _ = benchmark.measure_speed(model, design, TrainConfig(), moments=2)
        assert speed.tokens_per_second == pytest.approx(pairs, rel=0.02), name


def test_a_trial_takes_fewer_rows_where_steps_are_long() -> None:
    from lmlab.costs.benchmark import affordable_rows
    from lmlab.costs.design import describe

    design = describe("gpt2", size="124M")
    step = 3 * design.forward_flops * 1024  # of one row
    rows = affordable_rows(design, wanted=16, peak=step * 2 * 4 / 10, memory=1e12, moments=2)
    assert rows == 4, "four rows take ten seconds at half of the peak"
    assert affordable_rows(design, wanted=16, peak=step * 1e6, memory=1e12, moments=2) == 16
    with pytest.raises(ValueError, match=r"this machine has 1\.0"):
        affordable_rows(design, wanted=16, peak=step * 1e6, memory=1e9, moments=2)


@pytest.mark.parametrize("name", ["gpt2", "bert", "electra", "transformer", "transformer-xl", "seq2seq"])
def test_deep_models_are_estimated_without_being_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is computed from few layers is what counting many gives; and a million are answered at once."""
    from lmlab.costs import design

    options = (name, "--size", "tiny", "--budget", "1Mtokens", "--set")
    counted = priced(*options, "model.layers=9")
    monkeypatch.setattr(design, "MANY_LAYERS", 8)
    computed = priced(*options, "model.layers=9")
    assert computed.keys() == counted.keys()
    for key, value in counted.items():
        if isinstance(value, float):
            assert computed[key] == pytest.approx(value, rel=1e-9), key
        elif key == "communication":
            for one, other in zip(computed[key], value, strict=True):
                assert one.pop("strategy") == other.pop("strategy")
                assert one == pytest.approx(other, rel=1e-9)
        elif key != "memory":
            assert computed[key] == value, key
    for strategy, parts in counted["memory"].items():
        assert computed["memory"][strategy] == pytest.approx(parts)
    built: list[Any] = []
    create = design.create
    monkeypatch.setattr(design, "create", lambda *given, **more: built.append(given) or create(*given, **more))
    million = priced(*options, "model.layers=1000000")
    assert million["non_embedding_parameters"] > 50_000 * counted["non_embedding_parameters"]
    assert all(settings["layers"] <= 4 for _, settings in built)


def test_the_decoder_may_be_deep_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from lmlab.costs import design

    options = ("transformer", "--size", "tiny", "--set", "model.layers=11", "--set", "model.decoder_layers=13")
    counted = priced(*options)
    monkeypatch.setattr(design, "MANY_LAYERS", 8)
    assert priced(*options)["parameters"] == counted["parameters"]
    assert priced(*options)["training_flops"] == pytest.approx(counted["training_flops"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gtp2"], "did you mean 'gpt2'"),
        (["gpt2", "--size", "huge"], "unknown size"),
        (["gpt2", "--hardware", "a1000x8"], "did you mean 'a100'"),
        (["gpt2", "--country", "Swedn"], "did you mean 'sweden'"),
        (["gpt2", "--tokens", "-5"], "above zero"),
        (["gpt2", "--set", "train.batch=0"], "train.batch"),
        (["gpt2", "--vocabulary", "1"], "at least 2"),
        (["gpt2", "--utilisation", "2"], "at most 1"),
        (["gpt2", "--price-per-hour", "-1"], "price per hour"),
        (["gpt2", "--set", "model.layerz=3"], "did you mean 'layers'"),
        (["gpt2", "--set", "data.text=a"], "unknown group"),
        (["gpt2", "--set", "train.rate=0.1"], "train.rate does not change the estimate"),
        (["gpt2", "--set", "train.budget=3min"], "give --budget"),
        (["gpt3", "--set", "train.country=SE"], "give --country"),
        (["gpt2", "--set", "train.precision=bf16"], "it does with --hardware this"),
        (["gpt2", "--set", "train.momentum=0.9"], "only for train.optimizer=sgd"),
        (["gpt2", "--set", "train.batchh=3"], "did you mean 'batch'"),
        (["gpt2", "--vocabulary", "300", "--set", "model.vocabulary=400"], "are the same setting"),
        (["gpt3", "--hardware", "this"], "no file"),
        (["bert", "--size", "110M"], "unknown size '110M' of bert"),
        (["bert", "--hardware", "this", "--vocabulary", "6"], "tokens are special"),
        (["ngram"], "cannot be computed in advance"),
        (["lstm", "--hardware", "this", "--utilisation", "0.3"], "omit it"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert isinstance(result.exception, ValueError), result.output
    assert message in str(result.exception)
