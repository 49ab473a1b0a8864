"""Instructions: predict the action, or the answer, that a command calls for in a picture, word by word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lmlab.config import Config
from lmlab.data.corpora.pictures.split import TokenRows
from lmlab.models.abilities import FollowsCommands, LearnsTarget
from lmlab.objectives.captioning import PictureTargets
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame


class InstructionsConfig(Config):
    """How commands are taught."""

    hide_command: bool = Field(False, description="replace every command by nothing: the control that cannot follow it")


class Instructions(PictureTargets):
    """−log P(action | picture, command) = −Σ_t log P(y_t | y_1 … y_{t−1}, picture, command) (Brohan et al. 2023)."""

    Config: ClassVar[type[Config]] = InstructionsConfig
    default_for: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[tuple[str, ...]] = ("command", "action")

    def __init__(
        self, config: InstructionsConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        super().__init__(frame)
        self.config = config or InstructionsConfig()

    @classmethod
    def needs(cls, config: object) -> tuple[type, ...]:
        return (LearnsTarget, FollowsCommands)

    def parts(self, tokens: Mapping[str, TokenRows], row: int) -> dict[str, NDArray[np.uint32]]:
        command = np.zeros(0, np.uint32) if self.config.hide_command else tokens["command"].row(row)
        return {"a": command, "b": tokens["action"].row(row)}
