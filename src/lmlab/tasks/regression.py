"""A number for one text or for two: similarity, stars, difficulty."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.data.corpora.checking import LabelSummary
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled.column_types import are_classes
from lmlab.metrics.correlation import Pearson, Spearman
from lmlab.metrics.metric import Metric
from lmlab.models.defaults import TaskDefaults
from lmlab.objectives.objective import Batch
from lmlab.pages.evidence import Evidence
from lmlab.tasks import evidence
from lmlab.tasks.classification import Classification, PooledConfig, PooledTask
from lmlab.tasks.records import Item, Prediction, TaskConfig, Wording
from lmlab.tasks.task import order_metrics

MOST_POINTS = 2000
"""Points of the chart of predicted against true numbers."""


class RegressionConfig(PooledConfig):
    """Settings of regression: the head predicts (score - mean) / std."""

    mean: float = Field(0.0, description="mean of the training scores")
    std: float = Field(1.0, gt=0, description="standard deviation of the training scores")


class Regression(PooledTask):
    """Squared error of standardised scores; predictions are on the scale of the data."""

    Config: ClassVar[type[TaskConfig]] = RegressionConfig
    name: ClassVar[str] = "regression"
    config: RegressionConfig
    averages: ClassVar[bool] = True
    wording: ClassVar[Wording] = Wording(
        goal="to give a number to each example",
        action="gives texts a score",
        files="a file with a text and its score in each line",
    )
    baselines: ClassVar[Mapping[str, str]] = {
        "majority": "lmlab.baselines.majority:MeanScore",
        "bag of words": "lmlab.baselines.bag_of_words:WordRegression",
    }

    @classmethod
    def settings_from(cls, labelled: Labelled, defaults: TaskDefaults, *, frozen: bool) -> dict[str, Any]:
        scores = [float(example.label) for example in labelled.train]
        return {
            **super().settings_from(labelled, defaults, frozen=frozen),
            "pair": labelled.train[0].b is not None,
            "mean": statistics.fmean(scores),
            "std": statistics.pstdev(scores) or 1.0,
        }

    @classmethod
    def is_symmetric(cls, labelled: Labelled) -> bool:
        return True

    @classmethod
    def summarise_labels(cls, labelled: Labelled) -> LabelSummary:
        scores = [float(example.label) for example in labelled.train]
        low, mean, high = min(scores), sum(scores) / len(scores), max(scores)
        return LabelSummary(scores=(low, mean, high), lines=[f"scores: {low:g} to {high:g}, mean {mean:.3g}"])

    @classmethod
    def metrics_of(cls, config: TaskConfig) -> dict[str, Metric]:
        return order_metrics(cls.name, (Pearson(), Spearman()), main=config.metric)

    def check_labels(
        self, examples: Sequence[Example], *, path: str, detect: Callable[[], Labelled | None]
    ) -> list[str]:
        names = evidence.name_labels(examples)
        found = detect() if are_classes(names) else None
        if found is None or found.task != Classification.name:
            return []
        return [
            f"{path} holds {len(Classification.labels_of(found))} classes ({evidence.shorten_names(names)}), and this "
            f"run predicts scores (in training {self.config.mean:.3g} on average, ± {self.config.std:.2g}): its "
            "predictions are compared with the classes as numbers"
        ]

    def format_prediction(self, example: Example, found: Prediction, *, top: int) -> str:
        return f"{found.value:.4g}\t{example.a}"

    @classmethod
    def show_evidence(cls, lines: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Evidence:
        points = [(float(line["true"]), float(line["predicted"])) for line in lines[:MOST_POINTS]]
        largest = sorted(lines, key=lambda line: -abs(line["predicted"] - line["true"]))[: evidence.SHOWN]
        return Evidence(
            count=len(lines),
            wrong=len(lines),
            title="The largest errors",
            mistakes=[evidence.describe_error(line) for line in largest],
            scatter=[point for point in points if all(map(math.isfinite, point))],
        )

    def label_of(self, example: Example) -> float | None:
        return None if example.label is None else (float(example.label) - self.config.mean) / self.config.std

    def targets(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], int]:
        labels = [float("nan") if item.label is None else item.label for item in items]
        return {"label": torch.tensor(labels, dtype=torch.float32)}, sum(item.label is not None for item in items)

    def loss_of(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        labels = batch.labels["label"]
        return torch.where(labels.isnan(), 0.0, scores[:, 0] - labels).square().sum()

    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        found: list[float] = (self.config.mean + self.config.std * scores[:, 0].float()).tolist()
        return found

    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        return [Prediction(value) for value in decoded]
