"""lmlab translate: from a source text to a target text, line by line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.options import (
    Batch,
    Beams,
    Device,
    LengthPenalty,
    NoRepeat,
    OutputFile,
    Overwrite,
    Text,
    Trace,
    Truncate,
    Weights,
)
from lmlab.cli.texts import check_outputs, read_lines
from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.decoding.translator import Translation, Translator
    from lmlab.language_model import LanguageModel


def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a translator.")],
    file: Annotated[str, typer.Argument(help="Source sentences, one per line; '-' reads standard input.")] = "-",
    text: Text = None,
    beams: Beams = 5,
    nbest: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Print N translations: index ||| text ||| score.")
    ] = None,
    length_penalty: LengthPenalty = 0.6,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of tokens to generate. (default: 3 x source + 16)")
    ] = None,
    shortest: Annotated[int, typer.Option(min=0, help="Minimum number of tokens to generate.")] = 0,
    no_repeat: NoRepeat = 0,
    longest: Annotated[int, typer.Option(min=1, help="Maximum number of tokens of a source line.")] = 1024,
    truncate: Truncate = False,
    alignments: Annotated[
        str | None, typer.Option(metavar="OUT", help="Plot the attention to the source: .html or .png.")
    ] = None,
    layer: Annotated[int, typer.Option(help="Decoder block of --alignments, from 0; -1: last.")] = -1,
    head: Annotated[int | None, typer.Option(min=0, help="Head of --alignments, from 0. (default: mean)")] = None,
    trace: Trace = None,
    output: OutputFile = None,
    overwrite: Overwrite = False,
    batch: Batch = 32,
    device: Device = "auto",
    weights: Weights = "fp32",
) -> None:
    """Translate a file line by line, with beam search.

    Examples:

      lmlab translate runs/en-de test.en -o test.de

      echo "A man rides a bicycle." | lmlab translate runs/en-de --beams 3 --trace search.html

      lmlab translate runs/en-de test.en --nbest 5 --alignments attention.html

    Lines keep their order, and an empty line gives an empty line. A line longer than --longest is an error,
    unless --truncate. PNG needs lmlab\\[report].
    """
    from lmlab.cli.console import progress_bar
    from lmlab.cli.trace import check_trace, write_trace
    from lmlab.language_model import load
    from lmlab.messages import TooLongError
    from lmlab.pages.search_tree import SearchTree
    from lmlab.training.devices import choose_device

    check_trace(trace, beams=beams)
    _check_alignments(alignments, layer=layer, head=head)
    outputs = {"-o": output, "--trace": trace, "--alignments": alignments}
    check_outputs(outputs, inputs=[run, file if not text else None], overwrite=overwrite)
    if nbest is not None and nbest > beams:
        raise ValueError(f"--nbest {nbest} with --beams {beams}: a search gives at most as many texts as beams")
    if text and file != "-":
        raise ValueError(f"{file} and --text: give either a file or texts")
    lines = list(text) if text else read_lines(file)
    if not lines:
        raise ValueError(f"{file}: there is no line to translate")
    if alignments is not None and alignments.endswith(".png"):
        drawings = {f"--alignments, line {n + 1}": _picture(Path(alignments), n, lines) for n in range(len(lines))}
        check_outputs(drawings, inputs=[run, file if not text else None], overwrite=overwrite)
    trees: list[SearchTree] = []
    with progress_bar("translating") as progress:
        model = load(run, device=choose_device(device), weights=weights)
        if alignments is not None:
            model.alignments("", "", layer=layer, head=head)  # says before the search what cannot be drawn
        translator = model.translator
        if truncate:
            lines = _cut(translator, lines, longest)
        try:
            translator.source_rows(lines, longest=longest)
        except TooLongError as error:
            larger = f", or allow more with --longest {error.tokens}" if error.most == longest else ""
            raise ValueError(
                f"line {error.number} has {error.tokens:,} tokens, and at most {error.most:,} are translated: put one "
                f"sentence on a line, cut such lines with --truncate{larger}"
            ) from None
        found = translator.translate(
            lines,
            longest=longest,
            beams=beams,
            length_penalty=length_penalty,
            tokens=tokens,
            shortest=shortest,
            no_repeat=no_repeat,
            batch=batch,
            trace=trees.append if trace is not None else None,
            progress=progress,
        )
    if trace is not None:
        write_trace(trees, trace, model=run.name)
    if alignments is not None:
        _draw(model, lines, found, Path(alignments), layer, head, run.name)
    content = "".join(f"{line}\n" for line in _lines(found, nbest))
    if output is None:
        sys.stdout.write(content)
    else:
        from lmlab.runs.storage import write_bytes

        write_bytes(output, content.encode())
        print(printable(f"wrote {output}"), file=sys.stderr)


def _cut(translator: Translator, lines: list[str], longest: int) -> list[str]:
    """Return the lines; those that are too long are cut, with a warning."""
    short = translator.shorten(lines, longest=longest)
    for number, (line, cut) in enumerate(zip(lines, short, strict=True), start=1):
        if len(cut) < len(line.strip()):
            print(f"warning: line {number} is cut after {cut[-40:]!r}; the rest is not translated", file=sys.stderr)
    return short


def _lines(found: Sequence[Sequence[Translation]], nbest: int | None) -> list[str]:
    if nbest is None:
        return [each[0].text if each else "" for each in found]
    return [
        f"{index} ||| {translation.text} ||| {translation.score:.4f}"
        for index, each in enumerate(found)
        for translation in each[:nbest]
    ]


def _check_alignments(where: str | None, *, layer: int, head: int | None) -> None:
    if where is None:
        if head is not None or layer != -1:
            raise ValueError("--layer and --head choose what --alignments draws: give --alignments OUT, too")
        return
    if Path(where).suffix not in (".html", ".png"):
        raise ValueError(f"--alignments {where}: end the name with .html (a page) or .png (pictures)")
    if where.endswith(".png"):
        from importlib.util import find_spec

        if find_spec("matplotlib") is None:
            raise ValueError(f"--alignments {where}: PNG needs matplotlib: pip install 'lmlab[report]', or give .html")


def _picture(where: Path, number: int, lines: Sequence[str]) -> Path:
    """The file for the picture of one line: the name that was given, with a number where there are several lines."""
    return where if len(lines) == 1 else where.with_stem(f"{where.stem}-{number + 1}")


def _draw(
    model: LanguageModel,
    lines: Sequence[str],
    found: Sequence[Sequence[Translation]],
    where: Path,
    layer: int,
    head: int | None,
    name: str,
) -> None:
    from lmlab.pages.figures import save_png
    from lmlab.pages.views import draw_alignment, to_alignments_page

    numbers = [number for number, each in enumerate(found) if each]
    drawn = model.alignments([lines[n] for n in numbers], [found[n][0] for n in numbers], layer=layer, head=head)
    if where.suffix == ".html":
        block = "the last block" if layer == -1 else f"block {layer}"
        heads = "The weights are the mean over all heads" if head is None else f"The weights are those of head {head}"
        page = to_alignments_page(
            drawn,
            numbers=[number + 1 for number in numbers],
            model=name,
            what=f"{heads} of {block} of the decoder." if drawn else "There is nothing to plot: all lines are empty.",
        )
        where.write_text(page, encoding="utf-8")
        print(printable(f"wrote {where}"), file=sys.stderr)
        return
    names = [_picture(where, number, lines) for number in numbers]
    for path, each in zip(names, drawn, strict=True):
        save_png([draw_alignment(each.source, each.target, each.weights)], path)
    print(
        printable(f"wrote {', '.join(map(str, names))}" if drawn else "nothing to plot: all lines are empty"),
        file=sys.stderr,
    )
