"""A number for one text or for two: similarity, stars, difficulty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.data.readers.examples import Example
from lmlab.objectives.objective import Batch
from lmlab.tasks.classification import PooledConfig, PooledTask
from lmlab.tasks.task import Item, Prediction, TaskConfig
from lmlab.tokenizers.frames import Row


class RegressionConfig(PooledConfig):
    """How numbers are learnt: the head's zero is `centre` on the scale of the data, and its one is `spread` away."""

    centre: float = Field(0.0, description="mean of the training scores")
    spread: float = Field(1.0, gt=0, description="standard deviation of the training scores")


class Regression(PooledTask):
    """Squared error on a scale where the training scores have mean 0 and deviation 1; said on the scale of the data."""

    Config: ClassVar[type[TaskConfig]] = RegressionConfig
    name: ClassVar[str] = "regression"
    config: RegressionConfig

    def label_of(self, example: Example) -> float | None:
        return None if example.label is None else (float(example.label) - self.config.centre) / self.config.spread

    def targets(self, items: Sequence[Item], rows: Sequence[Row] | None) -> tuple[dict[str, Tensor], int]:
        labels = [float("nan") if item.label is None else item.label for item in items]
        return {"label": torch.tensor(labels, dtype=torch.float32)}, sum(item.label is not None for item in items)

    def total(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        labels = batch.labels["label"]
        return torch.where(labels.isnan(), 0.0, scores[:, 0] - labels).square().sum()

    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        found: list[float] = (self.config.centre + self.config.spread * scores[:, 0].float()).tolist()
        return found

    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        return [Prediction(value) for value in decoded]
