"""Which metrics a task is judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lmlab.metrics.answers import AnswerF1, ExactMatch
from lmlab.metrics.classification import F1, Accuracy, ChoiceAccuracy, MacroF1, Matthews, positive_label
from lmlab.metrics.correlation import Pearson, Spearman
from lmlab.metrics.metric import Metric
from lmlab.metrics.tagging import SpanF1, SpanPrecision, SpanRecall, TagAccuracy

TASK_METRICS: dict[str, tuple[Callable[[], Metric], ...]] = {
    "classification": (Accuracy, Matthews, MacroF1),
    "regression": (Pearson, Spearman),
    "choice": (ChoiceAccuracy,),
    "tagging": (SpanF1, SpanPrecision, SpanRecall, TagAccuracy),
    "plain tags": (TagAccuracy,),
    "spans": (AnswerF1, ExactMatch),
}
"""By task, the main metric first. Matthews' correlation and an F1 of one class are there where they are asked for."""


def metrics_for(
    task: str,
    *,
    metric: str | None = None,
    labels: Sequence[str] = (),
    positive: str | None = None,
    scheme: str | None = None,
) -> dict[str, Metric]:
    """The metrics of a task by name, the main one first.

    `metric` is the official one, where there is one; `labels` and `positive` are the classes, and the one of two that
    F1 is about, told by its name where it is not given; a `scheme` (IOB1, IOB2, IOBES) says that tags mark spans.
    """
    kind = "plain tags" if task == "tagging" and scheme is None else task
    if kind not in TASK_METRICS:
        raise ValueError(f"no task is named {task!r}; there are classification, regression, choice, tagging, spans")
    offered = {metric.name: metric for metric in (make() for make in TASK_METRICS[kind])}
    if kind == "classification":
        if positive is not None and labels and positive not in labels:
            raise ValueError(f"the positive label {positive!r} is none of {', '.join(labels)}")
        if len(labels) == 2 and (chosen := positive if positive is not None else positive_label(labels)) is not None:
            offered["f1"] = F1(chosen)
        if metric == "f1" and "f1" not in offered:
            raise ValueError(
                f"which class is F1 about? It needs the positive one of two labels; there are: {', '.join(labels)}"
            )
    if metric is not None and metric not in offered:
        raise ValueError(f"{task} has no metric {metric!r}; it has {', '.join(offered)}")
    if kind == "classification":
        shown = [metric or "accuracy", "accuracy", "f1" if "f1" in offered else "macro_f1"]
        return {name: offered[name] for name in dict.fromkeys(shown)}
    return {name: offered[name] for name in dict.fromkeys([metric or next(iter(offered)), *offered])}
