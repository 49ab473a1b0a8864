"""The files that lmlab writes into a run directory: nothing else there is ever removed."""

from __future__ import annotations

import shutil
from pathlib import Path

OWN = {
    *(
        "config.json",
        "tokenizer.json",
        "source_tokenizer.json",
        "frame.json",
        "recipe.json",
        "task.json",
        "manifest.json",
    ),
    *("model.safetensors", "head.safetensors", "metrics.jsonl", "progress.json", "average.json", "README.md"),
    *("last", "last.new", "previous", "checkpoints", "tensorboard"),
    *("scores.json", "predictions.jsonl", "report.html", "beside"),
}
"""What lmlab writes into a run directory."""


def clear(path: Path) -> None:
    """Remove what lmlab wrote into a run directory, and nothing else that is there."""
    temporary = {f".{name}.{kind}" for name in OWN for kind in ("new", "staged")}
    for entry in path.iterdir():
        if entry.name not in OWN and entry.name not in temporary:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def is_fresh(path: Path) -> bool:
    """Whether a folder is empty, or holds only what a run that was killed at its very start has left there.

    Such a run has left its lock. Without one, a file with the name of one of ours is the user's.
    """
    entries = {entry.name for entry in path.iterdir()} if path.is_dir() else {""}
    begun = {"tokenizer.json", "source_tokenizer.json", "frame.json", "config.json"}
    temporary = {f".{name}.new" for name in (*begun, "recipe.json", "manifest.json")}
    return not entries or (".lock" in entries and entries <= {".lock", *begun, *temporary})


def remove_begun(path: Path, created: bool) -> None:
    """Remove what was written of a run that cannot be resumed, as nothing of it was learnt."""
    if not (path / "last").exists() and not (path / "model.safetensors").exists():
        clear(path)
        if created and not [entry for entry in path.iterdir() if entry.name != ".lock"]:
            shutil.rmtree(path, ignore_errors=True)
