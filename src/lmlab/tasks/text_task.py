"""Tasks over texts: what they read is tokenized, framed by special tokens, and cut to the window of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.data.loaders.examples import ExampleLoader
from lmlab.data.readers.examples import Example
from lmlab.layers.padding import gather_positions
from lmlab.models import name_of
from lmlab.models.abilities import GivesVectors, PredictsNext
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch
from lmlab.tasks.flops import segmented_flops
from lmlab.tasks.heads import pool
from lmlab.tasks.long_texts import read_in_segments
from lmlab.tasks.records import Item, TaskConfig
from lmlab.tasks.task import Task
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, Framed, Row, collate, make_frame, pad_rows


class TextTaskConfig(TaskConfig):
    """Settings of tasks that read text."""

    auxiliary: float = Field(
        0.0, ge=0, description="weight λ of the language-model loss added to that of the task (Radford et al. 2018)"
    )
    frame: dict[str, str] = Field(
        {"tokens": "cls:0 a:0 sep:0 b:1 sep:1"}, description="special tokens around the texts, for each model input"
    )
    backwards: bool = Field(False, description="read a text from its last token to the first, as in pre-training")
    window: int | None = Field(None, ge=4, description="most tokens of a row; longer texts are cut, or read in parts")
    segment: int | None = Field(
        None,
        ge=1,
        description="of stateful models: read long texts in segments of this many tokens, with gradients within each "
        "(BPTT for text classification); none: at once",
    )
    scheme: str | None = Field(None, description="of tags: IOB2 or IOBES spans; none: each tag is independent")


class TextTask(Task):
    """A task whose examples are texts, or words, or texts with choices."""

    Config: ClassVar[type[TaskConfig]] = TextTaskConfig
    config: TextTaskConfig
    reads_choices: ClassVar[bool] = False
    """Whether an example has choices."""

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer | None = None, frame: Frame | None = None) -> None:
        super().__init__(config, tokenizer, frame)
        if tokenizer is None:
            raise ValueError(f"{self.name} reads text, and this model has no tokenizer")
        self.tokenizer = tokenizer
        own = make_frame(self.config.frame, tokenizer, backwards=self.config.backwards)
        self.frame = replace(own, window=self.config.window, **self.frame_settings(self.config))

    @classmethod
    def frame_settings(cls, config: Any) -> dict[str, Any]:
        """Settings of the frame that this task needs, such as both orders of two texts."""
        return {}

    @classmethod
    def needs(cls, config: Any) -> tuple[type, ...]:
        if config.auxiliary and not config.trains_model:
            raise ValueError(
                f"objective.auxiliary = {config.auxiliary:g} trains the language model on the examples, and "
                f"--how {config.method} does not train the model: use --how full, or leave it out"
            )
        return (GivesVectors, PredictsNext) if config.auxiliary else (GivesVectors,)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**super().loss_weights, **({"language": self.config.auxiliary} if self.config.auxiliary else {})}

    # Examples of users

    def find_fault(self, example: Example) -> str | None:
        if not isinstance(example.a, str):
            return f"{self.name} reads a text: give it as a str"
        if example.b is not None and not isinstance(example.b, str):
            return "the second text must be a str"
        return f"{self.name} reads no choices: leave them out" if example.choices and not self.reads_choices else None

    # Examples to batches

    def inputs(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        rows = self.frame.rows([parts for item in items for parts in self.parts_of(item)])
        return collate(rows), self.positions(items, rows)

    def batch(self, raw: Sequence[Item], generator: np.random.Generator | None = None) -> Batch:
        batch = super().batch(raw)
        if not self.config.auxiliary or raw[0].vectors is not None:
            return batch
        language = int((batch.inputs["lengths"] - 1).sum())
        return batch._replace(counts={**batch.counts, "language": language})

    def make_loader(self, items: Sequence[Item], *, batch: int, seed: int) -> ExampleLoader:
        window = self.config.window or 0
        return ExampleLoader(items, batch=batch, window=window, seed=seed, tokens=self.length_of)

    def units_of(self, items: Sequence[Item]) -> dict[str, int]:
        return {**super().units_of(items), "tokens": sum(map(self.length_of, items))}

    def length_of(self, item: Item) -> int:
        """Tokens of an item that are read, in all its rows, without special tokens."""
        window = self.frame.window
        lengths = [sum(map(len, parts.values())) for parts in self.parts_of(item)]
        return self.orders * sum(length if window is None else min(length, window) for length in lengths)

    def left_out(self, item: Item) -> int:
        frame = self.frame
        if frame.window is None or frame.stride is not None or item.vectors is not None:
            return 0
        rows = [(sum(map(len, parts.values())), "".join(parts)) for parts in self.parts_of(item)]
        return sum(max(0, length + frame.overhead(frame.reads, letters) - frame.window) for length, letters in rows)

    def rows_of(self, item: Item) -> int:
        """In how many rows an item is read: one for each of its parts, in each order."""
        return self.orders * len(self.parts_of(item))

    @property
    def orders(self) -> int:
        """In how many orders the texts of an item are read."""
        return max(1, len(self.frame.orders))

    def parts_of(self, item: Item) -> list[Mapping[str, Any]]:
        """The texts of each row of an item, by the letters of the frame."""
        return [item.parts]

    def positions(self, items: Sequence[Item], rows: Sequence[Row]) -> dict[str, Tensor]:
        """Which vectors of rows are read: `at` [B, K], or `real` [B, T], those that are pooled."""
        framed = [next(iter(row.inputs.values())) for row in rows]
        if self.config.pool == "cls":
            return {"at": torch.tensor([[self._position_of_cls(each)] for each in framed])}
        if self.config.pool == "last":
            return {"at": torch.tensor([[len(each.pieces) - 1] for each in framed])}
        real, _ = pad_rows([[bool(part) for part in each.parts] or [True] for each in framed])
        empty = ~real.bool().any(1, keepdim=True)  # rows of special tokens alone: pool these
        lengths = torch.tensor([len(each.pieces) for each in framed])
        inside = torch.arange(real.shape[1]) < lengths[:, None]
        return {"real": torch.where(empty, inside, real.bool())}

    def _position_of_cls(self, row: Framed) -> int:
        if not self.frame.has("cls"):
            around = self.frame.templates[self.frame.reads]
            raise ValueError(f"--pool cls: this model reads {around!r}, without a cls; use last, mean, max or concat")
        lengths = {part: row.parts.count(part) for part in dict.fromkeys(row.parts) if part}
        return self.frame.position_of("cls", self.frame.reads, lengths)

    def cache_key(self) -> dict[str, Any]:
        return {**super().cache_key(), "frame": asdict(self.frame)}

    def item_key(self, item: Item) -> bytes:
        content = []
        for name, part in item.parts.items():
            for ids in part if isinstance(part, list) and part and not isinstance(part[0], int) else [part]:
                known = np.minimum(np.asarray(ids, np.int64), self.tokenizer.vocabulary)  # all new words alike …
                spelled = " ".join(self.tokenizer.new_words(ids))  # … but by their letters
                content += [f"{name} {len(ids)} ".encode(), known.astype(np.uint32).tobytes(), spelled.encode()]
        content.append(np.asarray(list((item.positions or {}).values()), np.int64).tobytes())
        return b"".join(content)

    # Vectors

    def smallest_batch(self, model: Model) -> Batch:
        rows = self.frame.rows([{"a": [self.tokenizer.boundary]}])
        return Batch(collate(rows, device=model.device), self.positions([], rows))

    def heads(self, model: Model) -> dict[str, nn.Module]:
        if self.config.auxiliary and not isinstance(model, PredictsNext):
            raise ValueError(
                f"objective.auxiliary = {self.config.auxiliary:g} predicts each next token from the vector before it, "
                f"but those of {name_of(model)} know what follows: leave it out, or use a left-to-right model"
            )
        if self.config.segment is not None and not (model.stateful and isinstance(model, PredictsNext)):
            raise ValueError(
                f"objective.segment = {self.config.segment} reads a text in segments, each after the state of those "
                f"before it, but {name_of(model)} reads it as a whole: leave it out, or use a recurrent model"
            )
        return super().heads(model)

    def _last_layer(self, model: Model, inputs: Mapping[str, Tensor], at: Tensor | None) -> Tensor:
        segment = self.config.segment
        if segment is None or inputs["tokens"].shape[1] <= segment:
            return super()._last_layer(model, inputs, at)
        vectors = read_in_segments(model, inputs["tokens"], segment=segment)
        return vectors if at is None else gather_positions(vectors, at)

    def _read_with_losses(self, model: Model, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        if not self.config.auxiliary:
            return super()._read_with_losses(model, batch)
        hidden = model(**batch.inputs).hidden
        return self._pick(hidden, batch), {"language": self._language_loss(model, hidden, batch)}

    def _pick(self, hidden: Tensor, batch: Batch) -> Tensor:
        """The vectors that the head reads, of all hidden ones."""
        if (real := batch.labels.get("real")) is not None:
            return pool(hidden, real, self.config.pool)[:, None]
        return gather_positions(hidden, batch.labels["at"])

    def _language_loss(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """The surprisal of the tokens of each row, from the ones before them."""
        tokens, lengths = batch.inputs["tokens"], batch.inputs["lengths"]
        inside = torch.arange(tokens.shape[1] - 1, device=tokens.device) < (lengths - 1)[:, None]
        total: Tensor = model.total_nll(hidden[:, :-1][inside], tokens[:, 1:][inside])
        return total

    # Costs

    def model_flops(self, model: Model, batch: Batch) -> float:
        segment, longest = self.config.segment, next(iter(batch.inputs.values())).shape[1]
        if segment is not None and longest > segment and not self.config.auxiliary:
            return segmented_flops(model, batch, segment=segment)
        total = super().model_flops(model, batch)
        return total + PASSES * model.head_flops() * batch.counts["language"] if self.config.auxiliary else total

    def positions_read(self, batch: Batch) -> int | None:
        return None if self.config.auxiliary else super().positions_read(batch)
