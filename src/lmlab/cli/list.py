"""lmlab list: the systems, their sizes and settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def list_(
    system: Annotated[str | None, typer.Argument(help="Show the sizes and every setting of this one.")] = None,
) -> None:
    """Show the lineage: every system that can be trained. With a name: its sizes and settings.

    Example:  lmlab list gpt2
    """
    from rich.console import Console

    console = Console()
    console.print(_one(system) if system else _all())


def _all() -> Any:
    from rich.table import Table

    from lmlab.models import LINEAGE

    table = Table(
        "system", "year", "what it is", "paper", title="The lineage", caption="lmlab list NAME shows its settings"
    )
    for row in LINEAGE.values():
        table.add_row(f"[bold]{row.name}[/bold]", str(row.year), row.summary, row.paper)
    return table


def _one(name: str) -> Any:
    from rich.console import Group
    from rich.table import Table

    from lmlab.models import find, load_class
    from lmlab.training.settings import TrainConfig

    system, cls = find(name), load_class(name)
    sizes = Table("size", "settings", title=f"{name}: {system.summary} ({system.paper})")
    for size, values in cls.SIZES.items():
        sizes.add_row(size, ", ".join(f"{key} {value}" for key, value in values.items()))
    return Group(
        sizes,
        _settings("model", cls.Config, {}),
        _settings("train", TrainConfig, cls.TRAINING),
    )


def _settings(group: str, config: Any, defaults: dict[str, Any]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("setting", "default", "meaning", title=f"--set {group}.KEY=VALUE")
    for name, field in config.model_fields.items():
        default = defaults.get(name, "" if field.is_required() else field.get_default())
        table.add_row(name, escape(str(default)), escape(field.description or ""))
    return table
