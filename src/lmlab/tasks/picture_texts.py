"""Classes of texts about pictures: sentences that are true or false, or questions with their answers.

The model reads the text with the regions of the picture (`ReadsRegions`); the head reads one vector of both. Examples
are read as questions about pictures are (visual_questions.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.loaders.examples import ExampleLoader
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled.labels import find_labels
from lmlab.data.readers.media import Picture
from lmlab.data.readers.pictures.regions import make_vectors
from lmlab.models.abilities import ReadsRegions, require
from lmlab.models.defaults import TaskDefaults
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.masked_captions import collate_regions
from lmlab.objectives.objective import Batch
from lmlab.tasks.classification import Classification, PooledConfig
from lmlab.tasks.records import Item, TaskConfig, Wording
from lmlab.tasks.visual_questions import VisualQuestions


class PictureTexts(VisualQuestions):
    """Cross-entropy of P(class | text, picture)."""

    Config: ClassVar[type[TaskConfig]] = PooledConfig
    config: PooledConfig
    name: ClassVar[str] = "picture_texts"
    reads: ClassVar[tuple[str, ...]] = ("captions", "examples")
    wording: ClassVar[Wording] = Wording(
        goal="to tell {classes} apart, of texts about pictures",
        action="tells classes of texts about pictures apart",
        files="a table with a picture, a sentence or question, and its label in each row",
        input='PICTURE "a sentence"',
        ending="jsonl",
    )

    @classmethod
    def needs(cls, config: TaskConfig) -> tuple[type, ...]:
        if config.pool != "cls":
            raise ValueError(f"--pool {config.pool}: {cls.name} reads one vector of text and picture; leave it out")
        return (*super().needs(config), ReadsRegions)

    @classmethod
    def settings_from(cls, labelled: Labelled, defaults: TaskDefaults, *, frozen: bool) -> dict[str, Any]:
        head = {"pool": "cls", "activation": None, "hidden": None, "bias": True}
        return {**super().settings_from(labelled, defaults, frozen=frozen), **head}

    @classmethod
    def settings_from_corpus(cls, config: Any, corpus: Corpus) -> dict[str, Any]:
        """The names of the classes, where they are not given."""
        if config.labels or not isinstance(corpus.train, PictureSplit):
            return {}
        splits = [split for split in (corpus.train, corpus.valid, corpus.test) if isinstance(split, PictureSplit)]
        for split in splits:
            if None in split.labels:
                name = split.names[list(split.labels).index(None)]
                raise ValueError(f"{name} has no label: give a table with the column label (or answer), or name it")
        names = find_labels([Example(label=label) for label in dict.fromkeys(splits[0].labels)])
        if len(names) < 2:
            raise ValueError(f"all texts have one label, {names[0]!r}: there is nothing to tell apart")
        return {"labels": list(names)}

    # Examples to batches

    def items(self, examples: Sequence[Example]) -> list[Item]:
        found = Classification.items(self, examples)
        return [
            replace(item, parts={"a": item.parts["a"], "picture": example.media})
            for item, example in zip(found, examples, strict=True)
        ]

    def make_loader(self, items: Sequence[Item], *, batch: int, seed: int) -> ExampleLoader:
        return Classification.make_loader(self, items, batch=batch, seed=seed)

    def inputs(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        texts, positions = Classification.inputs(self, items)
        return {**texts, **collate_regions([item.parts["picture"] for item in items], self.processor)}, positions

    def length_of(self, item: Item) -> int:
        """Tokens and regions."""
        picture: Picture = item.parts["picture"]
        regions = 0 if picture.regions is None else len(picture.regions.boxes)
        return super().length_of(item) + regions

    def item_key(self, item: Item) -> bytes:
        text = replace(item, parts={"a": item.parts["a"]})
        found = make_vectors(item.parts["picture"], self.processor)
        return Classification.item_key(self, text) + np.concatenate([found.vectors, found.boxes], axis=1).tobytes()

    # Vectors

    def open(self, run: Path) -> None:
        window = self.frame.window
        super().open(run)
        self.frame = replace(self.frame, window=window)

    def heads(self, model: Model) -> dict[str, nn.Module]:
        """The head; texts are cut to the window of the model."""
        window = min(filter(None, (self.frame.window, model.window)), default=None)
        self.frame = replace(self.frame, window=window)
        return super().heads(model)

    def smallest_batch(self, model: Model) -> Batch:
        batch = Classification.smallest_batch(self, model)
        blank = model.blank_inputs(1, 1)
        return batch._replace(inputs={**batch.inputs, "regions": blank["regions"], "boxes": blank["boxes"]})

    def _last_layer(self, model: Model, inputs: Mapping[str, Tensor], at: Tensor | None) -> Tensor:
        """The joint vector of each text with its picture, [B, 1, J]."""
        first = torch.zeros(len(inputs["tokens"]), 1, dtype=torch.long, device=inputs["tokens"].device)
        return require(model, ReadsRegions).read_both(**inputs, at=first).joint[:, None]

    def model_flops(self, model: Model, batch: Batch) -> float:
        joint = require(model, ReadsRegions).match_flops() * len(batch.labels["label"])
        return Classification.model_flops(self, model, batch) + PASSES * joint
