"""Multiple choice: one score for each choice, and a softmax over them (Radford et al. 2018, section 3.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lmlab.data.corpora.checking import LabelSummary, format_counts
from lmlab.data.readers.examples import Example, Labelled
from lmlab.metrics.classification import ChoiceAccuracy
from lmlab.metrics.metric import Metric
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.pages.evidence import Evidence
from lmlab.tasks import evidence
from lmlab.tasks.classification import PooledTask
from lmlab.tasks.records import Item, Prediction, TaskConfig, Wording
from lmlab.tasks.task import order_metrics


class Choice(PooledTask):
    """Cross-entropy of P(choice | question), from a row of each choice with its question."""

    name: ClassVar[str] = "choice"
    reads_choices: ClassVar[bool] = True
    wording: ClassVar[Wording] = Wording(
        goal="to choose among answers",
        action="chooses between answers",
        files="a table of questions with their choices",
        input='"a question?" "first choice" "second choice"',
    )
    baselines: ClassVar[Mapping[str, str]] = {
        "chance": "lmlab.baselines.majority:ChanceChoice",
        "majority": "lmlab.baselines.majority:MajorityChoice",
        "bag of words": "lmlab.baselines.span_baselines:ChoiceOverlap",
    }

    @classmethod
    def summarise_labels(cls, labelled: Labelled) -> LabelSummary:
        counts = Counter(str(example.label + 1) for example in labelled.train)
        return LabelSummary(counts=counts, lines=format_counts(counts, "right choices"))

    @classmethod
    def metrics_of(cls, config: TaskConfig) -> dict[str, Metric]:
        return order_metrics(cls.name, (ChoiceAccuracy(),), main=config.metric)

    @classmethod
    def example_commands(cls, *, pair: bool = False) -> tuple[str, str]:
        return super().example_commands()

    @classmethod
    def show_evidence(cls, lines: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Evidence:
        right = [line["predicted"] == line["true"] for line in lines]
        calibration = evidence.calibrate(lines, right)
        return evidence.make_evidence(lines, right, describe=evidence.describe_choice, calibration=calibration)

    @property
    def pair(self) -> bool | None:
        return False

    def find_fault(self, example: Example) -> str | None:
        if fault := super().find_fault(example):
            return fault
        if len(example.choices) < 2 or not all(isinstance(each, str) for each in example.choices):
            return "a question needs two choices or more, each a str: give choices=(…, …)"
        return None

    def make_example(self, texts: Sequence[str]) -> Example:
        if not texts:
            raise ValueError("there is nothing to predict: give a text")
        if len(texts) < 3:
            raise ValueError(f"a question with {len(texts) - 1} choice(s): give it with two choices or more")
        return Example(texts[0], choices=tuple(texts[1:]))

    def items(self, examples: Sequence[Example]) -> list[Item]:
        questions = [f"{example.b} {example.a}" if example.b else str(example.a) for example in examples]
        first = self.tokenizer.encode_batch(questions)
        choices = self.tokenizer.encode_batch([choice for example in examples for choice in example.choices])
        found, begin = [], 0
        for number, (example, question) in enumerate(zip(examples, first, strict=True)):
            own = choices[begin : begin + len(example.choices)]
            begin += len(example.choices)
            found.append(Item(number, {"question": question, "choices": own}, example.label))
        return found

    def parts_of(self, item: Item) -> list[Mapping[str, Any]]:
        return [{"a": item.parts["question"], "b": choice} for choice in item.parts["choices"]]

    def targets(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], int]:
        labels = [IGNORE if item.label is None else int(item.label) for item in items]
        choices = [len(item.parts["choices"]) for item in items]
        return {"label": torch.tensor(labels), "choices": torch.tensor(choices)}, sum(
            label != IGNORE for label in labels
        )

    def scored(self, batch: Batch) -> int:
        """One for each choice; of vectors computed before, items are padded to the most choices."""
        choices = batch.labels["choices"]
        return int(choices.sum() if self.config.trains_model else len(choices) * choices.max())

    def score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        """[N, most choices], minus infinity where an item has fewer."""
        choices = batch.labels["choices"]
        inside = torch.arange(int(choices.max()), device=vectors.device) < choices[:, None]
        if "vectors" in batch.inputs:  # [N, most choices · orders, D]
            vectors = vectors.reshape(len(choices), -1, self.orders, vectors.shape[-1]).sum(2)
            scores: Tensor = heads["label"](vectors)[..., 0]
            return scores.masked_fill(~inside, -torch.inf)
        flat = heads["label"](vectors.reshape(-1, self.orders, vectors.shape[-1]).sum(1))[:, 0]  # one for each choice
        return torch.full(inside.shape, -torch.inf, device=flat.device, dtype=flat.dtype).masked_scatter(inside, flat)

    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        return [
            Prediction(
                int(probabilities.argmax()),
                float(probabilities.max()),
                dict(zip(example.choices, map(float, probabilities), strict=False)),
            )
            for example, probabilities in zip(examples, decoded, strict=True)
        ]
