"""`lmlab.train`: train a model on text, as the command line does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.messages import suggest_keywords

if TYPE_CHECKING:
    from lmlab.runs.jobs import Reporter
    from lmlab.runs.run import Outcome

Paths = str | Path | Sequence[str | Path]
"""Files, folders or globs; one, or several."""


@suggest_keywords
def train(
    model: str | None = None,
    text: Paths | None = None,
    *,
    output: str | Path,
    budget: str | None = None,
    size: str | None = None,
    tokenizer: str | None = None,
    source: Paths | None = None,
    target: Paths | None = None,
    pairs: Paths | None = None,
    valid_source: Paths | None = None,
    valid_target: Paths | None = None,
    valid_pairs: Paths | None = None,
    source_tokenizer: str | None = None,
    valid: Paths | None = None,
    test: Paths | None = None,
    split: Sequence[float] | None = None,
    documents: str | None = None,
    columns: Mapping[str, str] | None = None,
    origin: str | Path | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    device: str | None = None,
    country: str | None = None,
    memory: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    parallel: str = "ddp",
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a model on text in a new run directory.

    `origin` is a run to start from, `recipe` a TOML file (or a recipe.json) with further settings, and `settings`
    overrides single ones by their names. `columns` are those of a table of pictures; n-grams are counted on disk
    with `memory` ("2G"). A finished run of equal settings
    is returned as it is; with `resume` an interrupted one is continued. `reporter` receives the progress, and training
    stops early where `interrupted()` is true. In a program that torchrun has started, all its processes train together:
    `parallel` is `ddp`, or `fsdp` to divide the weights among them.

    >>> run = lmlab.train("gpt2", "book.txt", output="runs/book", budget="2min", settings={"model.layers": 3})
    >>> run.load().generate("Once upon a time")
    """
    from lmlab.config import change_settings, read_toml
    from lmlab.runs import run
    from lmlab.runs.recipe import make_recipe
    from lmlab.runs.recipe_record import read_groups
    from lmlab.runs.run_files import is_run
    from lmlab.training.distributed.group import connect, was_restarted

    groups: dict[str, Any] = {}
    if recipe is not None:
        recipe = Path(recipe)
        groups = read_groups(recipe) if recipe.suffix == ".json" else read_toml(recipe)
    data: dict[str, Any] = {
        "text": path_names(text),
        "source": path_names(source),
        "target": path_names(target),
        "pairs": path_names(pairs),
        "valid_source": path_names(valid_source),
        "valid_target": path_names(valid_target),
        "valid_pairs": path_names(valid_pairs),
        "valid": path_names(valid),
        "test": path_names(test),
        "split": None if split is None else list(split),
        "documents": documents,
        "columns": None if columns is None else dict(columns),
    }
    given = {
        "data": data,
        "tokenizer": {"spec": tokenizer, "source": source_tokenizer},
        "model": {"kind": model, "size": size},
        "train": {"budget": budget, "seed": seed, "device": device, "country": country, "memory": memory},
    }
    for group, table in given.items():
        if values := {key: value for key, value in table.items() if value is not None}:
            groups[group] = {**groups.get(group, {}), **values}
    if origin is not None:
        groups["origin"] = str(origin)
    resolved, output = make_recipe(change_settings(groups, settings or {})), Path(output)
    if resume and overwrite:
        raise ValueError("--resume continues a run and --overwrite replaces it: give one of them")
    if was_restarted() and is_run(output):
        resume, overwrite = True, False
    world = connect(parallel=parallel, device=resolved.train.device)
    if not overwrite and is_run(output):
        run.check_same(resolved, output, unfinished=resume)
        return run.resume(output, reporter=reporter, interrupted=interrupted, world=world)
    return run.start(resolved, output, overwrite=overwrite, reporter=reporter, interrupted=interrupted, world=world)


def path_names(paths: Paths | None) -> list[str] | None:
    """Paths as a list of strings; None where there are none."""
    if paths is None or isinstance(paths, (str, Path)):
        return None if paths is None else [str(paths)]
    return [str(path) for path in paths] or None
