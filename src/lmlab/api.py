"""`lmlab.train` and `lmlab.compare`: the functions that the command line calls, with paths and names as arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.messages import suggest_keywords

if TYPE_CHECKING:
    from lmlab.compare.comparison import Published
    from lmlab.compare.runner import Watcher
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
    origin: str | Path | None = None,
    recipe: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    device: str | None = None,
    country: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a model on text in a new run directory.

    `origin` is a run to start from, `recipe` a TOML file (or a recipe.json) with further settings, and `settings`
    overrides single ones by their names. A finished run of the same settings is returned as it is; with `resume` an
    interrupted one is continued. `reporter` receives the progress, and training stops early where `interrupted()` is
    true.

    >>> run = lmlab.train("gpt2", "book.txt", output="runs/book", budget="2min", settings={"model.layers": 3})
    >>> run.load().generate("Once upon a time")
    """
    from lmlab.config import change_settings, read_toml
    from lmlab.runs import run
    from lmlab.runs.recipe import make_recipe, read_groups
    from lmlab.runs.run_files import is_run

    groups: dict[str, Any] = {}
    if recipe is not None:
        recipe = Path(recipe)
        groups = read_groups(recipe) if recipe.suffix == ".json" else read_toml(recipe)
    data: dict[str, Any] = {
        "text": _names(text),
        "source": _names(source),
        "target": _names(target),
        "pairs": _names(pairs),
        "valid_source": _names(valid_source),
        "valid_target": _names(valid_target),
        "valid_pairs": _names(valid_pairs),
        "valid": _names(valid),
        "test": _names(test),
        "split": None if split is None else list(split),
        "documents": documents,
    }
    given = {
        "data": data,
        "tokenizer": {"spec": tokenizer, "source": source_tokenizer},
        "model": {"kind": model, "size": size},
        "train": {"budget": budget, "seed": seed, "device": device, "country": country},
    }
    for group, table in given.items():
        if values := {key: value for key, value in table.items() if value is not None}:
            groups[group] = {**groups.get(group, {}), **values}
    if origin is not None:
        groups["origin"] = str(origin)
    resolved, output = make_recipe(change_settings(groups, settings or {})), Path(output)
    if resume and overwrite:
        raise ValueError("--resume continues a run and --overwrite replaces it: give one of them")
    if not overwrite and is_run(output):
        run.check_same(resolved, output, unfinished=resume)
        return run.resume(output, reporter=reporter, interrupted=interrupted)
    return run.start(resolved, output, overwrite=overwrite, reporter=reporter, interrupted=interrupted)


@suggest_keywords
def compare(
    text: Paths,
    *,
    output: str | Path,
    models: str | Sequence[str] = "ngram,nplm,lstm,gpt2",
    budget: str = "60s",
    tokenizer: str | Sequence[str] = (),
    size: str | None = None,
    match: str | None = None,
    seeds: int = 1,
    seed: int = 0,
    sweep: bool = False,
    prompt: str | None = None,
    valid: Paths | None = None,
    test: Paths | None = None,
    split: Sequence[float] | None = None,
    documents: str | None = None,
    settings: Mapping[str, Any] | None = None,
    csv: bool = False,
    overwrite: bool = False,
    watcher: Watcher | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Published:
    """Train models on the same text and budget, and rank them by their scores on test text.

    An interrupted comparison is continued by the same call. `settings` of training are the same for all models.

    >>> done = lmlab.compare("book.txt", output="compared", models=["ngram", "lstm", "gpt2"], budget="60s")
    >>> done.report
    """
    from lmlab.compare.comparison import compare as run_comparison
    from lmlab.compare.plan import make_conditions
    from lmlab.config import change_settings

    groups = change_settings({"train": {}}, settings or {})
    if set(groups) != {"train"}:
        raise ValueError("settings of a comparison are those of training (train.KEY), the same for all models")
    data = {"valid": _names(valid), "test": _names(test), "split": split, "documents": documents}
    conditions = make_conditions(
        _names(text) or [],
        models=models if isinstance(models, str) else ",".join(models),
        budget=budget,
        tokenizers=[tokenizer] if isinstance(tokenizer, str) else tokenizer,
        size=size,
        match=match,
        seeds=seeds,
        seed=seed,
        sweep=sweep,
        prompt=prompt,
        data={name: value for name, value in data.items() if value is not None},
        train=groups["train"],
    )
    return run_comparison(
        conditions, Path(output), overwrite=overwrite, csv=csv, watcher=watcher, interrupted=interrupted
    )


def _names(paths: Paths | None) -> list[str] | None:
    """Paths as a list of strings; None where there are none."""
    if paths is None or isinstance(paths, (str, Path)):
        return None if paths is None else [str(paths)]
    return [str(path) for path in paths] or None
