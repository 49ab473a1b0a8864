"""The command line: one file per verb; nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from lmlab.cli.average import average
from lmlab.cli.compare import compare
from lmlab.cli.convert import convert
from lmlab.cli.cost import cost
from lmlab.cli.demo import demo
from lmlab.cli.embed import embed
from lmlab.cli.evaluate import evaluate
from lmlab.cli.fill import fill
from lmlab.cli.generate import generate
from lmlab.cli.list import list_
from lmlab.cli.next import next_
from lmlab.cli.score import score
from lmlab.cli.train import train
from lmlab.cli.translate import translate

app = typer.Typer(
    help="The laboratory for language models: train any system of the lineage on your own text, score it, sample it."
    "\n\n"
    "Start here:  lmlab demo   or   lmlab train gpt2 book.txt -o runs/book --budget 2min",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("list")(list_)
app.command("train")(train)
app.command("score")(score)
app.command("generate")(generate)
app.command("next")(next_)
app.command("fill")(fill)
app.command("embed")(embed)
app.command("translate")(translate)
app.command("evaluate")(evaluate)
app.command("average")(average)
app.command("compare")(compare)
app.command("convert")(convert)
app.command("cost")(cost)
app.command("demo")(demo)


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
