"""The command line: one file per verb; nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from lmlab.cli.verbs import VerbGroup

app = typer.Typer(
    cls=VerbGroup,
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


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the verb."""


def main() -> None:
    """Run the command line; an error of the user's is one clear message, and exit status 2."""
    warnings.showwarning = _show_warning
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stderr.close()
        sys.exit(141)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _show_warning(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
