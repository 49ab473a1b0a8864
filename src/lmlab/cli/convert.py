"""lmlab convert: Hugging Face folders, ELMo's weights, ARPA files and word vectors to runs, and runs to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.messages import printable

FORMATS = ("huggingface", "arpa", "word2vec", "glove")


def convert(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="Run, Hugging Face or ELMo folder, ARPA file, word vectors."),
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Run directory, folder or file to write.")],
    to: Annotated[str | None, typer.Option(help="huggingface, arpa, word2vec or glove. (default: by model)")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer file or folder, where SOURCE has none.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace TARGET, if it was written by lmlab.")] = False,
) -> None:
    """Convert from and to Hugging Face checkpoints and ARPA files.

    The checkpoints are those of transformers; ARPA files hold the n-grams of KenLM and SRILM. An n-gram over anything
    but words is written with its tokenizer, TARGET.tokenizer.json, which is needed to read it again. A fine-tuned
    run is written with its head and label names, for instance as BertForSequenceClassification, and read with them.
    Of CTranslate2 the folders of Whisper models are read. Of ELMo the two published files are read, options.json and
    the HDF5 weights (pip install 'lmlab\\[elmo]').

    Examples:

      lmlab convert bert-base-uncased/ runs/bert

      lmlab convert runs/book book-hf/ --to huggingface

      lmlab convert runs/counts counts.arpa

      lmlab convert srilm.arpa.gz runs/srilm

      lmlab convert elmo-files/ runs/elmo

      lmlab convert faster-whisper-tiny.en/ runs/tiny.en

      lmlab convert runs/word2vec vectors.txt

      lmlab convert glove.6B.100d.txt runs/glove
    """
    if to is not None and to not in FORMATS:
        from lmlab.config import suggest

        raise ValueError(f"--to {to}: unknown format{suggest(to, FORMATS)}")
    if not source.exists():
        raise ValueError(f"{source} does not exist; give a run directory, a Hugging Face folder or an ARPA file")
    for read in (source, *([tokenizer] if tokenizer is not None else [])):
        if _same(read, target):
            other = "" if read == target else f" {read}, which is"
            raise ValueError(f"{target} is{other} read by this command; choose another name")
        if target.resolve() in read.resolve().parents:
            raise ValueError(f"{target} holds {read}, which is read by this command; choose another name")
    if _is_ctranslate2(source):
        from lmlab.interop.ctranslate2 import import_ctranslate2

        if to is not None or tokenizer is not None:
            raise ValueError(
                f"{source} has a model of CTranslate2, which becomes a run: leave out --to and --tokenizer"
            )
        import_ctranslate2(source, target, overwrite=overwrite)
        print(printable(f"wrote {target}"))
        return
    if tokenizer is not None and source.is_dir() and not _is_huggingface(source):
        raise ValueError(f"--tokenizer is for Hugging Face folders and ARPA files; {source} has its own")
    written = [target]
    if _is_elmo(source):
        if to is not None or tokenizer is not None:
            raise ValueError(f"{source} has ELMo's files, which become a run: leave out --to and --tokenizer")
        _from_elmo(source, target, overwrite)
    elif _is_huggingface(source):
        if to is not None:
            raise ValueError(f"{source} is a Hugging Face folder, which becomes a run: leave out --to {to}")
        _from_huggingface(source, target, tokenizer, overwrite)
    elif source.is_file() and not _is_arpa(source) and source.suffix in (".txt", ".vec"):
        from lmlab.interop.word_vector_runs import import_vectors

        if tokenizer is not None:
            raise ValueError(f"--tokenizer is for Hugging Face folders and ARPA files; {source} has its words")
        import_vectors(source, target, overwrite=overwrite)
    elif source.is_file():
        if source.suffix in (".safetensors", ".bin", ".json"):
            raise ValueError(f"{source} is one file of a model: give the folder that holds it, {source.parent}")
        _from_arpa(source, target, tokenizer, overwrite)
    elif (to or _format_of(source, target)) in ("word2vec", "glove"):
        from lmlab.interop.word_vector_runs import export_vectors

        export_vectors(source, target, header=to != "glove", overwrite=overwrite)
    elif (to or _format_of(source, target)) == "arpa":
        from lmlab.interop.arpa_runs import export_arpa

        written = export_arpa(source, target, overwrite=overwrite)
    else:
        _to_huggingface(source, target, overwrite)
    print(printable(f"wrote {' and '.join(map(str, written))}"))
    if line := _describe_boundary(target):
        print(line)


def _describe_boundary(run: Path) -> str:
    """What an imported run reads before a text, as its frame says."""
    if not (run / "frame.json").is_file():
        return ""
    from lmlab.runs.model_files import load_tokenizer
    from lmlab.tokenizers.boundary import describe_boundary
    from lmlab.tokenizers.frames import Frame

    tokenizer = load_tokenizer(run)
    return "" if tokenizer is None else describe_boundary(Frame.load(run), tokenizer)


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file or folder, by whatever links."""
    return one.exists() and other.exists() and one.samefile(other)


def _is_huggingface(path: Path) -> bool:
    """Whether a folder is none of ours: a run's config.json names its kind."""
    import json

    if not path.is_dir():
        return False
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a folder without one, which the reader will complain about
        return not (path / "recipe.json").is_file()
    return not (isinstance(config, dict) and "kind" in config)


def _is_ctranslate2(path: Path) -> bool:
    """Whether a folder has the model.bin of CTranslate2."""
    return (path / "model.bin").is_file() and not (path / "model.safetensors").is_file()


def _is_elmo(path: Path) -> bool:
    """Whether a folder has ELMo's options, and an HDF5 file or nothing else that makes a model."""
    if not path.is_dir() or not any(path.glob("*options.json")):
        return False
    return any((*path.glob("*.hdf5"), *path.glob("*.h5"))) or not (path / "config.json").is_file()


def _from_elmo(folder: Path, run: Path, overwrite: bool) -> None:
    from lmlab.interop.elmo import import_elmo

    import_elmo(folder, run, overwrite=overwrite)


def _format_of(run: Path, target: Path) -> str:
    """The format that a run is converted to by default."""
    from lmlab.runs.storage import read_json

    named = any(suffix in (".arpa", ".lm") for suffix in target.suffixes)
    if read_json(run / "config.json").get("kind") == "word2vec":
        return "word2vec"
    return "arpa" if named or read_json(run / "config.json").get("kind") == "ngram" else "huggingface"


def _is_arpa(path: Path) -> bool:
    from lmlab.interop.arpa import is_arpa

    return is_arpa(path)


def _from_huggingface(folder: Path, run: Path, tokenizer: Path | None, overwrite: bool) -> None:
    from lmlab.interop.huggingface import import_run
    from lmlab.tokenizers import Tokenizer

    import_run(folder, run, tokenizer=None if tokenizer is None else Tokenizer.load(tokenizer), overwrite=overwrite)


def _to_huggingface(run: Path, folder: Path, overwrite: bool) -> None:
    from lmlab.interop.huggingface import export_run

    export_run(run, folder, overwrite=overwrite)


def _from_arpa(path: Path, run: Path, tokenizer: Path | None, overwrite: bool) -> None:
    from lmlab.interop.arpa_runs import import_arpa
    from lmlab.tokenizers import Tokenizer

    import_arpa(path, run, tokenizer=None if tokenizer is None else Tokenizer.load(tokenizer), overwrite=overwrite)
