"""Classes of pictures, from the vector that represents a whole picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.pictures.images import ImagesConfig, open_pictures
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.corpora.splitting import NAMES as SPLITS
from lmlab.data.loaders.augmentation import Augmentation, augment
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled.labels import find_labels
from lmlab.data.readers.media import Picture
from lmlab.data.readers.pictures.decoding import read_picture
from lmlab.data.readers.pictures.files import list_pictures, read_named
from lmlab.models.defaults import TaskDefaults
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch
from lmlab.pages.evidence import Mistake
from lmlab.pages.figures.pictures import data_uri
from lmlab.tasks.classes import ClassTask
from lmlab.tasks.heads import Classifier
from lmlab.tasks.records import Item, Prediction, TaskConfig, Wording
from lmlab.tokenizers.processors.pictures import PictureProcessor, make_thumbnail

THUMBNAIL = 96
"""Pixels of the longer side of a picture in a report, at most."""
PIXELS_PER_UNIT = 16
"""Pixels that count as one unit of length when pictures are put into batches for prediction."""


class PictureClassificationConfig(TaskConfig):
    """Settings of the classification of pictures."""

    crop: int = Field(0, ge=0, description="augmentation: shift training pictures by up to this many pixels")
    flip: bool = Field(False, description="augmentation: mirror half of the training pictures; not for letters")
    colour: float = Field(0.0, ge=0, le=1, description="augmentation: change brightness and contrast by this fraction")


class PictureClassification(ClassTask):
    """Cross-entropy of P(class | picture)."""

    Config: ClassVar[type[TaskConfig]] = PictureClassificationConfig
    config: PictureClassificationConfig
    name: ClassVar[str] = "picture_classification"
    pooled: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("images",)
    wording: ClassVar[Wording] = Wording(
        goal="to distinguish {classes}",
        action="classifies pictures",
        files="a folder with a folder of pictures for each class",
        input="PICTURE",
    )
    baselines: ClassVar[Mapping[str, str]] = {
        "majority": "lmlab.baselines.majority:MajorityLabel",
        "nearest mean": "lmlab.baselines.pixels:NearestMean",
        "linear on pixels": "lmlab.baselines.pixels:LinearOnPixels",
    }

    def process_by(self, processor: Any) -> None:
        """Read pictures by this processor."""
        if not isinstance(processor, PictureProcessor):
            raise ValueError(f"{self.name} needs a processor of pictures, not {processor!r}")
        self.processor = processor

    @classmethod
    def settings_from(cls, labelled: Labelled, defaults: TaskDefaults, *, frozen: bool) -> dict[str, Any]:
        settings = super().settings_from(labelled, defaults, frozen=frozen)
        return {**settings, "pool": "mean" if frozen else defaults.pool}

    @classmethod
    def settings_from_corpus(cls, config: Any, corpus: Corpus) -> dict[str, Any]:
        """The names of the classes; a ValueError if a picture has none, or there is one class only."""
        if config.labels:
            return {}
        splits = [split for split in (corpus.train, corpus.valid, corpus.test) if isinstance(split, PictureSplit)]
        for split in splits:
            for name, label in zip(split.names, split.labels, strict=True):
                if label is None:
                    raise ValueError(
                        f"{name} has no class: put the pictures of each class into a folder with its name, or give a "
                        "table with the columns picture and label"
                    )
        names = find_labels([Example(label=label) for label in dict.fromkeys(splits[0].labels)])
        if len(names) < 2:
            raise ValueError(f"all pictures are of one class, {names[0]!r}: there is nothing to distinguish")
        for split in splits[1:]:
            if strange := [label for label in dict.fromkeys(split.labels) if label not in names]:
                raise ValueError(f"the class {strange[0]!r} is held out, but no training picture has it; add some")
        return {"labels": list(names)}

    @classmethod
    def example_commands(cls, *, pair: bool = False) -> tuple[str, str]:
        return "lmlab predict {run} PICTURE", "lmlab evaluate {run} FOLDER"

    @classmethod
    def describe_mistake(cls, line: Mapping[str, Any]) -> Mistake:
        """A wrong class, with a small copy of the picture if its file is still there."""
        name = str(line.get("picture", ""))
        pixels = read_named(name)
        return Mistake(
            picture="" if pixels is None else data_uri(make_thumbnail(pixels, THUMBNAIL)),
            texts=[Path(name).name],
            predicted=str(line["predicted"]),
            true=str(line["true"]),
        )

    # Pictures of users

    def make_example(self, texts: Sequence[str]) -> Example:
        """An example from the path of a picture."""
        if len(texts) != 1:
            raise ValueError(f"{len(texts)} paths are given for one picture: give one")
        return self.read_example(Path(texts[0]))

    def read_example(self, path: Path) -> Example:
        """The picture of a file, in the size that the model reads."""
        return Example(source=str(path), media=Picture(self.processor.process(read_picture(path))))

    def read_paths(self, paths: Sequence[str]) -> list[Example]:
        """The pictures of files, and all pictures of folders."""
        return [self.read_example(path) for path in list_pictures(paths)]

    def read_labelled(self, path: str, *, columns: Mapping[str, str] | None = None) -> Labelled:
        """The pictures of a folder or a table with their classes, by split if it has splits; bad files are skipped."""
        config = ImagesConfig(images=[path], split=[1.0], columns=dict(columns or {}), bad="skip")
        splits = open_pictures(config, config.images, given=self.processor, progress=None).splits
        train, valid, test = ((splits[name].examples if name in splits else None) for name in SPLITS)
        return Labelled(task="picture_classification", train=train or (), valid=valid, test=test)

    def find_fault(self, example: Example) -> str | None:
        if not isinstance(example.media, Picture):
            return f"{self.name} reads a picture: give it as `media`"
        if example.media.pixels.shape != self.processor.shape:
            shapes = f"{list(example.media.pixels.shape)}, not {list(self.processor.shape)}"
            return f"the picture has the shape {shapes}: use processor.process"
        return None

    def format_prediction(self, example: Example, found: Prediction, *, top: int) -> str:
        return super().format_prediction(example._replace(a=example.source), found, top=top)

    # Examples to batches

    def items(self, examples: Sequence[Example]) -> list[Item]:
        found = []
        for number, example in enumerate(examples):
            assert isinstance(example.media, Picture)
            found.append(Item(number, {"pixels": example.media.pixels}, self.label_of(example)))
        return found

    def batch(self, raw: Sequence[Item], generator: np.random.Generator | None = None) -> Batch:
        """Items as a batch; with a generator, of the batch's own random numbers, training pictures are augmented."""
        if raw[0].vectors is not None or generator is None or not self.augmentation.changes:
            return super().batch(raw, generator)
        pixels = augment(stack_pixels(raw), self.augmentation, generator)
        return super().batch(
            [Item(item.number, {"pixels": own}, item.label) for item, own in zip(raw, pixels, strict=True)]
        )

    @property
    def augmentation(self) -> Augmentation:
        """How training pictures are changed."""
        return Augmentation(crop=self.config.crop, flip=self.config.flip, colour=self.config.colour)

    def inputs(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Normalised pixels [B, C, H, W]; `at` [B, 1] is the position of the class vector, unless all are pooled."""
        pixels = self.processor.normalise(stack_pixels(items))
        if self.config.pool == "cls":
            return {"pixels": pixels}, {"at": torch.zeros(len(items), 1, dtype=torch.long)}
        return {"pixels": pixels}, {}

    def length_of(self, item: Item) -> int:
        height, width, _ = self.processor.shape
        return max(1, height * width // PIXELS_PER_UNIT)

    def cache_key(self) -> dict[str, Any]:
        return {**super().cache_key(), "processor": self.processor.fingerprint}

    # Vectors

    def read(self, model: Model, batch: Batch) -> Tensor:
        """The class vector [B, 1, D], or the mean or largest of all vectors of a picture."""
        vectors = super().read(model, batch)
        if "at" in batch.labels:
            return vectors
        pooled = vectors.mean(1, keepdim=True) if self.config.pool == "mean" else vectors.amax(1, keepdim=True)
        return pooled

    def smallest_batch(self, model: Model) -> Batch:
        positions = {"at": torch.zeros(1, 1, dtype=torch.long)} if self.config.pool == "cls" else {}
        return Batch(model.blank_inputs(1, 1), positions)

    def make_head(self, width: int) -> dict[str, nn.Module]:
        head = Classifier(width, self.outputs, dropout=self.config.dropout, activation=self.config.activation)
        return {"label": head}

    def scored(self, batch: Batch) -> int:
        return len(batch.labels["label"])

    def score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        scores: Tensor = heads["label"](vectors[:, 0])
        return scores


def stack_pixels(items: Sequence[Item]) -> NDArray[np.uint8]:
    """The pixels of items, [B, H, W, C]."""
    return np.stack([item.parts["pixels"] for item in items])
