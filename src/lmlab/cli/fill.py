"""lmlab fill: the most probable tokens for the masks of a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.options import Device, Json, Top, Weights
from lmlab.cli.texts import is_stream, text_of

if TYPE_CHECKING:
    from lmlab.cli.console import Console
    from lmlab.decoding.filler import Filled


SIDE_BY_SIDE = 4
"""Number of masks that have a column each; more have a row each."""
MOST_SHOWN = 20
"""Maximum number of masks shown one by one."""


def fill(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a masked language model (bert …).")],
    text: Annotated[str, typer.Argument(help="Text with [MASK] tokens; '-' reads standard input.")],
    picture: Annotated[
        str | None, typer.Option(help="Picture that the text is about, or test:N. (visualbert, vilbert)")
    ] = None,
    top: Top = 5,
    jointly: Annotated[bool, typer.Option("--jointly", help="Fill several masks jointly: P(a) P(b | a).")] = False,
    order: Annotated[
        str,
        typer.Option(help="Order of --jointly: left-to-right, right-to-left, confident, or 2,1,3."),
    ] = "left-to-right",
    beams: Annotated[int, typer.Option(min=1, help="Beam size, with --jointly.")] = 16,
    json_: Json = False,
    device: Device = "auto",
    weights: Weights = "fp32",
) -> None:
    """Fill masked tokens with the most probable ones.

    Examples:

      lmlab fill runs/bert "He drove the yellow [MASK] into the front of our house."

      lmlab fill runs/bert "I flew from [MASK] [MASK] to Paris." --jointly --top 10

      lmlab fill runs/xlnet "[MASK] [MASK] is a city" --jointly --order 2,1

      lmlab fill runs/visualbert "a [MASK] circle" --picture scene.png

    [MASK] or <mask> is one token. Several masks are filled independently, or jointly with --jointly; both
    probabilities are shown. A model of texts with pictures reads --picture beside the text; test:3 is the picture of
    row 3 of the run's own test data, with its regions.
    """
    from lmlab.cli.picture_texts import shown_picture
    from lmlab.decoding.filler import find_order
    from lmlab.language_model import load
    from lmlab.models.abilities import ReadsRegions, ability
    from lmlab.training.devices import choose_device

    text = text_of(text).rstrip("\n") if is_stream(text) else text_of(text)
    find_order(order)
    model = load(run, device=choose_device(device), weights=weights)
    reads_pictures = isinstance(model.filler.model, ReadsRegions) or ability(model.model, ReadsRegions) is not None
    if picture is not None and not reads_pictures:
        raise ValueError(f"--picture: {run} reads text only; leave it out, or use a run of visualbert or vilbert")
    found = model.fill(
        text,
        picture=None if picture is None else shown_picture(model, run, picture),
        top=top,
        jointly=jointly,
        order=order,
        beams=beams,
    )
    if json_:
        import json

        print(json.dumps(_as_dict(found), ensure_ascii=False))
        return
    from lmlab.cli.console import Console

    console = Console(highlight=False)
    if found.by_generator:
        console.print("ELECTRA's generator fills the masks; its discriminator only detects replaced tokens.")
    if len(found.candidates) > 1:
        _print_candidates(console, found)
    _print_fillings(console, found)


def _as_dict(found: Filled) -> dict[str, object]:
    return {
        "jointly": found.jointly,
        "by_generator": found.by_generator,
        "fillings": [
            {
                "tokens": list(filling.tokens),
                "independent": filling.independent,
                "joint": filling.joint,
                "text": filling.text,
            }
            for filling in found.fillings
        ],
        "candidates": [
            [{"token": candidate.token, "probability": candidate.probability} for candidate in mask]
            for mask in found.candidates
        ],
    }


def _print_candidates(console: Console, found: Filled) -> None:
    """The best tokens of each mask: side by side, or below each other if there are many."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="each mask independently", title_justify="left")
    if len(found.candidates) > SIDE_BY_SIDE:
        table.add_column("mask", justify="right")
        table.add_column("most probable tokens")
        for number, mask in enumerate(found.candidates[:MOST_SHOWN], start=1):
            best = (f"{candidate.token} {_percent(candidate.probability).strip()}" for candidate in mask)
            table.add_row(str(number), Text("   ".join(best)))
        console.print(table)
        if len(found.candidates) > MOST_SHOWN:
            console.print(f"… and {len(found.candidates) - MOST_SHOWN} more masks; use --json to see all")
        return
    for number in range(1, len(found.candidates) + 1):
        table.add_column(f"mask {number}")
    for row in zip(*found.candidates, strict=True):
        table.add_row(*(Text(f"{_percent(candidate.probability)}  {candidate.token}") for candidate in row))
    console.print(table)


def _print_fillings(console: Console, found: Filled) -> None:
    from rich.table import Table
    from rich.text import Text

    if len(found.candidates) == 1:
        table = Table("token", "probability", "text")
        for filling in found.fillings:
            table.add_row(
                Text(filling.tokens[0], style="bold"), Text(_percent(filling.joint)), Text(_safe(filling.text))
            )
    else:
        best, other = ("joint", "independent") if found.jointly else ("independent", "joint")
        many = len(found.candidates) > SIDE_BY_SIDE
        table = Table(
            *([] if many else ["tokens"]),
            best,
            other,
            "text",
            title=f"all masks, sorted by {best} probability",
            title_justify="left",
            caption="independent: P(a) P(b); joint: P(a) P(b | a)",
            caption_justify="left",
        )
        for filling in found.fillings:
            joint, independent = _percent(filling.joint), _percent(filling.independent)
            figures = (joint, independent) if found.jointly else (independent, joint)
            tokens = [] if many else [Text("  ".join(filling.tokens), style="bold")]
            table.add_row(*tokens, *map(Text, figures), Text(_safe(filling.text)))
    console.print(table)


def _percent(probability: float) -> str:
    return f"{probability:7.2%}" if probability >= 1e-4 else f"{probability:7.0e}"


def _safe(text: str) -> str:
    """Text that cannot steer a terminal."""
    return "".join(character for character in text if character.isprintable() or character == "\n")
