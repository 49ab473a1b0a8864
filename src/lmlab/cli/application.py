"""The command `lmlab` as typer knows it: its help, its commands, and the options before a command."""

from __future__ import annotations

from typing import Annotated

import typer

from lmlab.cli import errors
from lmlab.cli.commands import LazyGroup

app = typer.Typer(
    cls=LazyGroup,
    help="The laboratory for language models: train, use, compare and look inside."
    "\n\n"
    "Try  lmlab demo  or  lmlab train gpt2 book.txt -o runs/book --budget 2min"
    "\n\n"
    "lmlab COMMAND --help explains a command, with examples.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from lmlab import __version__

        print(__version__)
        raise typer.Exit


def _debug(wanted: bool) -> None:
    if wanted:
        errors.debugging.set(True)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=_debug, is_eager=True, help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Options before the command."""
