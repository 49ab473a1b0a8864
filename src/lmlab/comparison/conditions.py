"""conditions.json: what a comparison was asked for, its text in figures, the versions and the machine."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmlab import __version__
from lmlab.comparison.plan import Conditions, matched_parameters, read_fingerprints
from lmlab.comparison.shared_test_data import TestText
from lmlab.config import build
from lmlab.costs.countries import find_grid
from lmlab.data.corpora.corpus import Corpus
from lmlab.runs.run_files import CONDITIONS, LOCK, OtherSettingsError
from lmlab.runs.storage import read_json, write_json
from lmlab.runs.upgrade import upgrade_saved


def check_folder(conditions: Conditions, folder: Path) -> None:
    """The folder is new, or holds this very comparison."""
    if not folder.exists() or (folder.is_dir() and all(entry.name == LOCK for entry in folder.iterdir())):
        return
    if not (folder / CONDITIONS).is_file():
        raise ValueError(f"{folder} exists and is not a comparison; choose another -o")
    before, now = read_conditions(folder).model_dump(), conditions.model_dump()
    if changed := describe_changes(before, now):
        raise OtherSettingsError(folder, ["; ".join(changed)])


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two sets of conditions, in words: `budget was 60s, now 5min`."""
    changes = []
    for name, (old, new) in _flat(before, now).items():
        left_or_came = name.startswith("tokenizers.") and None in (old, new)  # its system did
        if old != new and not left_or_came:
            changes.append(f"{_option_name(name)} was {_format_value(old)}, now {_format_value(new)}")
    return changes


def _flat(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Both values of each condition; those of a group are listed one by one."""
    pairs: dict[str, tuple[Any, Any]] = {}
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            pairs |= {f"{name}.{key}": (old.get(key), new.get(key)) for key in {**old, **new}}
        else:
            pairs[name] = old, new
    return pairs


def _option_name(name: str) -> str:
    """A condition as its option is called."""
    group, dot, key = name.partition(".")
    if group == "tokenizers" and dot:
        return f"tokenizer of {key}"
    return key if group == "data" and dot else {"systems": "models"}.get(name, name)


def _format_value(value: Any) -> str:
    if value is None or value == []:
        return "not given"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) < 120 else f"{text[:120]}…"


def read_conditions(folder: Path) -> Conditions:
    """The conditions of the comparison in a folder."""
    if not (folder / CONDITIONS).is_file():
        raise ValueError(
            f"{folder} is not a comparison: it has no {CONDITIONS} (make one with: lmlab compare TEXT -o {folder})"
        )
    values = upgrade_saved(read_json(folder / CONDITIONS))
    return build(
        Conditions, {name: values[name] for name in Conditions.model_fields if name in values}, where=CONDITIONS
    )


def describe_conditions(
    conditions: Conditions, corpora: Mapping[str, Corpus], folder: Path, *, part: TestText
) -> dict[str, Any]:
    """Write and give `conditions.json`; `part` is what of the test text pseudo-log-likelihoods are computed on."""
    import numpy
    import tokenizers
    import torch

    corpus = next(iter(corpora.values()))
    splits = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
    grid = find_grid(conditions.train.get("country"))
    path = folder / CONDITIONS
    before = read_json(path) if path.is_file() else {}
    if before and before["text_sha256"] != corpus.text_fingerprint:
        raise ValueError(
            f"the text of {folder} has changed since the comparison began; start a new one with another -o"
        )
    described = {
        **conditions.model_dump(),
        "text_sha256": corpus.text_fingerprint,
        "text": {name: split.sizes() for name, split in splits.items() if split is not None},
        "part": {"documents": len(part.texts), "bytes": int(part.sizes.sum())},
        "vocabularies": {spec: _vocabulary(each) for spec, each in corpora.items()},
        "lossy": {spec: each.loses(each.test) for spec, each in corpora.items()},
        "fingerprints": read_fingerprints(conditions, corpora),
        "matched_parameters": matched_parameters(conditions, corpora),
        "versions": {
            "lmlab": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "grid": f"{grid.grams_per_kwh:g} g/kWh ({grid.name}; {grid.source})",
        "added": before.get("added", []),
    }
    if before and before["versions"] != described["versions"]:
        warnings.warn(
            f"{folder} was begun with other versions ({before['versions']}): figures may differ", stacklevel=2
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, described)
    return described


def _vocabulary(corpus: Corpus) -> int:
    tokenizer = corpus.token_processor
    return 0 if tokenizer is None else tokenizer.vocabulary


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or sys.platform
