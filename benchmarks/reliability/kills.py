"""Training that is killed with SIGKILL at random times, and resumed, ends with the same bits as any other."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.reliability.families import FAMILIES, small_recipe, write_texts
from benchmarks.reliability.figures import Figure, Scale, shorten
from benchmarks.reliability.processes import Child, now
from benchmarks.reliability.processes import run as run_child

QUICK = ("gpt2", "ngram")
FILES = ("model.safetensors", "last/model.safetensors", "last/training.safetensors", "tokenizer.json", "config.json")
"""The weights, the optimizer with the random numbers, and what a model is loaded with."""
TIMES = ("cost", "seconds", "training_cost", "validation_seconds", "metrics_bytes", "metrics_sha256", "energy_method")
"""What differs between two runs with the same bits: how long they took."""


def train(recipe: Any, path: Path) -> None:
    """What `lmlab train --resume` does: go on with a run, or start it."""
    from lmlab.runs import run

    warnings.simplefilter("ignore")
    if (path / "recipe.json").is_file():
        run.resume(path)
    else:
        run.start(recipe, path)


def result_of(path: Path) -> dict[str, Any]:
    """Hashes of the files of a run, its progress and its metrics, without times."""
    found: dict[str, Any] = {}
    for name in FILES:
        if (path / name).is_file():
            found[name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    for name in ("progress.json", "last/progress.json"):
        if (path / name).is_file():
            found[name] = _without_times(json.loads((path / name).read_text()))
    lines = (path / "metrics.jsonl").read_text().splitlines() if (path / "metrics.jsonl").is_file() else []
    found["metrics"] = [_without_times(json.loads(line)) for line in lines]
    return found


def _without_times(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in TIMES}


def kills(scale: Scale) -> Iterator[Figure]:
    """SIGKILL at times that are uniform over the time that is left, resumed until the run has ended."""
    folder = scale.fresh("kills")
    os.environ.setdefault("LMLAB_CACHE", str(folder / "cache"))
    texts = write_texts(folder)
    kept, wrong = scale.folder / "kills.json", list[str]()
    done = json.loads(kept.read_text()) if kept.exists() and not scale.quick else {}
    counts = {"kills": 0, "runs": 0}
    families = QUICK if scale.quick else FAMILIES
    for kind in families:
        found = done.get(kind) or _kill_family(kind, texts, folder / kind, scale)
        done[kind] = dict(found)
        if not scale.quick:
            kept.write_text(json.dumps(done, indent=1))
        shutil.rmtree(folder / kind, ignore_errors=True)
        wrong += [f"{kind}: {each}" for each in found.pop("wrong")]
        for name, value in found.items():
            counts[name] += value
    yield Figure(
        "kill -9 at random times",
        counts["kills"],
        f"{counts['kills']} kills in {counts['runs']} runs of {len(families)} systems; weights, optimizer, random "
        "numbers, progress and metrics equal to runs that were not killed, bit for bit",
        shorten(wrong),
    )


def _kill_family(kind: str, texts: Path, folder: Path, scale: Scale) -> dict[str, Any]:
    folder.mkdir()
    recipe, random = small_recipe(kind, texts), scale.random("kills", kind)
    wanted = scale.count(2, 6)
    run_child(lambda: train(recipe, folder / "first"), log=folder / "first.log")  # fills the cache
    started = now()
    whole = run_child(lambda: train(recipe, folder / "whole"), log=folder / "whole.log")
    seconds = now() - started
    if whole.status != 0:
        return {"kills": 0, "runs": 0, "wrong": [f"could not be trained: {whole.said()[-500:]}"]}
    expected, done, runs, wrong = result_of(folder / "whole"), 0, 0, []
    while done < wanted:
        path, runs = folder / f"run{runs}", runs + 1
        while True:
            child = Child(lambda path=path: train(recipe, path), log=folder / "run.log")  # type: ignore[misc]
            status = child.wait(random.uniform(0, seconds))
            if status is None and done < 3 * wanted:
                status = child.kill(signal.SIGKILL)
                done += status == -signal.SIGKILL
            elif status is None:
                status = child.wait()
            if status == -signal.SIGKILL:
                continue
            if status != 0:
                wrong.append(f"resuming failed with status {status}: {child.said()[-500:]}")
            break
        if wrong:
            break
        found = result_of(path)
        wrong += [f"{name} differs after kills" for name in expected if found.get(name) != expected[name]]
    return {"kills": done, "runs": runs, "wrong": wrong}
