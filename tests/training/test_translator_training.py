"""Translators through the whole of training: what is watched, fine-tuning from another run, exact resuming."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import resume, start
from lmlab.runs.storage import read_tensors
from lmlab.training.evaluation import Evaluation

WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Three numbers in English and in German."""
    names = list(WORDS)
    lines = [[names[i // place % 6] for place in (1, 6, 36)] for i in range(120)]
    (tmp_path / "en").write_text("".join(" ".join(line) + "\n" for line in lines))
    (tmp_path / "de").write_text("".join(" ".join(WORDS[word] for word in line) + "\n" for line in lines))
    return {"source": str(tmp_path / "en"), "target": str(tmp_path / "de")}


def recipe(files: dict[str, str], kind: str = "transformer", **changes: Any) -> Any:
    train = {"budget": "30steps", "batch": 4, "window": 32, "rate": 3e-3, "warmup": 5, "evaluations": 5}
    values = {
        "data": files,
        "tokenizer": {"spec": "words"},
        "model": {"kind": kind, "size": "tiny"},
        "train": {**train, **changes.pop("train", {})},
        **changes,
    }
    return make_recipe(values)


def evaluations(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "valid_loss" in line]


def test_the_best_weights_are_those_of_the_best_bleu(files: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    outcome = start(recipe(files, train={"watch": "bleu"}), tmp_path / "run")
    found = evaluations(tmp_path / "run")
    highest = (-1.0, 0.0)
    for line in found:
        rank = (line["valid_bleu"], -line["valid_loss"])
        assert line["best"] == (rank > highest)
        highest = max(highest, rank)
    assert outcome.progress.best_metrics["bleu"] == highest[0]


def test_of_the_same_bleu_the_lower_loss_is_better() -> None:
    first, second, third = (
        Evaluation(loss, {"bleu": bleu}, {"bleu": "higher"}) for loss, bleu in ((3.0, 0.0), (2.0, 0.0), (4.0, 1.0))
    )

    def order(watch: str, *worse_to_better: Evaluation) -> bool:
        pairs = itertools.pairwise(worse_to_better)
        return all(
            better.improves(worse.loss, worse.values, watch=watch)
            and not worse.improves(better.loss, better.values, watch=watch)
            for worse, better in pairs
        )

    assert order("bleu", first, second, third)
    assert order("loss", third, first, second)
    assert third.improves(None, {}, watch="bleu"), "the first is the best so far"


def test_what_is_no_number_is_worse_than_any_and_not_the_best_for_ever() -> None:
    """The correlation of constant predictions is none: the first evaluation must not stay the best because of it."""
    none, also_none, some = (
        Evaluation(loss, {"r": value}, {"r": "higher"})
        for loss, value in ((3.0, math.nan), (2.0, math.nan), (5.0, 0.1))
    )
    assert also_none.improves(none.loss, none.values, watch="r"), "by the loss"
    assert some.improves(also_none.loss, also_none.values, watch="r")
    assert not none.improves(some.loss, some.values, watch="r")


def test_lower_is_better_where_the_metric_says_so() -> None:
    low, high = (Evaluation(1.0, {"error": value}, {"error": "lower"}) for value in (0.1, 0.2))
    assert low.improves(high.loss, high.values, watch="error")
    assert not high.improves(low.loss, low.values, watch="error")


def test_what_is_watched_must_be_measured(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train\.watch = 'acuracy'; did you mean 'accuracy'"):
        start(recipe(files, train={"watch": "acuracy"}), tmp_path / "run")
    text = {"data": {"text": [files["source"]]}, "model": {"kind": "lstm", "size": "tiny"}}
    with pytest.raises(ValueError, match="needs a translator"):
        start(make_recipe({**text, "train": {"watch": "bleu", "budget": "2steps"}}), tmp_path / "other")


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_resumed_is_bit_equal(files: dict[str, str], tmp_path: Path, kind: str) -> None:
    start(recipe(files, kind), tmp_path / "whole")
    calls = iter(range(1000))
    start(recipe(files, kind, train={"save_seconds": 0}), tmp_path / "part", interrupted=lambda: next(calls) >= 13)
    resume(tmp_path / "part")
    whole, part = (read_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    assert all((whole[name] == part[name]).all() for name in whole)


def test_bart_learns_to_repair_then_to_translate(files: dict[str, str], tmp_path: Path) -> None:
    """Fine-tuning begins with the weights, the settings and the tokenizer of the run that it comes from."""
    text = {"text": [files["source"], files["target"]]}
    first = recipe(text | {"documents": "lines"}, "bart")
    assert first.objective["kind"] == "denoising"
    start(first, tmp_path / "repair")
    second = make_recipe(
        {
            "data": files,
            "model": {"kind": "bart"},
            "origin": str(tmp_path / "repair"),
            "train": {"budget": "1steps", "rate": 1e-9},
        }
    )
    assert second.objective["kind"] == "seq2seq"
    start(second, tmp_path / "translate")
    before, after = (read_tensors(tmp_path / name / "model.safetensors") for name in ("repair", "translate"))
    assert before.keys() == after.keys()
    assert max(float((before[name] - after[name]).abs().max()) for name in before) < 1e-6
    tokenizers = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("repair", "translate")]
    assert tokenizers[0] == tokenizers[1]


def test_fine_tuning_names_what_does_not_fit(files: dict[str, str], tmp_path: Path) -> None:
    start(recipe(files, train={"budget": "1steps"}), tmp_path / "run")
    with pytest.raises(ValueError, match="holds a transformer, not a bart"):
        make_recipe({"data": files, "model": {"kind": "bart"}, "origin": str(tmp_path / "run")})
    for name in ("spec", "source"):
        with pytest.raises(ValueError, match=rf"tokenizer\.{name} is that of"):
            make_recipe(
                {
                    "data": files,
                    "model": {"kind": "transformer"},
                    "tokenizer": {name: "bpe:300"},
                    "origin": str(tmp_path / "run"),
                }
            )
    with pytest.raises(ValueError, match="is not a run directory"):
        make_recipe({"data": files, "model": {"kind": "bart"}, "origin": str(tmp_path / "nothing")})


def test_pairs_and_systems_must_suit_each_other(files: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="give --source and --target"):
        make_recipe({"data": {"text": ["a.txt"]}, "model": {"kind": "transformer"}})
    with pytest.raises(ValueError, match="'masked' does not fit gpt2"):
        make_recipe({"data": {"text": ["a.txt"]}, "model": {"kind": "gpt2"}, "objective": {"kind": "masked"}})
    with pytest.raises(ValueError, match="give both --source and --target"):
        make_recipe({"data": {"source": files["source"]}, "model": {"kind": "transformer"}})
    with pytest.raises(ValueError, match="causal learns from plain text"):
        make_recipe({"data": files, "model": {"kind": "gpt2"}})
