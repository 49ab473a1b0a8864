"""The entry of a run in the list: its system, abilities, text, score, notes and status, read without its weights."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from lmlab.files import is_alive
from lmlab.models import LINEAGE, System
from lmlab.runs.run_files import LOCK, NOTES
from lmlab.runs.upgrade import upgrade_task
from lmlab.studio.notes import read_note
from lmlab.studio.run_files import UnreadableError, is_number, read, read_strictly, read_tail

WEIGHTS, METRICS = "model.safetensors", "metrics.jsonl"
BOARD, CONDITIONS = "leaderboard.json", "conditions.json"
"""Files of a comparison, beside its runs."""
WITHOUT_TEXT = {"captions", "episodes", "images", "notes", "speech"}
"""Kinds of data whose runs cannot read a text alone."""
WITH_TEXT = {"next token", "target text", "vectors", "pairs"}
"""Abilities of systems that the views use with a text."""
READ = ("config.json", "task.json", "recipe.json", "frame.json", METRICS, NOTES, WEIGHTS)
"""Files of a run on which its entry depends."""
UNKNOWN = ("kind", "year", "paper", "summary", "task", "how", "window", "heads", "parameters", "valid", "score", "text")
"""Fields of the entry of a run that is unreadable, all null."""
SCORES = (("valid_bits_per_byte", "bits per byte", False), ("valid_accuracy", "accuracy", True))
"""Scores on validation data: the key in the metrics, the unit, and whether higher is better; the first is preferred."""
LOSS = ("valid_loss", "nats per prediction", False)
"""The score of runs that have none of these."""


def describe(name: str, path: Path, *, board: Path | None = None) -> dict[str, Any]:
    """The entry of a run, without its status; `board` is the leaderboard of the comparison that it may belong to.

    Damaged JSON is found here. Weights that are cut off or not finite are found only when the run is loaded.
    """
    recipe, _ = read_strictly(path / "recipe.json"), read_strictly(path / "frame.json")
    config, tuned = read_strictly(path / "config.json"), upgrade_task(read_strictly(path / "task.json"))
    kind, settings = config.get("kind"), config.get("model")
    if not all(isinstance(value, str) for value in (kind, tuned.get("kind", ""), tuned.get("method") or "")):
        raise UnreadableError("config.json or task.json is damaged: the kind of model or of task is not a name")
    system, task = LINEAGE.get(str(kind)), tuned.get("kind")
    sizes = settings if isinstance(settings, dict) else {}
    metrics = read_tail(path / METRICS)
    score = find_score(metrics, _test_score(board, path.name) if board else None)
    return {
        "name": name,
        "kind": kind,
        "year": system.year if system else None,
        "paper": system.paper if system else None,
        "summary": system.summary if system else None,
        "does": _abilities(recipe, system, task),
        "pictures": isinstance(sizes.get("image"), list) and "patch" in sizes,
        "task": task,
        "how": tuned.get("method"),
        **{size: value if isinstance(value := sizes.get(size), int) else None for size in ("window", "heads")},
        "parameters": _count_parameters(metrics),
        "valid": score["value"] if score and score["unit"] == "bits per byte" else None,
        "score": score,
        "text": describe_text(recipe),
        "note": read_note(path),
    }


def _abilities(recipe: dict[str, Any], system: System | None, task: str | None) -> list[str]:
    """What the views may ask of a run; what they ask with a text is left out for runs that read something else."""
    does = list(system.does) if system and task is None else ["vectors"]
    data = recipe.get("data")
    kind = data.get("kind") if isinstance(data, dict) else None
    kinds = (kind,) if isinstance(kind, str) else system.reads if system else ()
    if not kinds or set(kinds) - WITHOUT_TEXT:
        return does
    return [each for each in does if each not in WITH_TEXT]


def unreadable(name: str, why: str) -> dict[str, Any]:
    """The entry of a damaged run."""
    empty: dict[str, Any] = {**dict.fromkeys(UNKNOWN), "does": [], "weights": False, "note": ""}
    return {"name": name, **empty, "status": "unreadable", "why": why}


def describe_text(recipe: dict[str, Any]) -> dict[str, Any] | None:
    """The names of the files that a run was trained on, and the start of their SHA-256; None if neither is known."""
    data, hashed = recipe.get("data"), recipe.get("text_sha256")
    names: list[str] = []
    for key in ("given", "text", "source", "target", "pairs", "examples", "files"):
        given = data.get(key) if isinstance(data, dict) else None
        names = [each for each in ([given] if isinstance(given, str) else given or []) if isinstance(each, str)]
        if names:
            break
    if isinstance(data, dict) and not names and isinstance(data.get("kind"), str):
        names = [data["kind"]]
    short = ", ".join(Path(each).name or each for each in names[:3]) + (" …" if len(names) > 3 else "")
    same = hashed[:16] if isinstance(hashed, str) else ""
    return {"name": short[:200], "id": same} if short or same else None


def find_score(metrics: list[dict[str, Any]], test: float | None) -> dict[str, Any] | None:
    """The best score of a run on its validation data, beside its bits per byte on the test data if they are known."""
    for key, unit, higher in (*SCORES, LOSS):
        known: list[Any] = [line.get(key) for line in metrics]
        values = [float(value) for value in known if is_number(value)]
        if values:
            best = max(values) if higher else min(values)
            own = test if unit == "bits per byte" else None
            return {"value": best, "unit": unit, "higher": higher, "test": own}
    return None


def _test_score(board: Path, name: str) -> float | None:
    """The bits per byte of a run on the test text, from the leaderboard of the comparison that it belongs to."""
    entries = read(board).get("entries")
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict):
            continue
        runs, score = entry.get("run"), entry.get("bits_per_byte")
        if runs in ([name], name) and isinstance(score, float):
            return score
    return None


def _count_parameters(metrics: list[dict[str, Any]]) -> Any:
    counted = metrics[-1].get("parameters") if metrics else None
    total = counted.get("total") if isinstance(counted, dict) else None
    return total if is_number(total) else None


def status(path: Path) -> str:
    """`training`, `ready` (it has weights) or `begun`."""
    holder = read(path / LOCK)
    pid = holder.get("pid")
    if holder.get("host") == platform.node() and isinstance(pid, int) and is_alive(pid):
        return "training"
    return "ready" if (path / WEIGHTS).is_file() else "begun"
