"""The second stage of ULMFiT: the language model of a run is tuned on the training texts of a task, without labels.

Howard & Ruder 2018, section 3.2. Any run can be tuned by its own objective, a masked one too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmlab.data.corpora.examples import texts_of
from lmlab.data.readers.documents import SEPARATORS
from lmlab.data.readers.examples import Example
from lmlab.data.readers.files import cache_folder
from lmlab.runs import run as runs
from lmlab.runs.jobs import Reporter
from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.runs.recipe_record import read_record
from lmlab.runs.run_files import check_not_read, is_fresh, is_run
from lmlab.runs.storage import read_json, write_bytes
from lmlab.transfer.from_scratch import CacheFile
from lmlab.transfer.recipe import find_trial_changes

SPLIT = [0.9, 0.1, 0.0]
EPOCHS = 5
LEAST_TOKENS = 200_000
"""Little text is read more often, up to this much and to MOST_EPOCHS."""
MOST_EPOCHS = 20
BYTES_PER_TOKEN = 4
ENDING = "-lm"
"""The end of the name of the folder of a tuned language model."""
OWN_TEXT = re.compile(r"[/\\]texts[/\\][0-9a-f]{32}\.txt$")
"""The name of a file of texts in the cache."""


def plan_tuning(
    origin: Path, examples: Sequence[Example], *, seed: int, train: Mapping[str, Any] | None = None
) -> tuple[Recipe, CacheFile]:
    """A recipe that tunes the language model of a run on the texts of examples, and the file of these texts.

    `train` are the user's settings.
    """
    texts = dict.fromkeys("\n".join(texts_of(example)) for example in examples)
    content = SEPARATORS["endoftext"].join(texts).encode()
    path = cache_folder() / "texts" / f"{hashlib.sha256(content).hexdigest()[:32]}.txt"
    size = len(content) / BYTES_PER_TOKEN
    epochs = min(MOST_EPOCHS, max(EPOCHS, round(LEAST_TOKENS / max(1.0, size))))
    recipe = make_recipe(
        {
            "data": {"kind": "text", "text": [str(path)], "documents": "endoftext", "split": SPLIT},
            "model": {"kind": read_json(origin / "config.json")["kind"]},
            "train": {"seed": seed, "budget": f"{epochs}epochs", **(train or {})},
            "origin": str(origin),
        }
    )
    return recipe, CacheFile(path, lambda target: write_bytes(target, content))


def tune(
    recipe: Recipe,
    path: Path,
    *,
    overwrite: bool = False,
    owner: Path | None = None,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> runs.Outcome | None:
    """Tune in the folder `path`, resume there, or use what is done; None where it was interrupted.

    Nothing is replaced there but, with `overwrite`, the language model that was tuned for the run `owner`.
    """
    check_tuned(path, recipe, overwrite=overwrite, owner=owner)
    if is_run(path) and not find_trial_changes(path, recipe):
        outcome = runs.resume(path, reporter=reporter, interrupted=interrupted)
    else:
        outcome = runs.start(recipe, path, overwrite=overwrite, reporter=reporter, interrupted=interrupted)
    return None if outcome.interrupted else outcome


def language_model_folder(run: Path) -> Path:
    """The folder in which the language model is tuned for a run."""
    return run.with_name(f"{run.name}{ENDING}")


def check_tuned(path: Path, recipe: Recipe, *, overwrite: bool, owner: Path | None) -> None:
    """A ValueError where no language model can be tuned in the folder `path`: it is read, or holds a run of its own."""
    check_not_read(path, recipe.inputs(), option="the folder of the tuned language model,")
    if not path.exists() or is_fresh(path) or (is_run(path) and not find_trial_changes(path, recipe)):
        return
    if not is_run(path):
        raise ValueError(f"{path}, where the language model would be tuned, is not a run: choose another -o")
    if owner is None or not was_tuned_for(path, owner):
        raise ValueError(
            f"{path}, where the language model would be tuned, holds another run, which is not replaced: choose "
            "another -o, or remove it yourself"
        )
    if not overwrite:
        raise ValueError(
            f"{path} was tuned with other settings or texts: resume with the same ones, choose another -o, or replace "
            f"it and {owner} with --overwrite"
        )


def was_tuned_for(path: Path, run: Path) -> bool:
    """Whether a run is a language model that was tuned on the texts of a task, for a run that has begun with it."""
    texts = read_record(path).recipe.data.paths()
    if not is_run(run) or len(texts) != 1 or not OWN_TEXT.search(texts[0]):
        return False
    origin = read_record(run).recipe.origin
    return origin is not None and Path(origin).resolve() == path.resolve()
