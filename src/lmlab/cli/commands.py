"""The table of commands, and a group that imports the file of a command only when it is called.

A command may be a group of its own: a folder with a table `COMMANDS` instead of a file.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

RENAMED_COMMANDS = {"inspect gradients": "attribution", "inspect layers": "layer-mix", "inspect probes": "probing"}
RENAMED_OPTIONS = {
    "cost": {"--tokens": "--budget", "--batch": "--set train.batch"},
    "finetune": {"--alone": "--no-controls"},
    "predict": {"--with": "--mix"},
    "prompt": {"--examples": "--limit", "--finetuned": "--versus"},
    "evaluate": {"--with": "--mix"},
    "score": {"--tokens": "--by-token"},
    "studio": {"--text": "--training-text"},
    "tokenize": {"--train": "--training-text"},
    "inspect attention": {"--target": "--translation"},
    "inspect attribution": {"--target": "--prediction"},
    "inspect bias": {"--source": "--text", "--target": "--translation"},
    "inspect cells": {"--characters": "--limit"},
    "inspect probing": {"--alone": "--no-controls", "--what": "--label", "--length": "--description-length"},
    "inspect surprisal": {"--tokens": "--by-token"},
}
"""Spellings of version 0.5, which work with a note until 0.7; options are listed under the new name of a command."""


class Command(TyperCommand):
    """A command that understands the spellings of the last version."""

    path: str = ""
    """Its name after `lmlab`, as `inspect attention`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._rename(args))

    def _rename(self, args: list[str]) -> list[str]:
        renamed, words, rest = RENAMED_OPTIONS.get(self.path, {}), [], iter(args)
        for word in rest:
            option, equals, value = word.partition("=")
            if option not in renamed:
                words.append(word)
                continue
            note_renamed(option, renamed[option])
            new, _, setting = renamed[option].partition(" ")
            if setting:  # --batch 8 is now --set train.batch=8
                words += [new, f"{setting}={value if equals else next(rest, '')}"]
            else:
                words.append(f"{new}{equals}{value}")
        return words


class BareCommand(Command):
    """A command whose parameters default to None: without arguments it needs no pydantic, which typer converts with."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args:
            return super().parse_args(ctx, args)
        ctx.params = {param.name: None for param in self.params}
        return []


class CommandRow(NamedTuple):
    """One row of `lmlab --help`: the file `cli/NAME.py` and its function NAME, or NAME_ where Python has that name."""

    name: str
    panel: str
    help: str
    """One line at 80 columns, the first of the function's docstring."""
    command: type[Command] = Command
    folder: str = "lmlab.cli"
    """The package of its file."""
    group: str = ""
    """The command that it belongs to: `inspect` for `inspect attention`."""

    @property
    def path(self) -> str:
        return f"{self.group} {self.name}".strip()


START, TRAIN, USE, COMPARE, INSIDE, EXCHANGE = "Start here", "Train", "Use", "Compare", "Look inside", "Exchange"

COMMANDS: dict[str, CommandRow] = {
    row.name: row
    for row in (
        CommandRow("demo", START, "Train and compare eight models in about three minutes."),
        CommandRow("list", START, "List the models, the settings of one, or the built-in data.", BareCommand),
        CommandRow("doctor", START, "Check this machine: what works, and what to install."),
        CommandRow("train", TRAIN, "Train a language model on your own text."),
        CommandRow("finetune", TRAIN, "Fine-tune a run on labelled examples, with baselines."),
        CommandRow("average", TRAIN, "Average the weights of the last checkpoints of a run."),
        CommandRow("cost", TRAIN, "Estimate the cost of training, without training."),
        CommandRow("generate", USE, "Continue a text by sampling or beam search."),
        CommandRow("compose", USE, "Compose music with a run, as a MIDI file and a picture."),
        CommandRow("draw", USE, "Draw pictures with a run: samples, or completions of pictures."),
        CommandRow("fill", USE, "Fill masked tokens with the most probable ones."),
        CommandRow("predict", USE, "Predict labels, tags, scores or answers with a fine-tuned run."),
        CommandRow("translate", USE, "Translate a file line by line, with beam search."),
        CommandRow("caption", USE, "Write what pictures show, and where the model looked."),
        CommandRow("transcribe", USE, "Write the text of recordings, of any length."),
        CommandRow("act", USE, "Let a run act in an environment, to reach a given return."),
        CommandRow("embed", USE, "Write the vectors of texts or tokens to a NumPy file."),
        CommandRow("find", USE, "Find the pictures that are nearest to a text or a picture."),
        CommandRow("prompt", USE, "Do a task by prompting, without training (zero-shot, few-shot)."),
        CommandRow("serve", USE, "Serve runs behind the OpenAI completions API."),
        CommandRow("compare", COMPARE, "Train models on the same text and budget, and rank them."),
        CommandRow("score", COMPARE, "Measure bits per byte and perplexity on texts."),
        CommandRow("evaluate", COMPARE, "Score a run on a test set, or on the examples that it held out."),
        CommandRow("studio", INSIDE, "Look at runs in the browser: next words, beams, attention."),
        CommandRow("inspect", INSIDE, "Analyse runs: attention, cells, minimal pairs, probing …"),
        CommandRow("next", INSIDE, "Show the most probable next tokens after a prompt."),
        CommandRow("tokenize", INSIDE, "Show how a tokenizer splits a text into tokens."),
        CommandRow("report", INSIDE, "Write one page about a run: curve, samples, surprisal, cost."),
        CommandRow("convert", EXCHANGE, "Convert from and to Hugging Face checkpoints and ARPA files."),
    )
}


class LazyGroup(TyperGroup):
    """A group whose help is made from the table; the file of a command is imported when that command is called."""

    commands_table: ClassVar[dict[str, CommandRow]] = COMMANDS
    path: ClassVar[str] = ""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for row in self.commands_table.values():
            self.add_command(TyperCommand(row.name, help=row.help, rich_help_panel=row.panel))

    def get_help_option(self, ctx: Any) -> Any:
        """--help defaults to False, not to None: typer would import pydantic to convert that."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is called; typer's error about an unknown one names the nearest."""
        if args and (new := RENAMED_COMMANDS.get(f"{self.path} {args[0]}".strip())):
            note_renamed(f"lmlab {self.path} {args[0]}", f"lmlab {self.path} {new}")
            args = [new, *args[1:]]
        name, row, rest = super().resolve_command(ctx, args)
        return name, None if row is None else load_command(self.commands_table[str(name)]), rest


def load_command(row: CommandRow) -> Any:
    """The command of a row, whose file is imported now."""
    name = row.name.replace("-", "_")
    module = importlib.import_module(f"{row.folder}.{name}")
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    if (table := getattr(module, "COMMANDS", None)) is not None:
        group = type("Group", (LazyGroup,), {"commands_table": table, "path": row.path})
        about = _unwrap(inspect.cleandoc(module.__doc__ or ""))
        alone = typer.Typer(
            name=row.name, cls=group, help=about, no_args_is_help=True, add_completion=False, rich_markup_mode="rich"
        )
        alone.callback()(_no_options)
        return typer.main.get_group(alone)
    function = getattr(module, f"{name}_", None) or getattr(module, name)
    alone.command(row.name, cls=row.command, help=_unwrap(inspect.cleandoc(function.__doc__)))(function)
    command: Any = typer.main.get_command(alone)
    command.path = row.path
    return command


def note_renamed(old: str, new: str) -> None:
    """Print a note about a spelling of the last version."""
    print(f"note: {old} is now {new}", file=sys.stderr)


def _no_options() -> None:
    """A group has no options of its own."""


def _unwrap(text: str) -> str:
    """Paragraphs as one line each, so that they break where the terminal ends and not where the source does."""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in text.split("\n\n"))
