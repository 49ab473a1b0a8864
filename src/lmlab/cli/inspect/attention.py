"""lmlab inspect attention: where each head looks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE
from lmlab.cli.texts import is_stream, text_of


def attention(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of a model with attention.")],
    text: Annotated[str, typer.Argument(help="The text; '-' reads standard input.")],
    target: Annotated[
        str | None, typer.Option(help="Of a translator: the target. It writes its own, if not given.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Of a translator: encoder, decoder or cross. (default: cross)")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Draw only this layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Draw only this head, from 0.")] = None,
    link: Annotated[
        str | None, typer.Option(metavar="WORD:WORD", help="Rank the heads by how much the first looks at the second.")
    ] = None,
    rollout: Annotated[
        bool, typer.Option("--rollout", help="Show how much of each token reaches each other through all layers.")
    ] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """Where does each head look? Weights, entropy, distance, rollout.

    Examples:

      lmlab inspect attention runs/bert "The animal was tired." -o attention.html

      lmlab inspect attention runs/gpt2 "The cat sat because it was tired." --link it:cat

      lmlab inspect attention runs/en-de "A dog runs." --kind cross --layer 1 -o cross.png

    The table says of each head how much it looks at the token itself, the one before and after, the first, and special
    tokens, how far, and how evenly (entropy in bits).
    """
    from lmlab.analysis.attention import Links, Rollout, read_attention
    from lmlab.analysis.view import Viewed
    from lmlab.cli.inspect.showing import check_output, open_run, show
    from lmlab.config import suggest

    check_output(output, inputs=[run], overwrite=overwrite)
    if link is not None and link.count(":") != 1:
        raise ValueError(f"--link {link}: give two words that are tokens of the text, as it:cat")
    given = text_of(text).strip() if is_stream(text) else text_of(text)
    maps = read_attention(open_run(run, device), given, target=target)
    chosen = kind or ("cross" if "cross" in maps else next(iter(maps)))
    if chosen not in maps:
        raise ValueError(f"--kind {chosen}: this model has {', '.join(maps)}{suggest(chosen, maps)}")
    found: Viewed = maps[chosen].of(layer=layer, head=head)
    if rollout:
        found = Rollout.of(maps[chosen])
    if link is not None:
        found = Links.of(maps[chosen], *link.split(":"))
    show(found, output=output, json_=json_, about=str(run))
