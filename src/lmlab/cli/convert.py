"""lmlab convert: n-gram models to and from ARPA files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[Path, typer.Argument(help="A run directory of an n-gram, or an ARPA file (also .gz).")],
    target: Annotated[Path, typer.Argument(help="An ARPA file to write, or a run directory to make.")],
) -> None:
    """Move n-gram models between lmlab and the ARPA files of KenLM and SRILM.

    Examples:

      lmlab convert runs/counts counts.arpa

      lmlab convert srilm.arpa.gz runs/srilm
    """
    if target.exists():
        raise ValueError(f"{target} exists already; choose another name, or remove it first")
    if source.is_dir():
        _to_arpa(source, target)
    else:
        _from_arpa(source, target)
    print(f"wrote {target}")


def _to_arpa(run: Path, path: Path) -> None:
    from lmlab.checkpoint import load_model
    from lmlab.interop.arpa import write_arpa
    from lmlab.models.ngram import NGram

    model, tokenizer = load_model(run)
    if not isinstance(model, NGram):
        raise ValueError(f"{run} holds no n-gram, and only n-grams can be written as ARPA files")
    write_arpa(model, path, words=[tokenizer.engine.id_to_token(token) or "" for token in range(tokenizer.vocabulary)])


def _from_arpa(path: Path, run: Path) -> None:
    from lmlab.checkpoint import write_config, write_manifest, write_tensors
    from lmlab.interop.arpa import read_arpa
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.engines import numbered_word_engine

    model, words = read_arpa(path)
    engine = numbered_word_engine(words, boundary=model.config.boundary)
    run.mkdir(parents=True)
    Tokenizer(engine).save(run / "tokenizer.json")
    write_tensors(run / "model.safetensors", model.tensors())
    write_config(run, "ngram", model.config.model_dump())
    write_manifest(run)
