"""Instructions: predict the action, or the answer, that a command calls for in a picture, word by word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from lmlab.config import Config
from lmlab.data.corpora.pictures.images import PictureSplit, TokenRows
from lmlab.data.loaders.pictures import PictureLoader, PictureRows
from lmlab.models.abilities import FollowsCommands, LearnsTarget
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.objectives.seq2seq import TargetLoss
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, pad_rows


class InstructionsConfig(Config):
    """How commands are taught."""

    hide_command: bool = Field(False, description="replace every command by nothing: the control that cannot follow it")


class Instructions(TargetLoss):
    """−log P(action | picture, command) = −Σ_t log P(y_t | y_1 … y_{t−1}, picture, command) (Brohan et al. 2023)."""

    Config: ClassVar[type[Config]] = InstructionsConfig
    reads: ClassVar[tuple[str, ...]] = ("captions",)
    default_for: ClassVar[tuple[str, ...]] = ()
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False

    def __init__(
        self, config: InstructionsConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        super().__init__(0.0)
        self.config, self.frame = config or InstructionsConfig(), frame

    @classmethod
    def needs(cls, config: object) -> tuple[type, ...]:
        return (LearnsTarget, FollowsCommands)

    def process_by(self, processor: Any) -> None:
        """Make inputs of pictures by this processor from now on."""
        self.processor = processor

    def loader(self, data: PictureSplit, *, batch: int, window: int, seed: int, streams: bool) -> PictureLoader:
        if self.frame is None:
            raise ValueError("commands need the frame of their model; give Instructions frame_of(model, tokenizer)")
        self.frame = replace(self.frame, window=window + 1)  # the last token is predicted, and not read
        tokens_of(data, "command"), tokens_of(data, "action")
        return PictureLoader(data, batch=batch, seed=seed)

    def batch(self, raw: PictureRows, generator: np.random.Generator | None = None) -> Batch:
        """Pictures, commands x1 .. xn b, and target rows b y1 .. ym, to be followed by y1 .. ym b."""
        assert self.frame is not None, "commands are text"
        commands, actions = tokens_of(raw.split, "command"), tokens_of(raw.split, "action")
        nothing = np.zeros(0, np.uint32)
        rows = self.frame.rows(
            [
                {"a": nothing if self.config.hide_command else commands.row(row), "b": actions.row(row)}
                for row in raw.rows.tolist()
            ]
        )
        source, lengths = pad_rows([row.inputs["source"].pieces for row in rows])
        target, target_lengths = pad_rows([row.inputs["tokens"].pieces for row in rows])
        target_lengths = target_lengths - 1
        predicted = torch.arange(target.shape[1] - 1) < target_lengths[:, None]
        count = int(predicted.sum())
        return Batch(
            {
                "tokens": target[:, :-1].contiguous(),
                "pixels": self.processor.normalise(raw.pixels),
                "source": source,
                "lengths": lengths,
                "target_lengths": target_lengths,
            },
            {"targets": target[:, 1:].masked_fill(~predicted, IGNORE)},
            {"target": count, "nats": count},
            {"images": len(rows)},
        )


def tokens_of(split: PictureSplit, field: str) -> TokenRows:
    """The tokens of a text field of a split; a ValueError where it has none."""
    if split.tokens is None or field not in split.tokens:
        there = ", ".join(split.fields) or "no texts"
        raise ValueError(
            f"these pictures have no column {field!r} ({there} were found): a table for a policy has a picture, a "
            f"command and an action in each row; name the columns: --columns command=NAME,action=NAME"
        )
    return split.tokens[field]
