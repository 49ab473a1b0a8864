"""lmlab caption: the captions of pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.options import Batch, Beams, Device, Json, LengthPenalty, OutputFile, Overwrite
from lmlab.cli.texts import check_outputs
from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.decoding.captioner import Caption, PictureCaptioner


def caption(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a captioner.")],
    pictures: Annotated[list[Path], typer.Argument(metavar="PICTURE…", help="Pictures, or folders of pictures.")],
    beams: Beams = 1,
    length_penalty: LengthPenalty = 0.0,
    all_: Annotated[bool, typer.Option("--all", help="Show all beams with their log-probabilities.")] = False,
    attention: Annotated[
        Path | None, typer.Option(metavar="PAGE", help="Write a page: where the model looked for each word.")
    ] = None,
    output: OutputFile = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    batch: Batch = 32,
    device: Device = "auto",
) -> None:
    """Write what pictures show, and where the model looked.

    Examples:

      lmlab caption runs/scenes photo.png

      lmlab caption runs/scenes pictures/ --beams 5 --json

      lmlab caption runs/scenes photo.png --attention page.html

    Pictures are resized as in training. Reading them needs lmlab\\[vision]. The page shows each picture once for every
    word, darker where attention has less weight.
    """
    from lmlab.cli.console import progress_bar
    from lmlab.data.readers.pictures.decoding import read_picture
    from lmlab.data.readers.pictures.files import list_pictures
    from lmlab.files import write_bytes
    from lmlab.language_model import load
    from lmlab.training.devices import choose_device

    check_outputs({"-o": output, "--attention": attention}, inputs=[run, *pictures], overwrite=overwrite)
    captioner = load(run, device=choose_device(device)).captioner
    files = list_pictures(pictures)
    pixels = [captioner.processor.process(read_picture(file)) for file in files]
    with progress_bar("captioning") as progress:
        found = captioner.caption(pixels, beams=beams, length_penalty=length_penalty, batch=batch, progress=progress)
    lines = [_format(file, best, json_=json_, several=all_) for file, best in zip(files, found, strict=True)]
    if attention is not None:
        best = [captions[0] for captions in found]
        write_bytes(attention, attention_page(captioner, list(map(str, files)), pixels, best, model=run.name).encode())
        print(printable(f"wrote {attention}"), file=sys.stderr)
    if output is None:
        sys.stdout.write("".join(lines))
    else:
        write_bytes(output, "".join(lines).encode())
        print(printable(f"wrote {output}"), file=sys.stderr)


def _format(file: Path, found: list[Caption], *, json_: bool, several: bool) -> str:
    """The captions of a picture as a line of text, as several lines, or as a line of JSON."""
    if json_:
        import json

        best = [{"text": each.text, "log_probability": each.log_probability} for each in found]
        return json.dumps({"picture": str(file), "caption": found[0].text, "beams": best}, ensure_ascii=False) + "\n"
    if several:
        lines = "".join(f"  {each.log_probability:8.3f}  {each.text}\n" for each in found)
        return printable(f"{file}\n{lines}")
    return printable(f"{file}: {found[0].text}\n")


def attention_page(
    captioner: PictureCaptioner, names: list[str], pixels: list[Any], captions: list[Caption], *, model: str
) -> str:
    """The page of pictures that are drawn once for each word of their captions."""
    from lmlab.pages.figures.pictures import PictureHeatmap
    from lmlab.pages.views import CaptionedPicture, to_captions_page

    shown = []
    for name, picture, each in zip(names, pixels, captions, strict=True):
        looks = captioner.attention(picture, each)
        words = [PictureHeatmap(look.word, picture, look.weights.tolist()) for look in looks]
        shown.append(CaptionedPicture(name, each.text, [PictureHeatmap("the picture", picture), *words]))
    return str(to_captions_page(shown, model=model))
