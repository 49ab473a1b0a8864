"""lmlab list: the models, their sizes and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import typer


def list_(
    system: Annotated[str | None, typer.Argument(help="Show the sizes and settings of this model.")] = None,
) -> None:
    """List the models, or the sizes and settings of one.

    Example:  lmlab list gpt2
    """
    from lmlab.cli.console import Console

    console = Console()
    console.print(_one(system) if system else _all())


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
            ("model", 14, None),
            ("year", 4, None),
            ("what it is", None, 5),
            ("paper", None, 4),
        ):
            table.add_column(column, width=width, ratio=ratio)
        for row in LINEAGE.values():
            if row.does[0] == ability.name:
                table.add_row(f"[bold]{row.name}[/bold]", str(row.year), row.summary, row.paper)
        tables.append(table)
    return Group(*tables, "lmlab list NAME shows the sizes and settings of one.")


def _one(name: str) -> Any:
    from rich.console import Group
    from rich.table import Table

    from lmlab.models import find, load_class
    from lmlab.models.descriptions import DESCRIPTIONS
    from lmlab.objectives import load_objective
    from lmlab.training.settings import TrainConfig

    system, cls = find(name), load_class(name)
    objective = load_objective(system.objective["kind"]).Config
    does = " and ".join(DESCRIPTIONS[ability].does for ability in system.does)
    title = f"{name}: {system.summary} ({system.paper}); it {does}"
    sizes = Table("size", "settings")
    for size, values in system.sizes.items():
        sizes.add_row(size, ", ".join(f"{key} {value}" for key, value in values.items()))
    return Group(
        f"[bold]{title}[/bold]",
        sizes,
        _settings("model", cls.Config, {}),
        *([_settings("objective", objective, system.objective)] if objective.model_fields else []),
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
