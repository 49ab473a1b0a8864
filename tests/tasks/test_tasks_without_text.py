"""A task needs no tokenizer and no frame: classes of pictures, read by a model of patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.data.readers.examples import Example
from lmlab.data.readers.media import Picture
from lmlab.layers.watching import record_layer
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.metric import Metric
from lmlab.models.model import Model, ModelConfig, Output
from lmlab.objectives.objective import Batch, weighted_mean
from lmlab.tasks.frozen_vectors import hash_weights, with_vectors
from lmlab.tasks.heads import Classifier
from lmlab.tasks.predicting import Predictor, TaskValidator
from lmlab.tasks.records import Item, Prediction, TaskConfig
from lmlab.tasks.task import Task
from lmlab.training.learner import Learner


class PatchesConfig(ModelConfig):
    width: int = 8


class Patches(Model):
    """Each row of pixels is a patch; two layers over each."""

    Config = PatchesConfig

    def __init__(self, config: PatchesConfig, pixels: int) -> None:
        super().__init__()
        self.config, self.pixels = config, pixels
        self.embedding = nn.Linear(pixels, config.width)
        self.layer = nn.Linear(config.width, config.width)

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        return {"patches": torch.zeros(rows, window, self.pixels)}

    def forward(self, patches: Tensor) -> Output:
        embedded = self.embedding(patches)
        record_layer(embedded)
        hidden = torch.tanh(self.layer(embedded)) + embedded
        record_layer(hidden)
        return Output(hidden)

    def depths(self) -> list[list[nn.Parameter]]:
        return [list(self.embedding.parameters()), list(self.layer.parameters()), []]

    def embedding_flops_of(self, inputs: Mapping[str, Tensor]) -> float:
        return 0.0

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return 2.0 * (self.embedding.weight.numel() + self.layer.weight.numel())


class PictureClasses(Task):
    """Classes of pictures, from the mean vector of their patches."""

    name: ClassVar[str] = "pictures"

    @classmethod
    def metrics_of(cls, config: TaskConfig) -> dict[str, Metric]:
        return {"accuracy": Accuracy()}

    def items(self, examples: Sequence[Example]) -> list[Item]:
        items = []
        for number, example in enumerate(examples):
            assert isinstance(example.media, Picture)
            label = None if example.label is None else self.config.labels.index(example.label)
            patches = (example.media.pixels[..., 0] / 255).astype(np.float32)
            items.append(Item(number, {"patches": patches}, label))
        return items

    def inputs(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        patches = torch.from_numpy(np.stack([item.parts["patches"] for item in items]))
        return {"patches": patches}, {"real": torch.ones(patches.shape[:2], dtype=torch.bool)}

    def targets(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], int]:
        labels = [-100 if item.label is None else item.label for item in items]
        return {"label": torch.tensor(labels)}, sum(label >= 0 for label in labels)

    def make_head(self, width: int) -> dict[str, nn.Module]:
        return {"label": Classifier(width, len(self.config.labels), dropout=self.config.dropout)}

    def scored(self, batch: Batch) -> int:
        return len(batch.labels["label"])

    def score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        scores: Tensor = heads["label"](vectors[:, 0])
        return scores

    def loss_of(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(scores, batch.labels["label"], reduction="sum")

    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        return list(scores.softmax(-1))

    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        return [Prediction(self.config.labels[int(each.argmax())], float(each.max())) for each in decoded]


def pictures(count: int) -> list[Example]:
    """Bright and dark pictures of 3 by 4 pixels."""
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 100, (3, 4, 1)) + 150 * (number % 2) for number in range(count)]
    labels = [("dark", "bright")[number % 2] for number in range(count)]
    return [
        Example(media=Picture(each.astype(np.uint8)), label=label) for each, label in zip(pixels, labels, strict=True)
    ]


@pytest.mark.parametrize("method", ["full", "frozen", "mix"])
def test_pictures_are_learnt_by_every_method(method: str) -> None:
    torch.manual_seed(0)
    config = TaskConfig.model_validate({"labels": ["dark", "bright"], "method": method, "pool": "mean", "dropout": 0})
    task, model, examples = PictureClasses(config), Patches(PatchesConfig(), pixels=4), pictures(16)
    heads = task.heads(model)
    objective: Any = task
    learner = Learner(model, objective, heads)
    items = task.items(examples)
    if method != "full":
        model.requires_grad_(False)
        items = with_vectors(task, model, items, weights=hash_weights(model))
    loader = task.make_loader(items, batch=16, seed=0)
    assert loader.units_per_step == {"examples": 16.0}, "pictures have no tokens"
    assert task.step_flops(model, heads, loader) > 0
    optimizer = torch.optim.Adam([each for each in learner.parameters() if each.requires_grad], 0.05)
    for step in range(60):
        batch = task.batch(loader.batch(step))
        loss = weighted_mean(learner(batch).sums, batch.counts, task.loss_weights)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    predictor = Predictor(task=task, model=model, heads=heads)
    assert [each.value for each in predictor.predict(examples)] == [example.label for example in examples]
    called: list[Any] = []
    learner.register_forward_hook(lambda module, arguments, output: called.append(output))
    found = TaskValidator(learner, task, examples, task.items(examples))()
    assert called, "wrappers such as FSDP must see the call"
    assert found.values["accuracy"] == 1.0
