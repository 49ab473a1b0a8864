"""The files of GLUE (Wang et al. 2019): which task a file is of, its columns and its metric.

Some are recognized by their header alone, others also by the name of their folder, since many tables have columns such
as SST-2's `sentence, label`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lmlab.data.readers.examples import TaskName
from lmlab.data.readers.labelled.column_types import clean
from lmlab.data.readers.labelled.tables import ParsedTable


class Glue(NamedTuple):
    """A task of GLUE."""

    name: str
    metric: str
    columns: Mapping[str, str]
    signature: tuple[str, ...] = ()  # columns that only this task has together
    labels: frozenset[str] = frozenset()  # its labels, if other tasks have the same columns
    whole_rows: bool = True  # False: its files have broken lines, which are left out

    @property
    def header(self) -> bool:
        """Whether its files begin with the names of the columns."""
        return self.name != "CoLA"

    @property
    def task(self) -> TaskName:
        """The task, as lmlab names it."""
        return "regression" if self.metric == "pearson" else "classification"

    def fits(self, table: ParsedTable) -> bool:
        """Whether a table, its header still in the first row, has the columns of the task."""
        names = [clean(cell) for cell in table.rows[0]]
        if not self.header:
            return is_cola(table)
        return {*self.columns.values()} <= {*names} and {*self.signature} <= {*names}


ENTAILMENT = frozenset(("entailment", "not_entailment"))
PAIR = {"a": "sentence1", "b": "sentence2", "label": "label"}
TASKS = (
    Glue("CoLA", "matthews", {"a": "4", "label": "2"}),
    Glue("SST-2", "accuracy", {"a": "sentence", "label": "label"}),
    Glue("MRPC", "f1", {"a": "#1 String", "b": "#2 String", "label": "Quality"}, ("Quality", "#1 ID", "#2 ID")),
    Glue("STS-B", "pearson", {**PAIR, "label": "score"}, ("genre", "old_index", "score")),
    Glue(
        "QQP", "f1", {"a": "question1", "b": "question2", "label": "is_duplicate"}, ("qid1", "qid2"), whole_rows=False
    ),
    Glue("MNLI", "accuracy", {**PAIR, "label": "gold_label"}, ("promptID", "pairID", "genre")),
    Glue("QNLI", "accuracy", {"a": "question", "b": "sentence", "label": "label"}, ("index",), ENTAILMENT),
    Glue("RTE", "accuracy", PAIR, ("index",), ENTAILMENT),
    Glue("WNLI", "accuracy", PAIR, ("index",)),
)


def find_glue(source: str, table: ParsedTable) -> Glue | None:
    """Return the task of GLUE that a file belongs to, or None."""
    folder, stem = _bare(Path(source).parent.name), _bare(Path(source).name.partition(".")[0])
    fitting = [task for task in TASKS if task.fits(table)]
    for task in fitting:
        if _bare(task.name) in (folder, stem) or (_bare(task.name) in stem and _bare(task.name) != "rte"):
            return task
    for task in fitting:
        if task.name in ("SST-2", "WNLI"):
            continue  # many other tables have the same columns
        if not task.labels or _label_set(table, task.columns["label"]) == task.labels:
            return task
    return None


def is_cola(table: ParsedTable) -> bool:
    """Whether each row is a source, 0 or 1, a star or nothing, and a sentence."""
    return table.kind == "TSV" and all(
        len(row) == 4 and row[1] in ("0", "1") and not row[2].strip("*?#%") and row[3] for row in table.rows
    )


def _label_set(table: ParsedTable, name: str) -> set[str]:
    index = [clean(cell) for cell in table.rows[0]].index(name)
    return {clean(row[index]) for row in table.rows[1:] if len(row) > index}


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
