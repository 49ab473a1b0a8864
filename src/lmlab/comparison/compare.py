"""`lmlab.compare`: train models on the same text and budget, as the command line does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.messages import suggest_keywords
from lmlab.runs.train import Paths, path_names

if TYPE_CHECKING:
    from lmlab.comparison.folder import Published
    from lmlab.comparison.runner import Watcher


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
    processes: int = 1,
    watcher: Watcher | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Published:
    """Train models on the same text and budget, and rank them by their scores on test text.

    An interrupted comparison is continued by the same call. `settings` of training and of the data are the same for
    all models. `processes` of them are trained at the same time, each with its share of the threads; a program that
    gives more than 1 calls this under `if __name__ == "__main__":`.

    >>> done = lmlab.compare("book.txt", output="compared", models=["ngram", "lstm", "gpt2"], budget="60s")
    >>> done.report
    """
    from lmlab.comparison.folder import run_comparison
    from lmlab.comparison.plan import make_conditions
    from lmlab.config import change_settings

    groups = change_settings({"train": {}, "data": {}}, settings or {})
    if set(groups) != {"train", "data"}:
        raise ValueError("settings of a comparison are train.KEY and data.KEY, the same for all models")
    data = {"valid": path_names(valid), "test": path_names(test), "split": split, "documents": documents}
    conditions = make_conditions(
        path_names(text) or [],
        models=models if isinstance(models, str) else ",".join(models),
        budget=budget,
        tokenizers=[tokenizer] if isinstance(tokenizer, str) else tokenizer,
        size=size,
        match=match,
        seeds=seeds,
        seed=seed,
        sweep=sweep,
        prompt=prompt,
        data={**{name: value for name, value in data.items() if value is not None}, **groups["data"]},
        train=groups["train"],
    )
    return run_comparison(
        conditions,
        Path(output),
        overwrite=overwrite,
        csv=csv,
        processes=processes,
        watcher=watcher,
        interrupted=interrupted,
    )
