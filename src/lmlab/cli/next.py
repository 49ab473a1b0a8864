"""lmlab next: what a model expects."""

from __future__ import annotations

from typing import Annotated

import typer

from lmlab.cli.options import Boundary, Device, Json, Run, Top
from lmlab.cli.texts import choose_boundary, text_of

BAR = 40


def next_(
    run: Run,
    prompt: Annotated[str, typer.Argument(help="Context; '-' reads standard input.")] = "",
    top: Top = 10,
    boundary: Boundary = None,
    json_: Json = False,
    device: Device = "auto",
) -> None:
    """Show the most probable next tokens after a prompt.

    Example:  lmlab next runs/book "Once upon a" --top 5
    """
    from lmlab.language_model import load
    from lmlab.training.devices import choose_device

    found = choose_boundary(load(run, device=choose_device(device)), boundary).next(text_of(prompt), top=top)
    if json_:
        import json

        print(json.dumps([{"token": token, "probability": p} for token, p in found], ensure_ascii=False))
        return
    from rich.text import Text

    from lmlab.cli.console import Console

    console = Console(highlight=False, soft_wrap=True)
    wide = max(len(token) + 2 for token, _ in found)
    for token, p in found:
        line = Text(f"{p:8.2%}  ")
        line.append(f'"{token}"'.ljust(wide), style="bold")
        line.append("  " + "█" * round(p * BAR), style="green")
        console.print(line)
