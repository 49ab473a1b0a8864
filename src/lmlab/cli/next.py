"""lmlab next: what a model expects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.texts import BOUNDARY, choose_boundary, text_of

BAR = 40


def next_(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    prompt: Annotated[str, typer.Argument(help="The context; '-' reads it from standard input.")] = "",
    top: Annotated[int, typer.Option(min=1, help="How many tokens to show.")] = 10,
    boundary: Annotated[bool | None, typer.Option("--boundary/--no-boundary", help=BOUNDARY)] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
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
