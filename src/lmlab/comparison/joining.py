"""Adding runs from elsewhere to a comparison, if their text allows it."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.comparison.records import TRAINING_JOULES, ComparedRun, RunScores
from lmlab.comparison.runner import evaluate_run
from lmlab.comparison.shared_test_data import HeldOutItems, Tests, TestText
from lmlab.comparison.tracks import tracks_of
from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import count_parameters
from lmlab.language_model import LanguageModel, load
from lmlab.runs.held_out import reopen_corpus
from lmlab.runs.jobs import Silent
from lmlab.runs.recipe_record import RecipeRecord, read_record
from lmlab.runs.storage import digest, read_json
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.inspecting import loses_text, text_fingerprint
from lmlab.training.devices import choose_device
from lmlab.units import read_speed

LONG_LINE = 40
"""Characters from which on a line that two texts share is taken as copied, not as chance."""
VERY_LONG_LINE = 2000
"""Characters from which on a line is no line of prose, but many sentences: a split may cut it anywhere."""
MOST_COMPARED = 64 << 20
"""Bytes of training text in which lines are looked for when a text is scored, which should not take much longer."""
MAX_SHARED = 0.1
"""Largest fraction of the test text that may be in the training text of a run that is added: a licence, a header."""


class Provenance(NamedTuple):
    """What could be found out about the training text of a run."""

    description: str
    same_text: bool


def join(
    path: Path, *, description: dict[str, Any], tests: Tests, names: set[str], records: Sequence[ComparedRun]
) -> ComparedRun:
    """Score a run on the test text of a comparison that has these `records`; a ValueError says why it cannot be."""
    model = load(path, device=choose_device(description["train"].get("device", "auto")))
    system = read_json(path / "config.json")["kind"]
    if tests.media is not None:
        tracks_of(system)
        provenance, fingerprint = _examine_media(path, system, description), ""
    elif tests.sequences is None:
        tracks_of(system)
        _check_tokenizer(model, path, system, _rivals(system, description, records), tests.whole)
        provenance = examine(path, description=description, test=tests.whole)
        fingerprint = text_fingerprint(model.text_tokenizer)
    else:
        provenance = _examine_items(model, path, description, tests.sequences)
        fingerprint = tests.sequences.tokenizer.fingerprint
    measured = evaluate_run(model, path, tests, system=system)
    return ComparedRun(
        name=_free_name(path.resolve().name, names),
        system=system,
        run=str(path),
        seed=None,
        weights_sha256=digest(path / "model.safetensors"),
        tokenizer=fingerprint,
        parameters=count_parameters(model.model).total,
        embedding_parameters=count_parameters(model.model).embedding,
        rate=None,
        sweep=[],
        training=_costs(path),
        energy_method=None,
        added=provenance.description,
        scores=measured if provenance.same_text else _without_curves(measured),
    )


def _examine_media(path: Path, system: str, description: dict[str, Any]) -> Provenance:
    """Whether a run takes part in a ranking of a comparison on pictures, recordings or episodes, and has its data."""
    if not any(track.has(system) for name in description["systems"] for track in tracks_of(name)):
        raise ValueError(f"{path} cannot be added: {system} is not ranked with {', '.join(description['systems'])}")
    if (path / "recipe.json").is_file() and read_record(path).text_sha256 == description["text_sha256"]:
        return Provenance("trained on the same data, split in the same way", True)
    return Provenance("trained on other data; whether the test data were among them is not known", False)


def _examine_items(model: LanguageModel, path: Path, description: dict[str, Any], test: HeldOutItems) -> Provenance:
    """Whether a run of music or pixels has the tokens of a comparison, and was trained on the same data."""
    if model.processor != test.tokenizer:
        raise ValueError(
            f"{path} cannot be added: it has {model.processor!r}, and the comparison {test.tokenizer!r}; scores are "
            "per token, so all need the same tokenizer"
        )
    if (path / "recipe.json").is_file() and read_record(path).text_sha256 == description["text_sha256"]:
        return Provenance("trained on the same data, split in the same way", True)
    return Provenance("trained on other data; whether the test data were among them is not known", False)


def _without_curves(scores: RunScores) -> RunScores:
    """The scores of a run whose validations were of another text."""
    also = {name: replace(each, curve=[]) for name, each in scores.also.items()}
    return scores._replace(own=replace(scores.own, curve=[]), also=also)


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _rivals(system: str, description: Mapping[str, Any], records: Sequence[ComparedRun]) -> dict[str, bool]:
    """The fingerprints of the tokenizers of all in the same tracks, and whether they lose text."""
    tracks = tracks_of(system)
    rivals = {
        description["fingerprints"][name]: bool(description["lossy"][description["tokenizers"][name]])
        for name in description["systems"]
        if any(track.has(name) for track in tracks)
    }
    for record in records:
        if any(track.has(record.system) for track in tracks):
            fingerprint = record.tokenizer or description["fingerprints"][record.system]
            rivals[fingerprint] = rivals.get(fingerprint, False) or record.scores.own.lossy
    return rivals


def _check_tokenizer(model: LanguageModel, path: Path, system: str, rivals: Mapping[str, bool], test: TestText) -> None:
    """Tokenizers may differ only where none of them loses text, and where each token is predicted from those before."""
    tokenizer = model.text_tokenizer
    if rivals.keys() <= {text_fingerprint(tokenizer)}:
        return
    for track in tracks_of(system):
        if track.one_tokenizer:
            raise ValueError(
                f"{path} cannot be added: its tokenizer, {tokenizer.spec}, is not that of other {track.words.systems}"
                f", and {track.one_tokenizer}"
            )
    loses = ""
    if _has_unknown(tokenizer, test) or loses_text(tokenizer, test.texts):
        loses = f"{path} reads {tokenizer.spec}, which"
    elif any(rivals.values()):
        loses = "the comparison's tokenizer"
    if loses:
        raise ValueError(
            f"{path} cannot be added: its tokenizer is not the comparison's, and {loses} is lossy, so the scores would "
            "not be of the same text. With different tokenizers, all of them must be lossless "
            "(bpe, unigram, bytes)"
        )


def _has_unknown(tokenizer: Tokenizer, test: TestText) -> bool:
    """Whether the test text holds anything that the vocabulary cannot say: then even `characters` loses text."""
    unknown = tokenizer.unknown
    return unknown is not None and any(bool((ids == unknown).any()) for ids in tokenizer.encode_batch(test.texts))


def examine(path: Path, *, description: dict[str, Any], test: TestText) -> Provenance:
    """Whether the run can have seen the test text in training: by the fingerprint of its text, else by its lines."""
    if not (path / "recipe.json").is_file():
        return Provenance("it has no recipe, so it is unknown whether it was trained on the test text", False)
    try:
        record = read_record(path)
        if record.text_sha256 == description["text_sha256"]:
            return Provenance("trained on the same text, split in the same way", True)
        if record.recipe.data.parallel:
            raise ValueError("it was trained on pairs of texts")
        fraction = training_fraction(record, path, test.texts)
    except (ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        return Provenance(
            f"its training text cannot be read ({reason}), so whether it saw the test text is not known", False
        )
    if fraction > MAX_SHARED:
        raise ValueError(
            f"{path} cannot be added: {fraction:.0%} of the test text is also in its training text, so its score would "
            "be too good; train it on a text without these documents, or compare on another --test text"
        )
    return Provenance(
        f"trained on another text, in which {fraction:.1%} of the long lines of the test text were found", False
    )


def training_fraction(record: RecipeRecord, path: Path, texts: list[str]) -> float:
    """The fraction, in characters, of the long lines of texts that are also in the training text of a run.

    A ValueError says why the training text cannot be read.
    """
    corpus = reopen_corpus(record, path, Silent())
    train = corpus.train.as_text()
    if train.bytes > MOST_COMPARED:
        raise ValueError(f"it has more than {MOST_COMPARED:,} bytes, which takes long to compare")
    tokenizer = corpus.text_tokenizer
    bounds = [*train.documents.tolist(), len(train.tokens)]
    documents = (tokenizer.decode(train.tokens[i:j].tolist()) for i, j in pairwise(bounds))
    if tokenizer.lossy or tokenizer.may_drop_bytes:
        texts = [tokenizer.decode(tokenizer.encode(text)) for text in texts]
    return shared_lines(texts, documents)


def fraction_trained_on(path: Path, texts: list[str]) -> float | None:
    """The same for a run of any kind; None if it is not known, or would take too long."""
    if not any(line for text in texts for line in _lines(text)):
        return 0.0
    try:
        if not (path / "recipe.json").is_file():
            return None
        record = read_record(path)
        if record.recipe.data.parallel:
            return None
        with warnings.catch_warnings(action="ignore"):  # they were shown when it was trained
            return training_fraction(record, path, texts)
    except (ValueError, OSError, KeyError, TypeError):
        return None


def shared_lines(test: list[str], training: Iterator[str]) -> float:
    """The fraction, in characters, of the test's long lines that are also in the training text."""
    wanted: dict[str, int] = {}
    for text in test:
        for line in _lines(text):
            wanted[line] = wanted.get(line, 0) + len(line)
    found = {line for text in training for line in _lines(text) if line in wanted}
    return sum(wanted[line] for line in found) / max(1, sum(wanted.values()))


def _lines(text: str) -> Iterator[str]:
    """The long lines of a text, without regard to spaces; very long ones sentence by sentence."""
    for line in text.splitlines():
        words = " ".join(line.split())
        for part in [words] if len(words) < VERY_LONG_LINE else re.split(r"(?<=[.!?]) ", words):
            if len(part) >= LONG_LINE:
                yield part


def _costs(path: Path) -> dict[str, float]:
    """The cost of the run from its metrics, in its own country; empty if it has none."""
    try:
        text = (path / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [line for line in map(json.loads, text.splitlines()) if "tokens" in line and "cost" in line]
        last = [line for line in lines if "joules" in line["cost"]][-1]
        cost = last["cost"]
        speed = next((found for line in reversed(lines) if (found := read_speed(line))), None)
        country = None if "grams" in cost else read_json(path / "recipe.json")["train"].get("country")
        return {
            "tokens": last["tokens"],
            "steps": last["step"],
            "flops": last.get("flops", 0.0),
            "seconds": last[speed[0]] / speed[1] if speed else cost["seconds"],
            "wall_seconds": cost["seconds"],
            "cpu_seconds": cost["cpu_seconds"],
            "gpu_seconds": cost.get("gpu_seconds", 0.0),
            "joules": cost["joules"],
            "grams": cost["grams"] if "grams" in cost else find_grid(country).grams(cost["joules"]),
            **({TRAINING_JOULES: cost[TRAINING_JOULES]} if TRAINING_JOULES in cost else {}),
        }
    except (OSError, ValueError, KeyError, IndexError):
        return {}
