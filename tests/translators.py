"""Tiny translators with random weights, as run directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from lmlab.models import load_class
from lmlab.runs.model_files import model_tensors, write_config
from lmlab.runs.storage import write_manifest, write_tensors
from lmlab.tokenizers import train

ENGLISH = "the cat sat on the mat .\na dog ran to the log .\nthe dog and a cat sat .\na mat and a log ran .\n" * 6
GERMAN = "die katze sass auf der matte .\nein hund lief zum baum .\nder hund und eine katze sassen .\n" * 6
SIZE: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "inner": 24, "dropout": 0.0}


def write_translator(
    folder: Path,
    *,
    kind: str = "transformer",
    spec: str = "words",
    source_spec: str | None = None,
    reverse: bool = False,
    seed: int = 0,
    size: dict[str, Any] = SIZE,
    **settings: Any,
) -> Path:
    """A run directory of an untrained translator whose weights are large enough for texts to differ."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train(spec, [GERMAN] if source_spec else [ENGLISH, GERMAN])
    tokenizer.save(folder / "tokenizer.json")
    fields: dict[str, Any] = {"vocabulary": tokenizer.vocabulary, **size, **settings}
    if source_spec is not None:
        source = train(source_spec, [ENGLISH])
        source.save(folder / "source_tokenizer.json")
        fields["source_vocabulary"] = source.vocabulary
    if reverse:
        (folder / "recipe.json").write_text(json.dumps({"objective": {"kind": "seq2seq", "reverse_source": True}}))
    cls = load_class(kind)
    config = cls.Config(**fields)
    torch.manual_seed(seed)
    model = cls(config)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=0.5)
    write_config(folder, kind, config.model_dump())
    write_tensors(folder / "model.safetensors", model_tensors(model))
    write_manifest(folder)
    return folder
