"""What all tasks with named classes share: labels, metrics, evidence, targets and predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.data.corpora.checking import LabelSummary, format_counts
from lmlab.data.corpora.examples import all_examples
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled.labels import find_labels
from lmlab.metrics.classification import F1, Accuracy, MacroF1, Matthews, positive_label
from lmlab.metrics.metric import Metric
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.pages.evidence import Evidence, Mistake
from lmlab.tasks import evidence
from lmlab.tasks.records import Item, Prediction, TaskConfig
from lmlab.tasks.task import Task


class ScoringTask(Task):
    """A task whose head gives scores, of which one is the right one's."""

    def loss_of(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy over scores; `label` is the number of the right one."""
        return F.cross_entropy(scores, batch.labels["label"], reduction="sum", ignore_index=IGNORE)

    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        return list(scores.float().softmax(-1).cpu().numpy())


class ClassTask(ScoringTask):
    """A task whose labels are names of classes: cross-entropy of P(class | example)."""

    averages: ClassVar[bool] = True

    @classmethod
    def labels_of(cls, labelled: Labelled) -> tuple[str, ...]:
        return find_labels([example for example in all_examples(labelled) if example.label is not None])

    @classmethod
    def summarise_labels(cls, labelled: Labelled) -> LabelSummary:
        counts = Counter(example.label for example in labelled.train)
        return LabelSummary(counts=counts, lines=format_counts(counts, "classes"))

    @classmethod
    def metrics_of(cls, config: TaskConfig) -> dict[str, Metric]:
        offered: dict[str, Metric] = {each.name: each for each in (Accuracy(), Matthews(), MacroF1())}
        if len(config.labels) == 2 and (positive := positive_label(config.labels)) is not None:
            offered["f1"] = F1(positive)
        metric = config.metric or "accuracy"
        if metric == "f1" and "f1" not in offered:
            labels = ", ".join(config.labels)
            raise ValueError(f"which class is F1 about? It needs the positive one of two labels; there are: {labels}")
        if metric not in offered:
            raise ValueError(f"{cls.name} has no metric {metric!r}; it has {', '.join(offered)}")
        shown = [metric, "accuracy", "f1" if "f1" in offered else "macro_f1"]
        return {name: offered[name] for name in dict.fromkeys(shown)}

    @classmethod
    def show_evidence(cls, lines: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Evidence:
        right = [line["predicted"] == line["true"] for line in lines]
        pairs = Counter((str(line["true"]), str(line["predicted"])) for line in lines)
        return evidence.make_evidence(
            lines,
            right,
            describe=cls.describe_mistake,
            calibration=evidence.calibrate(lines, right),
            **evidence.count_confusions(pairs, labels),
        )

    @classmethod
    def describe_mistake(cls, line: Mapping[str, Any]) -> Mistake:
        """How a report shows a wrong prediction, from its line of `predictions.jsonl`."""
        return evidence.describe_texts(line)

    @property
    def outputs(self) -> int:
        """How many numbers the head gives: one for each class."""
        return len(self.config.labels)

    def label_of(self, example: Example) -> int | None:
        """The number of an example's class; None where it has none."""
        if example.label is None:
            return None
        if example.label not in self.config.labels:
            raise ValueError(f"{example.where}: label {example.label!r} is not among {', '.join(self.config.labels)}")
        return self.config.labels.index(example.label)

    def targets(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], int]:
        labels = [IGNORE if item.label is None else item.label for item in items]
        return {"label": torch.tensor(labels)}, sum(label != IGNORE for label in labels)

    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        labels = self.config.labels
        return [
            Prediction(
                labels[int(probabilities.argmax())],
                float(probabilities.max()),
                dict(zip(labels, map(float, probabilities), strict=True)),
            )
            for probabilities in decoded
        ]
