"""lmlab embed: texts as vectors, from any mix of a model's layers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.options import Device, NeuralRun, Overwrite, Truncate, Weights
from lmlab.cli.texts import check_outputs, read_lines
from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.analysis.embedding import TokenVectors


def embed(
    run: NeuralRun,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Texts, one per line ('-': standard input); pictures for clip.")
    ] = "-",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The .npy file to write.")] = None,
    layers: Annotated[str, typer.Option(help="Layers to combine: last, mix, sum:all, concat:-4: …")] = "last",
    pool: Annotated[str | None, typer.Option(help="One vector per text: cls, mean or max.")] = None,
    truncate: Truncate = False,
    carry_state: Annotated[
        bool, typer.Option("--carry-state", help="Keep a recurrent state from line to line.")
    ] = False,
    overwrite: Overwrite = False,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Batch size in tokens; affects only speed.")] = 4096,
    device: Device = "auto",
    weights: Weights = "fp32",
) -> None:
    """Write the vectors of texts or tokens to a NumPy file.

    Each line of the input is one text.

    Examples:

      lmlab embed runs/bert sentences.txt --pool mean -o sentences.npy

      lmlab embed runs/elmo sentences.txt --layers concat:all --pool mean -o sentences.npy

      lmlab embed runs/lstm - --layers concat:-2: -o tokens.npy < sentences.txt

      lmlab embed runs/clip FOLDER -o pictures.npy

    With --pool the array is \\[texts, width], a row for each line; that of an empty line is zero. Without --pool it is
    \\[tokens, width], all texts after each other, and a .json file next to it lists the tokens, their words, and where
    each text begins.

    --layers is last, first (the embeddings), second-to-last, a number, mix (the mean of all; mix:norm normalises each
    first, mix:0.2,0.3,0.5 with weights), or sum:, mean: or concat: with all, -4:, 1:3 or 0,2.

    A model of pictures and texts (clip) gives each picture of a folder, table or zip file, or each line of a text, one
    unit vector in one space; a .json file next to it lists their names.
    """
    from lmlab.analysis.embedding import find_pool
    from lmlab.cli.console import progress_bar
    from lmlab.cli.evaluate import can
    from lmlab.language_model import load
    from lmlab.layers.layer_mix import select_layers
    from lmlab.messages import TooLongError
    from lmlab.training.devices import choose_device

    if output is None or output.suffix != ".npy":
        given = "nothing" if output is None else output
        raise ValueError(f"-o {given}: say where to write the vectors, a name that ends in .npy: -o vectors.npy")
    listing = output.with_suffix(".json")
    if can(run, "pictures and texts") and pool is None and layers == "last":
        from lmlab.cli.picture_texts import embed_both

        check_outputs({"-o": output, "the list of names": listing}, inputs=[run, file], overwrite=overwrite)
        names, vectors = embed_both(run, file, device=device, weights=weights)
        _write(output, vectors)
        _write_names(listing, names)
        print(printable(f"wrote {output}: {len(names):,} x {vectors.shape[1]:,}\nwrote {listing}: their names"))
        return
    outputs = {"-o": output} | ({"the list of tokens": listing} if pool is None else {})
    check_outputs(outputs, inputs=[run, file], overwrite=overwrite)
    select_layers(layers)
    wanted = None if pool is None else find_pool(pool)
    found_device = choose_device(device)
    texts = read_lines(file)
    if not texts:
        raise ValueError(f"{file}: there is no line to embed")
    with progress_bar("embedding") as progress:
        model = load(run, device=found_device, weights=weights)
        options: dict[str, Any] = {
            "layers": layers,
            "truncate": truncate,
            "carry_state": carry_state,
            "batch_tokens": batch_tokens,
            "progress": progress,
        }
        try:
            if wanted is not None:
                vectors = model.embed(texts, pool=wanted, **options)
            else:
                found = model.embed(texts, **options)
        except TooLongError as error:
            raise ValueError(
                f"line {error.number} of {_name(file)} has {error.tokens:,} tokens, and the model reads at most "
                f"{error.most:,}: give --truncate to cut such lines, or put shorter texts on the lines"
            ) from None
    if empty := sum(not text.strip() for text in texts):
        what = "has a vector of zeros" if wanted is not None else "has no tokens and no vectors"
        print(f"note: {empty:,} of {len(texts):,} lines are empty; such a line {what}", file=sys.stderr)
    if wanted is not None:
        _write(output, vectors)
        print(
            printable(f"wrote {output}: {len(texts):,} texts x {vectors.shape[1]:,} (layers {layers}, pool {wanted})")
        )
    else:
        import numpy as np

        stacked = np.concatenate([each.vectors for each in found])
        _write(output, stacked)
        _write_listing(listing, found, layers=layers)
        lines = (
            f"wrote {output}: {len(stacked):,} tokens x {stacked.shape[1]:,} (layers {layers})\n"
            f"wrote {listing}: the tokens, their words and positions, and where each of {len(texts):,} texts begins"
        )
        print(printable(lines))


def _name(file: str) -> str:
    from lmlab.data.readers.text import STANDARD_INPUTS

    return "standard input" if file in STANDARD_INPUTS else file


def _write(path: Path, vectors: Any) -> None:
    """Write an array so that the file is whole or not there."""
    import numpy as np

    from lmlab.runs.storage import writing

    with writing(path) as new, open(new, "wb") as file:
        np.save(file, vectors, allow_pickle=False)
        file.flush()


def _write_names(path: Path, names: list[str]) -> None:
    import json

    from lmlab.runs.storage import write_bytes

    write_bytes(path, (json.dumps({"names": names}, ensure_ascii=False) + "\n").encode())


def _write_listing(path: Path, found: list[TokenVectors], *, layers: str) -> None:
    import json

    from lmlab.runs.storage import write_bytes

    start, texts = 0, []
    for each in found:
        texts.append(
            {
                "start": start,
                "text": each.text,
                "tokens": each.tokens,
                "words": each.words,
                "offsets": each.offsets,
            }
        )
        start += len(each.tokens)
    write_bytes(path, (json.dumps({"layers": layers, "texts": texts}, ensure_ascii=False) + "\n").encode())
