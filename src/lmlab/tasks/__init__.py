"""Tasks: objectives over labelled examples, one file each, with a row in the table `lmlab.objectives.TASKS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmlab.objectives import TASKS, load_objective

if TYPE_CHECKING:
    from lmlab.tasks.task import Task


def load_task(name: str) -> type[Task]:
    """The class of the task called `name`, imported now."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}: there are {', '.join(TASKS)}")
    found: type[Task] = load_objective(name)
    return found
