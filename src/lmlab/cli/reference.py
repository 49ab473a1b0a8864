"""docs/reference/cli.md, made from the commands: `python -m lmlab.cli.reference > docs/reference/cli.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lmlab.cli.commands import COMMANDS, RENAMED_COMMANDS, RENAMED_OPTIONS, CommandRow, load_command

INTRODUCTION = """# Commands and options

This page is generated from the code (`python -m lmlab.cli.reference`). `lmlab COMMAND --help` shows the same, with
examples. An option means the same in every command that has it.
"""


class Parameter(NamedTuple):
    """An argument or an option of a command."""

    command: str
    name: str
    """`RUN` of an argument, `-o, --output` of an option."""
    help: str
    is_option: bool
    hidden: bool

    @property
    def meaning(self) -> str:
        """The help without its default."""
        return re.sub(r"\s*\(default: [^)]*\)", "", self.help).rstrip(".")


def list_commands(table: dict[str, CommandRow] | None = None) -> Iterator[tuple[CommandRow, Any]]:
    """Every command with its row, those of groups included."""
    for row in (COMMANDS if table is None else table).values():
        command = load_command(row)
        if inner := getattr(command, "commands_table", None):
            yield from list_commands(inner)
        else:
            yield row, command


def list_parameters(row: CommandRow, command: Any) -> list[Parameter]:
    """The arguments and options of a command, in the order of its help."""
    found = []
    for param in command.params:
        is_option = param.param_type_name == "option"
        names = ", ".join([*param.opts, *param.secondary_opts]) if is_option else param.metavar or param.name.upper()
        text = (param.help or "").replace("\\[", "[")
        found.append(Parameter(row.path, names, text, is_option, bool(getattr(param, "hidden", False))))
    return [each for each in found if not each.hidden]


def make_reference() -> str:
    """The whole page."""
    commands = [(row, list_parameters(row, command)) for row, command in list_commands()]
    parts = [INTRODUCTION, "## Options\n", _options([each for _, found in commands for each in found])]
    parts += ["## Commands\n"]
    for row, parameters in commands:
        parts.append(f"### lmlab {row.path}\n\n{row.help}\n")
        parts.append(_table(("argument or option", "meaning"), [(f"`{p.name}`", p.help) for p in parameters]))
    parts += ["## Renamed in 0.6\n", "The old spellings work until 0.7, and print a note.\n", _renamed()]
    return "\n".join(parts)


def _options(parameters: list[Parameter]) -> str:
    """Every option with its meaning and the commands that have it."""
    users: dict[tuple[str, str], list[str]] = {}
    for each in sorted((p for p in parameters if p.is_option), key=lambda p: p.name.split("--")[-1]):
        users.setdefault((each.name, each.meaning), []).append(each.command)
    rows = [(f"`{name}`", meaning, ", ".join(commands)) for (name, meaning), commands in users.items()]
    return _table(("option", "meaning", "commands"), rows)


def _renamed() -> str:
    rows = [(f"`lmlab {old}`", f"`lmlab {old.rsplit(' ', 1)[0]} {new}`") for old, new in RENAMED_COMMANDS.items()]
    for command, options in RENAMED_OPTIONS.items():
        rows += [(f"`lmlab {command} {old}`", f"`{new}`") for old, new in options.items()]
    return _table(
        ("old", "new"), [*rows, ("`lmlab train --resume RUN --text FILE`", "`lmlab train --resume RUN FILE`")]
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    cells = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(each.replace('|', chr(92) + '|') for each in row)} |\n" for row in cells)


if __name__ == "__main__":
    print(make_reference(), end="")
