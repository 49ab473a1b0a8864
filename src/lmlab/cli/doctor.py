"""lmlab doctor: what works on this machine, and what to install for the rest."""

from __future__ import annotations

from typing import Annotated, Any

import typer

SIGNS = {"ok": "[green]ok[/green]", "missing": "[yellow]–[/yellow]", "problem": "[red]fix[/red]"}


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure which kernels are fastest here, and remember it.")
    ] = False,
) -> None:
    """Check this machine: what works, and what to install.

    A dash marks an optional feature that is missing, which is no fault. The exit status is 1 if something has to be
    fixed. Send what it prints when you report a fault.

    Examples:

      lmlab doctor

      lmlab doctor --json

      lmlab doctor --calibrate

    --calibrate takes about a second on a quiet machine. Later commands that use a model choose their kernels by it;
    without it they use defaults. Results change by rounding at most.
    """
    from lmlab.cli.diagnosis import calibrate_kernels, examine

    if calibrate:
        calibrate_kernels()
    found = examine()
    problems = [each for each in found if each.state == "problem"]
    if json:
        from json import dumps

        print(dumps({"works": not problems, "findings": [each._asdict() for each in found]}, indent=2))
    else:
        _show(found)
    raise typer.Exit(1 if problems else 0)


def _show(found: list[Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from lmlab.cli.console import Console

    console = Console(highlight=False)
    width = max(len(each.name) for each in found)
    for group in dict.fromkeys(each.group for each in found):
        table = Table.grid(padding=(0, 2))
        table.add_column(width=3)
        table.add_column(width=width, no_wrap=True)
        table.add_column()
        for each in (each for each in found if each.group == group):
            remedy = f"\n→ [bold]{escape(each.remedy)}[/bold]" if each.remedy else ""
            table.add_row(SIGNS[each.state], escape(each.name), escape(each.value) + remedy)
        console.print(f"[bold cyan]{escape(group)}[/bold cyan]", table, sep="\n")
    problems = sum(each.state == "problem" for each in found)
    missing = [each.name for each in found if each.state == "missing" and each.group == "Optional features"]
    console.print()
    if missing:
        console.print(
            f"All optional features: pip install 'lmlab{escape('[' + ','.join(missing) + ']')}'", soft_wrap=True
        )
    console.print(
        f"[red]{problems} thing{'s' * (problems > 1)} to fix (fix)[/red]"
        if problems
        else "Everything that lmlab needs works."
    )
