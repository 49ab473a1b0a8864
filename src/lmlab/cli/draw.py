"""lmlab draw: pictures from a run that has learnt pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.options import Device, MinP, Overwrite, Run, SamplingSeed, Temperature, TopK, TopP
from lmlab.cli.texts import check_outputs
from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.decoding.painter import Painter
    from lmlab.decoding.sampling import Sampling
    from lmlab.tokenizers.processors.pictures import PixelArray


def draw(
    run: Run,
    given: Annotated[list[Path] | None, typer.Option(help="Picture to complete; repeatable.")] = None,
    caption: Annotated[
        list[str] | None, typer.Option(help="Caption to draw, of a run with captions; repeatable.")
    ] = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="Complete pictures that were held out.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Number of held-out pictures.")] = 4,
    rows: Annotated[int | None, typer.Option(min=0, help="Rows of pixels to keep. (default: the upper half)")] = None,
    count: Annotated[
        int | None, typer.Option("-n", "--count", min=1, help="Number of samples, or completions of each. (16 or 6)")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG file to write.")] = Path("drawn.png"),
    scale: Annotated[int | None, typer.Option(min=1, max=64, help="Size of a pixel in the PNG file.")] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: SamplingSeed = 0,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Draw pictures with a run: samples, or completions of pictures.

    Examples:

      lmlab draw runs/digits -o samples.png

      lmlab draw runs/digits --held-out -o completions.png

      lmlab draw runs/digits --given seven.png --rows 10 --count 8 --temperature 0.9 -o completed.png

      lmlab draw runs/everything --caption "a large red circle in the centre" -o circle.png

    The run has learnt pictures as pixels: lmlab train gpt2 PICTURES --tokenizer pixels:16 -o RUN. Without a picture
    the file shows a grid of samples. With pictures, each line shows the original in the levels of the run, the rows
    that are kept, and the completions. Held-out pictures are those that the run was not trained on.

    A run of pictures with captions (lmlab train gpt2 captions=TABLE -o RUN) draws captions: those that are given, those
    of held-out pictures, each beside its original, or those that it writes first.
    """
    from lmlab.cli.console import progress_bar
    from lmlab.decoding.sampling import Sampling
    from lmlab.language_model import load
    from lmlab.pages.figures.picture_grid import save_grid
    from lmlab.training.devices import choose_device

    check_outputs({"--output": output}, inputs=[run, *(given or [])], overwrite=overwrite)
    if output.suffix.lower() != ".png":
        raise ValueError(f"--output {output}: give a name that ends with .png")
    if rows is not None and not given and not held_out:
        raise ValueError("--rows keeps rows of a picture: give --given PICTURE or --held-out, too")
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    painter = load(run, device=choose_device(device)).painter
    painter.check(captions=bool(caption), pictures=bool(given) or rows is not None)
    if painter.captioned is not None:
        drawn_texts = _draw_captions(painter, run, caption, limit if held_out else 0, count, sampling)
        save_grid([row for _, row in drawn_texts], output, scale=scale)
        for number, (text, row) in enumerate(drawn_texts):
            drawn_count = len(row) - (held_out and number >= len(caption or []))  # beside the original
            typer.echo(f"{drawn_count} {'picture' if drawn_count == 1 else 'pictures'}: {printable(text)}")
        typer.echo(f"{output}: {painter.pixels.size_in_words}")
        return
    painter.given_tokens(rows)
    pictures = [*_read(given or []), *(_read_held_out(run, painter, limit) if held_out else [])]
    with progress_bar("drawing") as progress:
        if not pictures:
            drawn = painter.draw(count=count or 16, sampling=sampling, report=progress)
            table = [drawn[start : start + 8] for start in range(0, len(drawn), 8)]
        else:
            table = []
            for number, picture in enumerate(pictures):
                own = replace(sampling, seed=seed + number)
                made = painter.draw(picture, rows=rows, count=count or 6, sampling=own, report=progress)
                original = painter.pixels.decode(painter.pixels.encode(picture))
                table.append([original, painter.hide(picture, rows=rows), *made])
    save_grid(table, output, scale=scale)
    what = f"{len(pictures)} pictures completed" if len(pictures) > 1 else "1 picture completed"
    typer.echo(f"{output}: {what if pictures else f'{len(drawn)} samples'} at {painter.pixels.size_in_words}")


def _draw_captions(
    painter: Painter, run: Path, captions: list[str] | None, held_out: int, count: int | None, sampling: Sampling
) -> list[tuple[str, list[PixelArray]]]:
    """Captions with their pictures: given ones, those of held-out pictures with the originals, or written ones."""
    from lmlab.cli.console import progress_bar
    from lmlab.runs.held_out import held_out_items

    with progress_bar("drawing") as progress:
        if not captions and not held_out:
            written = painter.draw_captions(None, count=count or 4, sampling=sampling, report=progress)
            return [(each.caption, [each.picture]) for each in written]
        assert painter.captioned is not None, "the run has learnt captions"
        items = held_out_items(run, held_out, kind="captions") if held_out else []
        originals = [painter.captioned.decode(each.tolist()) for each in items]
        texts = [*(captions or []), *(text for text, _ in originals)]
        first = [*([] for _ in captions or []), *([picture] for _, picture in originals)]
        each = count or 6
        drawn = painter.draw_captions(texts, count=each, sampling=sampling, report=progress)
        made = [[one.picture for one in drawn[start : start + each]] for start in range(0, len(drawn), each)]
        return [(text, [*before, *row]) for text, before, row in zip(texts, first, made, strict=True)]


def _read(paths: list[Path]) -> list[PixelArray]:
    from lmlab.data.readers.pictures.decoding import read_picture

    return [read_picture(path) for path in paths]


def _read_held_out(run: Path, painter: Painter, count: int) -> list[PixelArray]:
    """The first pictures that a run has not learnt from."""
    from lmlab.runs.held_out import held_out_items

    items = held_out_items(run, count, kind=painter.pixels.reads)
    return [painter.pixels.decode(ids.tolist()) for ids in items]
