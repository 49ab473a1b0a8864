"""Questions about pictures: the answer is one of the answers in the training data.

The model reads the pixels and the question: one that reads both at once (`vqa`), or one that gives each a vector in one
space (`MatchesPictures`); the head reads both vectors and their product.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.pictures.captions import CaptionsConfig
from lmlab.data.corpora.pictures.images import open_pictures
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.corpora.splitting import NAMES as SPLITS
from lmlab.data.loaders.examples import ExampleLoader, GroupedLoader
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled.labels import find_labels
from lmlab.data.readers.media import Picture
from lmlab.data.readers.pictures.decoding import read_picture
from lmlab.data.readers.pictures.files import BUILTIN, TABLES
from lmlab.models.abilities import MatchesPictures, ability
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch
from lmlab.tasks.classification import Classification, PooledConfig
from lmlab.tasks.pictures import stack_pixels
from lmlab.tasks.records import Item, TaskConfig, Wording
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import FILE as FRAME
from lmlab.tokenizers.frames import Frame, Row
from lmlab.tokenizers.processors.pictures import PictureProcessor

USAGE = 'lmlab predict RUN PICTURE --question "what colour is the circle?"'


class VisualQuestionsConfig(PooledConfig):
    """Settings of questions about pictures."""

    frame: dict[str, str] = Field({"tokens": "a boundary"}, description="special tokens, if the run has no frame")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability in the head")


class VisualQuestions(Classification):
    """Cross-entropy of P(answer | picture, question)."""

    Config: ClassVar[type[TaskConfig]] = VisualQuestionsConfig
    name: ClassVar[str] = "visual_questions"
    reads: ClassVar[tuple[str, ...]] = ("captions",)
    wording: ClassVar[Wording] = Wording(
        goal="to answer questions about pictures",
        action="answers questions about pictures",
        files="a table with a picture, a question and its answer in each row",
        input='PICTURE --question "a question"',
    )

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer | None = None, frame: Frame | None = None) -> None:
        super().__init__(config, tokenizer, frame)
        if frame is not None:
            self.frame = replace(frame, window=self.config.window)

    def open(self, run: Path) -> None:
        """Read questions with the special tokens of the run."""
        if (run / FRAME).is_file():
            self.frame = replace(Frame.load(run), window=self.config.window)

    def process_by(self, processor: Any) -> None:
        """Read pictures by this processor."""
        if not isinstance(processor, PictureProcessor):
            raise ValueError(f"{self.name} needs a processor of pictures, not {processor!r}")
        self.processor = processor

    @classmethod
    def settings_from_corpus(cls, config: Any, corpus: Corpus) -> dict[str, Any]:
        """The answers of the training data; a ValueError where there are no questions, or a row has no answer."""
        split = corpus.train
        if config.labels or not isinstance(split, PictureSplit):
            return {}
        if "question" not in split.fields:
            there = ", ".join(split.fields)
            raise ValueError(
                f"these pictures have no questions ({there} were found): name the columns, --columns "
                "question=NAME,label=NAME; the built-in data with questions are builtin:scene-questions"
            )
        if None in split.labels:
            name = split.names[list(split.labels).index(None)]
            raise ValueError(f"a question about {name} has no answer: give it in a column answer, or name the column")
        names = find_labels([Example(label=label) for label in dict.fromkeys(split.labels)])
        if len(names) < 2:
            raise ValueError(f"all questions have the answer {names[0]!r}: there is nothing to learn")
        return {"labels": list(names)}

    # Examples of users

    def make_example(self, texts: Sequence[str]) -> Example:
        """An example from the path of a picture and a question."""
        if len(texts) != 2:
            raise ValueError(f"give a picture and a question: {USAGE}")
        pixels = self.processor.process(read_picture(Path(texts[0])))
        return Example(texts[1], source=texts[0], media=Picture(pixels))

    def read_paths(self, paths: Sequence[str]) -> list[Example]:
        """A picture with a question, or all rows of a table, whose answers are not looked at."""
        if len(paths) != 1 or not (paths[0].startswith(BUILTIN) or paths[0].lower().endswith(TABLES)):
            return [self.make_example(paths)]
        found = self.read_labelled(paths[0])
        return [each._replace(label=None) for part in (found.train, found.valid, found.test) for each in part or ()]

    def read_labelled(self, path: str, *, columns: Mapping[str, str] | None = None) -> Labelled:
        """The rows of a table with their answers, by split if it has splits; bad pictures are skipped."""
        config = CaptionsConfig(captions=[path], split=[1.0], columns=dict(columns or {}), bad="skip")
        splits = open_pictures(config, config.captions, given=self.processor, progress=None).splits
        train, valid, test = ((splits[name].examples if name in splits else None) for name in SPLITS)
        return Labelled(task="classification", train=train or (), valid=valid, test=test)

    def find_fault(self, example: Example) -> str | None:
        if not isinstance(example.media, Picture):
            return f"{self.name} reads a picture with a question: {USAGE}"
        return super().find_fault(example)

    # Examples to batches

    def items(self, examples: Sequence[Example]) -> list[Item]:
        texts = super().items(examples)
        pixels = [example.media.pixels for example in examples if isinstance(example.media, Picture)]
        return [
            replace(item, parts={**item.parts, "pixels": own, "picture": digest(own)})
            for item, own in zip(texts, pixels, strict=True)
        ]

    def make_loader(self, items: Sequence[Item], *, batch: int, seed: int) -> ExampleLoader:
        window = self.config.window or 0
        return GroupedLoader(
            items,
            batch=batch,
            window=window,
            seed=seed,
            group=lambda item: item.parts["picture"],
            tokens=self.length_of,
        )

    def parts_of(self, item: Item) -> list[Mapping[str, Any]]:
        return [{"a": item.parts["a"]}]

    def inputs(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Each picture once; `pictures` [B] has the number of each question's picture."""
        texts, positions = super().inputs(items)
        first = {item.parts["picture"]: item for item in reversed(items)}
        numbers = {picture: number for number, picture in enumerate(first)}
        pictures = torch.tensor([numbers[item.parts["picture"]] for item in items])
        pixels = self.processor.normalise(stack_pixels(list(first.values())))
        return {**texts, "pixels": pixels, "pictures": pictures}, positions

    def positions(self, items: Sequence[Item], rows: Sequence[Row]) -> dict[str, Tensor]:
        """There is one vector of each picture with its question."""
        return {"at": torch.zeros(len(rows), 1, dtype=torch.long)}

    def item_key(self, item: Item) -> bytes:
        picture: bytes = item.parts["picture"]
        return super().item_key(replace(item, parts={"a": item.parts["a"]})) + picture

    # Vectors

    def smallest_batch(self, model: Model) -> Batch:
        batch = super().smallest_batch(model)
        pixels = torch.zeros(1, self.processor.channels, self.processor.height, self.processor.width)
        return batch._replace(inputs={**batch.inputs, "pixels": pixels.to(model.device)})

    def _last_layer(self, model: Model, inputs: Mapping[str, Tensor], at: Tensor | None) -> Tensor:
        """One vector of each picture with its question, [B, 1, D]."""
        matcher = ability(model, MatchesPictures)
        if matcher is None:
            return model.vectors(**inputs)[:, :1]
        picture = matcher.embed_pictures(inputs["pixels"])
        picture = picture[inputs["pictures"]] if "pictures" in inputs else picture
        question = matcher.embed_texts(inputs["tokens"], inputs.get("lengths"))
        return torch.cat([picture, question, picture * question], dim=-1)[:, None]

    def model_flops(self, model: Model, batch: Batch) -> float:
        matcher = ability(model, MatchesPictures)
        if matcher is not None:
            return PASSES * matcher.matching_flops(batch.inputs)
        return PASSES * model.reading_flops(batch.inputs)


def digest(pixels: NDArray[np.uint8]) -> bytes:
    """A hash by which equal pictures are known."""
    return hashlib.blake2b(np.ascontiguousarray(pixels).tobytes(), digest_size=16).digest()
