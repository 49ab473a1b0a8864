"""How probable a finished run finds the test text from either end: ELMo's question, ranked apart from all others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lmlab.compare.held_out import Tests
from lmlab.compare.likelihood import perplexity, score_units, write_sample
from lmlab.compare.records import Entry, Record
from lmlab.language_model import LanguageModel
from lmlab.pages.page import Cell
from lmlab.progress import ReportProgress

WHY = (
    "Systems in both directions predict each token twice, from what stands before it and from what stands after it. "
    "Their score is the mean of two likelihoods, and half of their training goes into each: they are ranked separately."
)


def measure_both_ways(model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> Record:
    """The exact score of each direction and their mean, and a text that the forward direction writes."""
    test = tests.whole
    record = score_units(model, test, progress=progress)
    return {**record, "sample": write_sample(model, test, bytes_per_token=float(test.sizes.sum()) / record["tokens"])}


def summarise_both_ways(records: Sequence[Record], *, same_tokens: bool) -> Entry:
    """Bits per byte of each direction; perplexity per token, where all have the same tokens."""
    nats = float(np.mean([sum(each["bits"]) / each["tokens"] for each in records])) * math.log(2)
    ways = {name: float(np.mean([each["directions"][name] for each in records])) for name in records[0]["directions"]}
    return {"perplexity": perplexity(nats) if same_tokens else None, **ways}


def direction_cell(entry: Entry) -> Cell:
    """Bits per byte of each direction."""
    return Cell(f"{entry['forward']:.3f} forward", f"{entry['backward']:.3f} backward")
