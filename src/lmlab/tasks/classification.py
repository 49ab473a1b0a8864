"""Classes of one text or of two: sentiment, acceptability, paraphrase, entailment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.files import shorten
from lmlab.data.readers.labelled.column_types import are_classes, are_mostly_numbers
from lmlab.models.defaults import TaskDefaults
from lmlab.objectives.objective import Batch
from lmlab.tasks import evidence
from lmlab.tasks.classes import ClassTask, ScoringTask
from lmlab.tasks.heads import Classifier
from lmlab.tasks.records import Item, TaskConfig, Wording
from lmlab.tasks.text_task import TextTask, TextTaskConfig

PARAPHRASES = ("GLUE: MRPC", "GLUE: QQP")
"""Pairs without an order, as those of similarity: left-to-right models read both orders (Radford et al. 2018, 3.3)."""
SEVERAL = "put several texts into a file, one per line, and give the file"


class PooledConfig(TextTaskConfig):
    """Settings of a task over one vector for each text, or pair of texts."""

    pair: bool | None = Field(None, description="whether an example is two texts; none: it may be one or two")
    both_orders: bool = Field(
        False, description="read a pair as a b and as b a, and add both vectors: similarity (Radford et al. 2018)"
    )
    hidden: int | None = Field(
        None, ge=1, description="width of the dense layer in the head; none: as wide as the vectors"
    )
    bias: bool = Field(True, description="whether the last layer of the head has a bias")


class PooledTask(ScoringTask, TextTask):
    """A task that reads one vector for each text, or pair of texts."""

    Config: ClassVar[type[TaskConfig]] = PooledConfig
    config: PooledConfig
    pooled: ClassVar[bool] = True

    @classmethod
    def settings_from(cls, labelled: Labelled, defaults: TaskDefaults, *, frozen: bool) -> dict[str, Any]:
        head: dict[str, Any] = {"pool": "mean", "activation": None, "hidden": None, "bias": True}
        if not frozen:
            head = {name: getattr(defaults, name) for name in head}
        pair = labelled.train[0].b is not None
        both = {"both_orders": defaults.pool == "last"} if pair and cls.is_symmetric(labelled) else {}
        return {**super().settings_from(labelled, defaults, frozen=frozen), **head, **both}

    @classmethod
    def is_symmetric(cls, labelled: Labelled) -> bool:
        """Whether the two texts of a pair have no order."""
        return labelled.format in PARAPHRASES

    @classmethod
    def example_commands(cls, *, pair: bool = False) -> tuple[str, str]:
        predict, evaluate = super().example_commands(pair=pair)
        return (f'{predict} "another text"' if pair else predict), evaluate

    @classmethod
    def frame_settings(cls, config: PooledConfig) -> dict[str, Any]:
        return {"orders": ("ab", "ba")} if config.both_orders else {}

    @property
    def pair(self) -> bool | None:
        return self.config.pair

    def make_example(self, texts: Sequence[str]) -> Example:
        count = len(texts)
        given = "1 text is given" if count == 1 else f"{count} are given"
        if not count:
            raise ValueError("there is nothing to predict: give a text")
        if self.pair is False and count > 1:
            raise ValueError(f"this run reads one text, and {given}: {SEVERAL}")
        if self.pair and count != 2:
            raise ValueError(f"this run reads the two texts of a pair, and {given}: give two")
        if count > 2:
            raise ValueError(f"{given}: give one, or the two of a pair; {SEVERAL}")
        return Example(texts[0], texts[1] if count > 1 else None)

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


class Classification(ClassTask, PooledTask):
    """Cross-entropy of P(class | text)."""

    name: ClassVar[str] = "classification"
    wording: ClassVar[Wording] = Wording(
        goal="to distinguish {classes}",
        action="classifies texts",
        files="a file with a text and its class in each line",
    )
    baselines: ClassVar[Mapping[str, str]] = {
        "majority": "lmlab.baselines.majority:MajorityLabel",
        "bag of words": "lmlab.baselines.bag_of_words:WordClassifier",
    }

    @classmethod
    def settings_from(cls, labelled: Labelled, defaults: TaskDefaults, *, frozen: bool) -> dict[str, Any]:
        pair = labelled.train[0].b is not None
        return {**super().settings_from(labelled, defaults, frozen=frozen), "pair": pair}

    def check_labels(
        self, examples: Sequence[Example], *, path: str, detect: Callable[[], Labelled | None]
    ) -> list[str]:
        names, known = evidence.name_labels(examples), self.config.labels
        if not set(names) <= set(known) and are_mostly_numbers(names) and not are_mostly_numbers(known):
            raise ValueError(
                f"{path} holds the {'classes' if are_classes(names) else 'numbers'} {evidence.shorten_names(names)}, "
                f"and this run distinguishes {evidence.shorten_names(known)}; give {self.wording.files}, or name the "
                "column: --columns label=…"
            )
        return []
