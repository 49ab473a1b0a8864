"""Runs from elsewhere join a comparison, where their text allows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from lmlab import run
from lmlab.checkpoint import digest, read_json
from lmlab.compare.arena import measure
from lmlab.compare.curves import read_curve
from lmlab.compare.evaluation import Tests, TestText
from lmlab.compare.plan import SAME_TOKENS, check_comparable
from lmlab.compare.records import Record
from lmlab.costs.parameters import count_parameters
from lmlab.jobs import Silent
from lmlab.language_model import LanguageModel, load
from lmlab.models import find
from lmlab.recipe import read_record
from lmlab.training.costs import Cost

LONG_LINE = 40
"""Characters from which on a line that two texts share is taken as copied, not as chance."""
MOST_SHARED = 0.1
"""Share of the test text that may stand in the training text of a run that joins; a licence or a header may."""


class Provenance(NamedTuple):
    """What could be found out about the training text of a run."""

    told: str
    same_text: bool


def join(
    path: Path, *, description: dict[str, Any], tests: Tests, names: set[str], joined: Sequence[Record] = ()
) -> Record:
    """Score a run on the test text of a comparison, which others have `joined`; a ValueError says why it cannot be."""
    model = load(path)
    system = read_json(path / "config.json")["kind"]
    check_comparable(system)
    predicts = find(system).predicts
    _check_tokenizer(model, path, predicts, _rivals(predicts, description, joined))
    provenance = examine(path, description=description, test=tests.whole)
    return {
        "name": _free_name(path.resolve().name, names),
        "system": system,
        "run": str(path),
        "seed": None,
        "weights_sha256": digest(path / "model.safetensors"),
        "tokenizer": model.tokenizer.fingerprint,
        "parameters": count_parameters(model.model).total,
        "embedding_parameters": count_parameters(model.model).embedding,
        "rate": None,
        "sweep": [],
        "training": _costs(path),
        "energy_method": None,
        "curve": read_curve(path, predicts=predicts) if provenance.same_text else [],
        "added": provenance.told,
        **measure(model, path, tests, predicts=predicts),
    }


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _rivals(predicts: str, description: dict[str, Any], joined: Sequence[Record]) -> dict[str, bool]:
    """The fingerprints of the tokenizers of all that predict the same, and whether they lose text."""
    own = {
        description["fingerprints"][system]: description["lossy"][description["tokenizers"][system]]
        for system in description["systems"]
        if find(system).predicts == predicts
    }
    return own | {each["tokenizer"]: each["lossy"] for each in joined if find(each["system"]).predicts == predicts}


def _check_tokenizer(model: LanguageModel, path: Path, predicts: str, rivals: dict[str, bool]) -> None:
    """Tokenizers may differ only where none of them loses text, and where each token is predicted from those before."""
    if rivals.keys() <= {model.tokenizer.fingerprint}:
        return
    if predicts == "blanks":
        raise ValueError(
            f"{path} cannot join: its tokenizer, {model.tokenizer.spec}, is not that of the other masked systems, and "
            f"{SAME_TOKENS}"
        )
    lossy = f"{path} reads {model.tokenizer.spec}, which" if model.tokenizer.lossy else ""
    if not lossy and any(rivals.values()):
        lossy = "the comparison's tokenizer"
    if lossy:
        raise ValueError(
            f"{path} cannot join: its tokenizer is not the comparison's, and {lossy} loses part of the text, so that "
            "the scores would be of different texts. With different tokenizers, all of them must be lossless "
            "(bpe, unigram, bytes)"
        )


def examine(path: Path, *, description: dict[str, Any], test: TestText) -> Provenance:
    """Whether the run can have seen the test text in training: by the fingerprint of its text, else by its lines."""
    if not (path / "recipe.json").is_file():
        return Provenance("it has no recipe, so nobody can tell whether it has seen the test text in training", False)
    try:
        record = read_record(path)
        if record.text_sha256 == description["text_sha256"]:
            return Provenance("trained on the same text, split in the same way", True)
        if record.recipe.data.parallel:
            raise ValueError("it was trained on pairs of texts")
        corpus = run.reopen_corpus(record, path, Silent())
    except (ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        return Provenance(
            f"its training text cannot be read ({reason}), so whether it saw the test text is not known", False
        )
    tokenizer = corpus.tokenizer
    bounds = [*corpus.train.documents.tolist(), len(corpus.train.tokens)]
    documents = (tokenizer.decode(corpus.train.tokens[i:j].tolist()) for i, j in pairwise(bounds))
    if tokenizer.lossy:
        texts = [tokenizer.decode(tokenizer.encode(text)) for text in test.texts]
        share = shared_lines(texts, documents)
    else:
        share = shared_lines(test.texts, documents)
    if share > MOST_SHARED:
        raise ValueError(
            f"{path} cannot join: {share:.0%} of the test text stands in its training text too, so its score would "
            "flatter it; train it on a text without these documents, or compare on another --test text"
        )
    return Provenance(
        f"trained on another text, in which {share:.1%} of the long lines of the test text were found", False
    )


def shared_lines(test: list[str], training: Iterator[str]) -> float:
    """The share, in characters, of the test's long lines that stand in the training text too."""
    wanted: dict[str, int] = {}
    for text in test:
        for line in _lines(text):
            wanted[line] = wanted.get(line, 0) + len(line)
    found = {line for text in training for line in _lines(text) if line in wanted}
    return sum(wanted[line] for line in found) / max(1, sum(wanted.values()))


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        words = " ".join(line.split())
        if len(words) >= LONG_LINE:
            yield words


def _costs(path: Path) -> dict[str, float]:
    """What the run took, as its own metrics tell; nothing where it has none."""
    try:
        lines = map(json.loads, (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        last = [line for line in lines if "tokens" in line and "joules" in line.get("cost", {})][-1]
        cost = Cost(*(last["cost"][name] for name in ("seconds", "cpu_seconds", "joules")))
    except (OSError, ValueError, KeyError, IndexError):
        return {}
    rate = last["cost"].get("tokens_per_second")
    return {
        "tokens": last["tokens"],
        "steps": last["step"],
        "flops": last.get("flops", 0.0),
        "seconds": last["tokens"] / rate if rate else cost.seconds,
        "wall_seconds": cost.seconds,
        "cpu_seconds": cost.cpu_seconds,
        "gpu_seconds": 0.0,
        "joules": cost.joules,
        "grams": cost.grams,
    }
