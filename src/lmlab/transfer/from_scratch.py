"""Architectures that learn a task from its examples alone, without a pre-trained run: `lmlab finetune tagger DATA`.

The vocabulary has the training words, lowercase and with all digits as 0, that occur twice or have a word vector; the
model also reads the letters of each word.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers as hf
from tokenizers import normalizers

from lmlab.data.corpora.examples import ExamplesConfig, all_examples
from lmlab.data.readers.examples import Labelled
from lmlab.data.readers.files import cache_folder
from lmlab.models import ARCHITECTURES, find
from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.runs.storage import read_json
from lmlab.runs.upgrade import upgrade
from lmlab.tasks.lm_embeddings import LanguageStates
from lmlab.tasks.tagging import Tagging
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.engines import word_engine
from lmlab.tokenizers.spellings import SYMBOLS
from lmlab.tokenizers.word_vectors import WordVectors, read_word_vectors
from lmlab.training.budget import check_epochs
from lmlab.transfer.recipe import watch_setting

EPOCHS = 15
LEAST_STEPS = 600
"""Small sets are read more often."""
LONGEST_WORD = 25
FOLDING = [normalizers.Lowercase(), normalizers.Replace(hf.Regex("[0-9]"), "0")]
"""How words are written in the vocabulary."""
LEAST_SEEN = 2
"""How often a training word must occur, so that the vector of unknown words is trained, too."""


class CacheFile(NamedTuple):
    """A file of the cache that a recipe reads: planned, and written when a trial is run."""

    path: Path
    save: Callable[[Path], None]

    def write(self) -> None:
        """Write the file, unless it is there."""
        if not self.path.is_file():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.save(self.path)


def is_architecture(origin: Path) -> bool:
    """Whether this is the name of an architecture that is trained from scratch, and not a run."""
    return str(origin) in ARCHITECTURES and not (origin / "config.json").is_file()


def plan_from_scratch(
    origin: Path,
    labelled: Labelled,
    data: ExamplesConfig,
    *,
    method: str = "full",
    seed: int = 0,
    epochs: float | None = None,
    task: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
) -> tuple[Recipe, CacheFile]:
    """A recipe for learning the task of `labelled` from scratch, and the file of its vocabulary.

    `task`, `train` and `model` are the user's settings.
    """
    kind, system = str(origin), find(str(origin))
    if labelled.task != Tagging.name:
        raise ValueError(f"{kind} gives each word a tag, and these examples are for {labelled.task}: give CoNLL files")
    if method not in ("full", "scratch"):
        raise ValueError(f"--how {method}: all of {kind} is learnt from the examples; leave it out")
    check_epochs(epochs)
    given = {"crf": True, **(task or {})}
    model = upgrade({"model": model or {}})["model"]
    _check_states(given, model)
    if given.get("states"):
        given["states"] = [str(Path(each).expanduser().resolve()) for each in given["states"]]
    vectors = None
    if given.get("vectors") is not None:
        given["vectors"] = str(Path(given["vectors"]).expanduser().resolve())
        vectors = vectors_for(labelled, given["vectors"])
    examples, batch = len(labelled.train), int((train or {}).get("batch", system.training["batch"]))
    steps_per_epoch = math.ceil(examples / min(batch, examples))
    epochs = epochs or float(max(EPOCHS, min(100, math.ceil(LEAST_STEPS / steps_per_epoch))))
    objective = {
        "kind": Tagging.name,
        "frame": dict(system.task.frame),
        "spelling": LONGEST_WORD,
        "dropout": 0.5,
        "method": "full",
        **Tagging.settings_from(labelled, system.task, frozen=False),
        **given,
    }
    settings = {
        **{"batch": batch, "seed": seed, "budget": f"{max(epochs, 1 / steps_per_epoch)!r}epochs"},
        **{"evaluations": max(1, min(15, round(epochs))), "log_every": max(1, min(10, steps_per_epoch))},
        **watch_setting(labelled, objective),
        **(train or {}),
    }
    vocabulary = make_vocabulary(labelled, vectors)
    values = {
        "data": data.model_dump(exclude_none=True, exclude={"given"}),
        "tokenizer": {"spec": str(vocabulary.path)},
        "model": {"kind": kind, **_model(objective, vectors, model)},
        "objective": objective,
        "train": settings,
    }
    return make_recipe(values), vocabulary


def _model(objective: Mapping[str, Any], vectors: WordVectors | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the model that follow from its inputs, and the user's."""
    found: dict[str, Any] = {"symbols": SYMBOLS}
    if vectors is not None:
        if given.get("width", vectors.width) != vectors.width:
            raise ValueError(f"model.width = {given['width']}: the word vectors have {vectors.width}; leave it out")
        found["width"] = vectors.width
    if objective.get("states"):
        layers = objective.get("state_layers", "last")
        found["state_layers"], found["states"] = LanguageStates(objective["states"], layers=layers).shape
        if given.get("state_position", "between") == "between":
            found["layers"] = 2
    return {**found, **given}


def _check_states(given: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """A ValueError where settings of states are given without --states, or a run in --states has no language model."""
    if not given.get("states"):
        settings = {
            "objective.state_layers": "state_layers" in given,
            "model.state_position": "state_position" in model,
        }
        if wrong := [name for name, given_here in settings.items() if given_here]:
            raise ValueError(f"{wrong[0]} is for states of a language model: give --states RUN, too")
        return
    for folder in map(Path, given["states"]):
        kind = read_json(folder / "config.json")["kind"] if (folder / "config.json").is_file() else None
        if kind in ARCHITECTURES or kind == "word2vec":
            raise ValueError(
                f"--states {folder}: it is a {kind}, no language model; use a run that predicts text"
                + (", and give word vectors with --vectors FILE" if kind == "word2vec" else "")
            )


def vectors_for(labelled: Labelled, path: str | Path) -> WordVectors:
    """The word vectors of a file for the words of the examples; a ValueError where there are none."""
    words, path = frozenset(map(fold, words_of(labelled))), Path(path).expanduser().resolve()
    found = _read_vectors(path, path.stat().st_mtime_ns if path.is_file() else 0, words)
    if not found.words:
        raise ValueError(
            f"none of the {len(words):,} words of the examples has a vector in {path} (looked up lowercase, with "
            "0 for each digit): use vectors of their language"
        )
    return found


@lru_cache(maxsize=2)
def _read_vectors(path: Path, changed: int, words: frozenset[str]) -> WordVectors:
    return read_word_vectors(path, only=words)


def format_coverage(labelled: Labelled, path: str | Path) -> str:
    """A line with the number of words that have a vector."""
    known, words = set(vectors_for(labelled, path).words), [fold(word) for part in labelled.train for word in part.a]
    types, running = len(set(words)), sum(word in known for word in words)
    return (
        f"word vectors: for {len(known & set(words)):,} of {types:,} training words "
        f"({running / max(1, len(words)):.0%} of running words)"
    )


def words_of(labelled: Labelled) -> set[str]:
    """All words of all examples; of held-out words it only matters whether they have a vector."""
    return {word for example in all_examples(labelled) for word in example.a}


def fold(word: str) -> str:
    """A word as the vocabulary has it: lowercase, with all digits as 0."""
    return str(normalizers.Sequence(FOLDING).normalize_str(word))


def make_vocabulary(labelled: Labelled, vectors: WordVectors | None = None) -> CacheFile:
    """The tokenizer of a model from scratch, as a file of the cache: lowercase words, digits as 0, the rest unknown."""
    counts = Counter(fold(word) for example in labelled.train for word in example.a)
    known = set() if vectors is None else set(vectors.words)
    words = [word for word, count in counts.most_common() if count >= LEAST_SEEN or word in known]
    words += sorted(known - set(words))
    tokenizer = Tokenizer(folding_engine([word for word in words if word not in ("<unk>", "<eos>")]))
    content = hashlib.sha256(tokenizer.fingerprint.encode()).hexdigest()
    return CacheFile(cache_folder() / "vocabularies" / f"{content[:32]}.json", tokenizer.save)


def folding_engine(words: list[str]) -> hf.Tokenizer:
    """A tokenizer of words between white space, looked up as `fold` writes them."""
    engine = word_engine(words)
    engine.normalizer = normalizers.Sequence([engine.normalizer, *FOLDING])
    return engine
