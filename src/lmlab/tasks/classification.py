"""Classes of one text or of two: sentiment, acceptability, paraphrase, entailment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.data.readers.examples import Example
from lmlab.data.readers.strict_text import shorten
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.tasks.heads import Classifier
from lmlab.tasks.task import Item, Prediction, Task, TaskConfig
from lmlab.tokenizers.frames import Row


class PooledConfig(TaskConfig):
    """How a task over one vector for each text, or pair of texts, is learnt."""

    pair: bool | None = Field(None, description="whether an example is two texts; none: it may be one or two")
    both_orders: bool = Field(
        False, description="read a pair as a b and as b a, and add both vectors: similarity (Radford et al. 2018)"
    )
    hidden: int | None = Field(
        None, ge=1, description="width of the dense layer in the head; none: as wide as the vectors"
    )
    bias: bool = Field(True, description="whether the last layer of the head has a bias")


class PooledTask(Task):
    """A task that reads one vector for each text, or pair of texts."""

    Config: ClassVar[type[TaskConfig]] = PooledConfig
    config: PooledConfig

    @classmethod
    def frame_settings(cls, config: TaskConfig) -> dict[str, Any]:
        assert isinstance(config, PooledConfig)
        return {"orders": ("ab", "ba")} if config.both_orders else {}

    @property
    def outputs(self) -> int:
        """How many numbers the head gives."""
        return 1

    def items(self, examples: Sequence[Example]) -> list[Item]:
        for example in examples:
            if self.config.pair is not None and (example.b is not None) != self.config.pair:
                needs = "two texts: give a pair" if self.config.pair else "one text, and this is a pair"
                raise ValueError(f"{example.where or shorten(str(example.a))}: this task is about {needs}")
        first = self.tokenizer.encode_batch([str(example.a) for example in examples])
        second = self.tokenizer.encode_batch([example.b or "" for example in examples])
        alone = not self.config.both_orders  # else all items have as many rows, and a missing text is an empty one
        return [
            Item(number, {"a": a} if example.b is None and alone else {"a": a, "b": b}, self.label_of(example))
            for number, (example, a, b) in enumerate(zip(examples, first, second, strict=True))
        ]

    def label_of(self, example: Example) -> Any:
        """The label of an example as a number; None where it has none."""
        raise NotImplementedError

    def make_head(self, width: int) -> dict[str, nn.Module]:
        config = self.config
        head = Classifier(
            width,
            self.outputs,
            dropout=config.dropout,
            activation=config.activation,
            hidden=config.hidden,
            bias=config.bias,
        )
        return {"label": head}

    def scored(self, batch: Batch) -> int:
        return len(batch.labels["label"])

    def score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        """[N, outputs], from the sum of an item's vectors where it was read in both orders."""
        items = len(batch.labels["label"])
        scores: Tensor = heads["label"](vectors.reshape(items, -1, vectors.shape[-1]).sum(1))
        return scores

    def total(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy over scores; `label` is the number of the right one."""
        return F.cross_entropy(scores, batch.labels["label"], reduction="sum", ignore_index=IGNORE)

    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        return list(scores.float().softmax(-1).cpu().numpy())


class Classification(PooledTask):
    """Cross-entropy of P(class | text)."""

    name: ClassVar[str] = "classification"

    @property
    def outputs(self) -> int:
        return len(self.config.labels)

    def label_of(self, example: Example) -> int | None:
        if example.label is None:
            return None
        if example.label not in self.config.labels:
            raise ValueError(f"{example.where}: label {example.label!r} is not among {', '.join(self.config.labels)}")
        return self.config.labels.index(example.label)

    def targets(self, items: Sequence[Item], rows: Sequence[Row] | None) -> tuple[dict[str, Tensor], int]:
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
