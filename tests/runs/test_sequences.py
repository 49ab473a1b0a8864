"""Token sequences that are not text: every kind of next-token system learns the built-in tunes, and resumes exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import lmlab
from killing import kill_while_saving
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from lmlab.runs.storage import read_tensors
from lmlab.tokenizers.processors.notes import Grid


def recipe(system: str, **train: Any) -> Any:
    settings = {"budget": "24steps", "batch": 8, "evaluations": 2, "save_seconds": 0, **train}
    model = {"kind": system, "size": "tiny"}
    return make_recipe({"data": {"text": "builtin:tunes"}, "model": model, "train": settings})


@pytest.mark.parametrize("system", ["ngram", "lstm", "gpt2", "transformer-xl", "reformer"])
def test_every_system_learns_tunes(system: str, tmp_path: Path) -> None:
    """Far better than chance, ln 130 = 4.87 nats, after a few steps; the processor is kept in the run."""
    outcome = run.start(recipe(system), tmp_path / "run")
    assert outcome.progress.best_metrics["nats"] < 4.4
    assert outcome.bits_per_byte is None
    assert "nats per note" in outcome.quality
    assert "nats per step" in outcome.quality
    assert outcome.quality.endswith("on validation pieces")
    assert json.loads((tmp_path / "run" / "processor.json").read_text()) == {"kind": "grid", "voices": 4, "steps": 4}
    assert not (tmp_path / "run" / "tokenizer.json").exists()
    model = lmlab.load(tmp_path / "run")
    assert model.processor == Grid(4)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "144 pieces, 73,728 notes" in card
    assert "nats per note" in card
    assert "bits per byte" not in card


def test_music_resumes_to_the_bit(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run.start(recipe("gpt2"), whole)
    calls = iter(range(1000))
    assert run.start(recipe("gpt2"), cut, interrupted=lambda: next(calls) >= 13).interrupted
    assert not run.resume(cut).interrupted
    one, other = read_tensors(whole / "model.safetensors"), read_tensors(cut / "model.safetensors")
    assert all(torch.equal(one[name], other[name]) for name in one)


KILLED: dict[str, tuple[str, dict[str, Any]]] = {
    "music-transformer": ("builtin:tunes", {"model.dropout": 0.1}),
    "decision-transformer": ("builtin:cart-pole", {"model.dropout": 0.1}),
    "policy": ("builtin:world", {"model.dropout": 0.1, "model.convolutions": [4, 8, 8, 8]}),
}


@pytest.mark.parametrize("system", KILLED)
def test_killed_and_resumed_is_bit_identical(system: str, tmp_path: Path) -> None:
    data, changes = KILLED[system]
    settings = {"train.batch": 4, "train.evaluations": 4, "train.evaluation_tokens": 1000, **changes}
    settings["train.save_seconds"] = 0
    options = [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    command = ("train", system, data, "--size", "tiny", "--budget", "12steps", *options)
    kill_while_saving(*command, "-o", str(tmp_path / "killed"), run="killed", saves=3)
    assert run.resume(tmp_path / "killed").progress.step == 12
    lmlab.train(system, data, output=tmp_path / "whole", size="tiny", budget="12steps", settings=settings)
    one, other = (read_tensors(tmp_path / name / "last" / "model.safetensors") for name in ("killed", "whole"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    values = {"data": {"notes": "builtin:tunes"}, "model": {"kind": "gpt2"}, "tokenizer": {"spec": "bpe:4096"}}
    music = make_recipe(values)
    with pytest.raises(ValueError, match="'bpe:4096' does not encode music"):
        run.start(music, tmp_path / "run")
    (tmp_path / "book.txt").write_text("a text " * 100)
    values = {"data": {"text": str(tmp_path / "book.txt")}, "model": {"kind": "gpt2"}, "tokenizer": {"spec": "events"}}
    text = make_recipe(values)
    with pytest.raises(ValueError, match="'events' is not for text"):
        run.start(text, tmp_path / "run")
    with pytest.raises(ValueError, match="learns from text or languages"):
        make_recipe({"data": {"text": "builtin:tunes"}, "model": {"kind": "bert"}})
    with pytest.raises(ValueError, match="reads words by their letters"):
        run.start(recipe("lm-1b"), tmp_path / "run")
