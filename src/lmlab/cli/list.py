"""lmlab list: the models, their sizes and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import typer


def list_(
    system: Annotated[
        str | None, typer.Argument(metavar="[MODEL|data]", help="A model; or data, for the built-in data.")
    ] = None,
) -> None:
    """List the models, the settings of one, or the built-in data.

    Examples:

      lmlab list

      lmlab list gpt2

      lmlab list data
    """
    from lmlab.cli.console import Console

    console = Console()
    console.print(_data() if system == "data" else _one(system) if system else _all())


def _data() -> Any:
    """The built-in data, with the systems that learn from them."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table

    from lmlab.data.readers.media import BUILT_IN

    table = Table(title="Built-in data", title_justify="left", title_style="bold cyan", box=SIMPLE_HEAD)
    table.add_column("DATA", no_wrap=True)
    table.add_column("what it is")
    table.add_column("for")
    table.add_row("[bold]builtin[/bold]", "text: the documentation inside your Python", "all models of text")
    for name, each in BUILT_IN.items():
        others = f"; {each.more}" if each.more else ""
        table.add_row(f"[bold]{name}[/bold]", each.what, f"{', '.join(each.systems)}{others}")
    return Group(table, "Try one: lmlab train clip builtin:scenes -o RUN --budget 2min")


def _all() -> Any:
    """The lineage in groups, by what each system is known for: only such can be compared."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table

    from lmlab.models import LINEAGE
    from lmlab.models.descriptions import DESCRIPTIONS

    known_for = {row.does[0] for row in LINEAGE.values()}
    tables = []
    for ability in (each for each in DESCRIPTIONS.values() if each.name in known_for):
        table = Table(title=ability.title, title_justify="left", title_style="bold cyan", box=SIMPLE_HEAD, expand=True)
        for column, width, ratio in (
            ("model", max(map(len, LINEAGE)), None),
            ("year", 4, None),
            ("what it is", None, 5),
            ("paper", None, 4),
        ):
            table.add_column(column, width=width, ratio=ratio)
        for row in LINEAGE.values():
            if row.does[0] == ability.name:
                table.add_row(f"[bold]{row.name}[/bold]", str(row.year), row.summary, row.paper)
        tables.append(table)
    return Group(*tables, "lmlab list NAME shows the sizes and settings of one, lmlab list data the built-in data.")


def _one(name: str) -> Any:
    from rich.console import Group
    from rich.table import Table

    from lmlab.models import find, load_class
    from lmlab.models.descriptions import DESCRIPTIONS
    from lmlab.objectives import load_objective
    from lmlab.training.settings import TrainConfig

    system, cls = find(name), load_class(name)
    objective, usual = load_objective(system.objective["kind"]).Config, system.objective_for(system.preset())
    does = " and ".join(DESCRIPTIONS[ability].does for ability in system.does)
    title = f"{name}: {system.summary} ({system.paper}); it {does}"
    sizes = Table("size", "settings")
    for size, values in system.sizes.items():
        sizes.add_row(size, ", ".join(f"{key} {value}" for key, value in values.items()))
    return Group(
        f"[bold]{title}[/bold]",
        *([f"It builds on {' and '.join(system.builds_on)}."] if system.builds_on else []),
        sizes,
        _settings("model", cls.Config, {}),
        *([_settings("objective", objective, usual)] if objective.model_fields else []),
        _settings("train", TrainConfig, system.training),
    )


def _settings(group: str, config: Any, defaults: Mapping[str, Any]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("setting", "default", "meaning", title=f"--set {group}.KEY=VALUE")
    for name, field in config.model_fields.items():
        default = defaults.get(name, "" if field.is_required() else field.get_default())
        choices = ", ".join(_choices(field.annotation))
        meaning = f"{field.description or ''} ({choices})" if choices else field.description or ""
        table.add_row(name, escape(str(default)), escape(meaning))
    return table


def _choices(kind: Any) -> list[str]:
    """The words that a setting may have, where only some are allowed."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [choice for part in get_args(kind) for choice in _choices(part)]
