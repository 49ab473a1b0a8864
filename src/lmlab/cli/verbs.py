"""The verbs of the command line: one row each, and a group that imports a verb's file only when it is called.

A verb may be a group of its own: a folder instead of a file, with a table `VERBS` of what is in it.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class BareCommand(TyperCommand):
    """A command whose parameters are None unless given; alone it does without pydantic, with which typer converts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args:
            return super().parse_args(ctx, args)
        ctx.params = {param.name: None for param in self.params}
        return []


class Verb(NamedTuple):
    """One row of `lmlab --help`: the file `cli/NAME.py` and its function NAME, or NAME_ where Python has that name."""

    name: str
    panel: str
    help: str
    """One line at 80 columns, the first of the function's docstring."""
    command: type[TyperCommand] = TyperCommand
    folder: str = "lmlab.cli"
    """The package of its file."""


START, TRAIN, USE, COMPARE, INSIDE, EXCHANGE = "Start here", "Train", "Use", "Compare", "Look inside", "Exchange"

VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("demo", START, "Train and compare eight models in about three minutes."),
        Verb("list", START, "List the models, or the sizes and settings of one.", BareCommand),
        Verb("train", TRAIN, "Train a language model on your own text."),
        Verb("finetune", TRAIN, "Fine-tune a run on labelled examples, with baselines."),
        Verb("average", TRAIN, "Average the weights of the last checkpoints of a run."),
        Verb("cost", TRAIN, "Estimate the cost of training, without training."),
        Verb("generate", USE, "Generate text from a prompt."),
        Verb("fill", USE, "Fill in the blanks of a text with the most probable tokens."),
        Verb("predict", USE, "Predict labels, tags, scores or answers with a fine-tuned run."),
        Verb("translate", USE, "Translate a file line by line, with beam search."),
        Verb("embed", USE, "Write the vectors of texts or tokens to a NumPy file."),
        Verb("prompt", USE, "Do a task by prompting, without training (zero-shot, few-shot)."),
        Verb("serve", USE, "Serve runs behind the OpenAI completions API."),
        Verb("compare", COMPARE, "Train models on the same text and budget, and rank them."),
        Verb("score", COMPARE, "Measure bits per byte and perplexity on texts."),
        Verb("evaluate", COMPARE, "Score a fine-tuned run, or a translator, on a test set."),
        Verb("studio", INSIDE, "Look at runs in the browser: next words, beams, attention."),
        Verb("inspect", INSIDE, "Look inside runs: attention, cells, pairs, probes, senses …"),
        Verb("next", INSIDE, "Show the most probable next tokens after a prompt."),
        Verb("tokenize", INSIDE, "Show how a tokenizer splits a text into tokens."),
        Verb("report", INSIDE, "Write one page about a run: curve, samples, surprisal, cost."),
        Verb("convert", EXCHANGE, "Convert from and to Hugging Face checkpoints and ARPA files."),
    )
}


class VerbGroup(TyperGroup):
    """A group whose help is made from the table; what runs, or explains itself, is imported then."""

    verbs: ClassVar[dict[str, Verb]] = VERBS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for verb in self.verbs.values():
            self.add_command(TyperCommand(verb.name, help=verb.help, rich_help_panel=verb.panel))

    def get_help_option(self, ctx: Any) -> Any:
        """--help is off, and not None, where it is not given: typer would import pydantic to convert that."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The verb that is called; typer's error about an unknown one names the nearest."""
        name, row, rest = super().resolve_command(ctx, args)
        return name, None if row is None else load_command(self.verbs[str(name)]), rest


def load_command(verb: Verb) -> Any:
    """The command of a verb, whose file is imported now."""
    name = verb.name.replace("-", "_")
    module = importlib.import_module(f"{verb.folder}.{name}")
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    if (table := getattr(module, "VERBS", None)) is not None:
        group = type("Group", (VerbGroup,), {"verbs": table})
        about = _unwrap(inspect.cleandoc(module.__doc__ or ""))
        alone = typer.Typer(
            name=verb.name, cls=group, help=about, no_args_is_help=True, add_completion=False, rich_markup_mode="rich"
        )
        alone.callback()(_nothing)
        return typer.main.get_group(alone)
    function = getattr(module, f"{name}_", None) or getattr(module, name)
    alone.command(verb.name, cls=verb.command, help=_unwrap(inspect.cleandoc(function.__doc__)))(function)
    return typer.main.get_command(alone)


def _nothing() -> None:
    """A group has no options of its own."""


def _unwrap(text: str) -> str:
    """Paragraphs as one line each, so that they break where the terminal ends and not where the source does."""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in text.split("\n\n"))
