"""What the studies of music and of pixels share: systems trained at equal FLOPs, and ranked on held-out items."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import lmlab
from lmlab.decoding.chain_rule import score_tokens
from lmlab.language_model import LanguageModel
from lmlab.metrics.statistics import RatioOfSums, Scores
from lmlab.runs.held_out import held_out_items
from lmlab.tokenizers.processors.sequences import SequenceTokenizer


class Trained(NamedTuple):
    """A run with its cost, and the nats of each held-out item."""

    path: Path
    model: LanguageModel
    nats: list[float]
    tokens: int
    flops: float
    parameters: int


def train_and_score(
    system: str, data: Path, folder: Path, *, tokenizer: str, budget: str, settings: Mapping[str, Any], limit: int
) -> Trained:
    """Train a system, or resume or reuse its run, and score the first `limit` held-out items by the chain rule."""
    path = folder / system
    lmlab.train(
        system,
        data,
        output=path,
        tokenizer=tokenizer,
        budget=budget,
        size="tiny",
        settings={"train.evaluations": 5, **settings},
        resume=path.exists(),
    )
    model = lmlab.load(path)
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    saved, weights = path / "held_out_nats.json", str((path / "model.safetensors").stat().st_mtime_ns)
    known = json.loads(saved.read_text()) if saved.is_file() else {}
    if known.get("weights") != weights or known.get("limit") != limit:
        items = held_out_items(path, limit)
        nats = score_tokens(model.model, items, boundary=tokenizer_of(model).boundary)
        known = {"weights": weights, "limit": limit, "nats": [float(each.sum()) for each in nats]}
        saved.write_text(json.dumps(known))
    parameters = 0 if system == "ngram" else sum(each.numel() for each in model.model.parameters())
    return Trained(path, model, known["nats"], int(last["tokens"]), float(last.get("flops") or 0), parameters)


def tokenizer_of(model: LanguageModel) -> SequenceTokenizer:
    """The tokenizer of a run that is not of text."""
    assert isinstance(model.processor, SequenceTokenizer)
    return model.processor


def print_ranking(runs: Mapping[str, Trained], sizes: Sequence[float], *, unit: str, factor: float = 1.0) -> None:
    """Print nats (times `factor`) for each of the `sizes` units of the items, with 95% intervals and tests by pairs."""
    predicted = {name: [[factor * each for each in run.nats]] for name, run in runs.items()}
    scores = Scores(RatioOfSums("lower"), predicted, list(sizes), sizes=list(sizes))
    print(f"\n| system | {unit} | 95% interval | parameters | tokens read | FLOPs |\n|---|---|---|---|---|---|")
    for name in scores.order:
        found, run = scores.estimate(name), runs[name]
        interval = "" if found.low is None else f"{found.low:.4f}–{found.high:.4f}"
        print(f"| {name} | {found.value:.4f} | {interval} | {run.parameters:,} | {run.tokens:,} | {run.flops:.2g} |")
    tied = [f"{each.better} and {each.worse}" for each in scores.compare() if not each.significant]
    print(f"\n{len(sizes)} held-out items. No significant difference: {'; '.join(tied) or 'none'}.", flush=True)


def bootstrap_mean(values: Sequence[float], *, seed: int = 0) -> tuple[float, float, float]:
    """The mean of values with its 95% bootstrap interval."""
    each: NDArray[np.float64] = np.asarray(values, np.float64)
    rows = np.random.default_rng(seed).integers(0, len(each), (4000, len(each)))
    low, high = np.quantile(each[rows].mean(1), [0.025, 0.975])
    return float(each.mean()), float(low), float(high)
