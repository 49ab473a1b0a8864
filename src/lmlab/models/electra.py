"""ELECTRA: a small generator fills blanks, and the model itself tells at every place whether the token was replaced.

Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators".
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, cast

from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from lmlab.layers.attention import head_width
from lmlab.layers.linear import Linear
from lmlab.layers.masked_head import MaskedHead
from lmlab.models.albert import Albert, AlbertConfig
from lmlab.models.bert import GELU, EncoderConfig
from lmlab.models.gpt import initialise
from lmlab.models.model import EncoderModel, ModelConfig, Output, State


class ElectraConfig(EncoderConfig):
    """The size of the discriminator, and of the generator as a share of it."""

    embedding_width: int | None = Field(
        None,
        ge=1,
        description="size of the token vectors, which both parts share; by default the discriminator's width",
    )
    generator: float = Field(0.25, gt=0, le=1, description="width, heads and inner units of the generator, as a share")
    initial: Literal["published", "scaled"] = Field(
        "published", description="weights of the layers at first: N(0, 0.02²), or N(0, 1 / inputs) for narrow models"
    )
    parts: Literal["both", "discriminator", "generator"] = Field(
        "both", description="what there is: pre-training needs both, its result is the discriminator"
    )

    @field_validator("generator")
    @classmethod
    def _generator_has_whole_heads(cls, share: float, info: ValidationInfo) -> float:
        if {"width", "heads"} <= info.data.keys():
            head_width(*_shared(share, info.data["width"], info.data["heads"]))
        return share

    @field_validator("parts")
    @classmethod
    def _both_have_heads(cls, parts: str, info: ValidationInfo) -> str:
        if parts == "both" and not info.data.get("head", True):
            raise ValueError(
                "the two parts are there to be trained, which needs their heads: give one part, or head = true"
            )
        return parts

    def part(self, share: float) -> AlbertConfig:
        """The settings of one part, `share` of the size."""
        width, heads = _shared(share, self.width, self.heads)
        fields = {name: getattr(self, name) for name in EncoderConfig.model_fields}
        fields |= {"width": width, "heads": heads, "inner": round(share * self.inner_width)}
        return AlbertConfig(**fields, embedding_width=self.embedding_width or self.width, pooler=False, pairs=False)


def _shared(share: float, width: int, heads: int) -> tuple[int, int]:
    return max(1, round(share * width)), max(1, round(share * heads))


class Part(Albert):
    """ALBERT's small token vectors, but each layer has its own block; not projected where the widths are equal."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        if config.embedding_width == config.width:
            self.projection = nn.Identity()

    @property
    def distinct_blocks(self) -> int:
        return self.config.layers


class Discriminator(Part):
    """P(replaced) = σ(w · gelu(W h + b) + c) at each place (section 2)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        del self.output  # it fills no blanks
        self.detector = Linear(config.width, config.width) if config.head else None
        self.verdict = Linear(config.width, 1) if config.head else None
        for head in (self.detector, self.verdict):
            if head is not None:
                head.apply(initialise)

    def detect(self, hidden: Tensor) -> Tensor:
        """hidden [..., D] -> logits [...] of "this token was replaced"."""
        if self.detector is None or self.verdict is None:
            raise ValueError("this ELECTRA has no detector, only vectors: take its embeddings, or a checkpoint with it")
        x = GELU[self.config.gelu](self.detector(hidden))
        return cast(Tensor, self.verdict(x)).squeeze(-1)


def initialise_scaled(module: nn.Module) -> None:
    """N(0, 1 / inputs) for the weights of a layer, so that what it gives is as large as what it gets.

    0.02 suits widths near 768. At 64 it makes all that a place gets from its neighbours vanish beside its own vector;
    detecting is comparing the two, so that there is next to no gradient to begin with.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))


class Electra(EncoderModel):
    """Generator and discriminator, which share their token, position and segment vectors (section 3.2).

    The generator's share of 1/4 to 1/2 does best; with a stronger one the discriminator has too hard a task. What is
    used afterwards is the discriminator, so `forward` gives its vectors, and the generator's only where it is alone.
    """

    Config: ClassVar[type[ModelConfig]] = ElectraConfig
    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {**Albert.SIZES["tiny"], "generator": 0.5, "initial": "scaled"},
        "mini": {**Albert.SIZES["small"], "generator": 0.5, "initial": "scaled"},
        "small": {"width": 256, "heads": 4, "layers": 12, "window": 512, "embedding_width": 128, "generator": 0.25},
        "base": {"width": 768, "heads": 12, "layers": 12, "window": 512, "generator": 1 / 3},
        "large": {"width": 1024, "heads": 16, "layers": 24, "window": 512, "generator": 0.25},
    }
    DEFAULT_SIZE: ClassVar[str] = "mini"  # the paper's `small` is no small model on a CPU
    TRAINING: ClassVar[dict[str, Any]] = Albert.TRAINING
    TUNED_WIDTH: ClassVar[int | None] = Albert.TUNED_WIDTH
    OBJECTIVE: ClassVar[dict[str, Any]] = {"kind": "replaced"}
    TOKENIZER: ClassVar[str] = "wordpiece:4096"

    config: ElectraConfig

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__()
        self.config = config
        self.discriminator = Discriminator(config.part(1.0)) if config.parts != "generator" else None
        self.generator = Part(config.part(config.generator)) if config.parts != "discriminator" else None
        if self.generator is not None and self.discriminator is not None:
            self.generator.embedding = self.discriminator.embedding
            self.generator.positions = self.discriminator.positions
            self.generator.segments = self.discriminator.segments
            self.generator.output.softmax.weight = cast(nn.Parameter, self.discriminator.embedding.weight)
        if config.initial == "scaled":
            self.apply(initialise_scaled)

    @property
    def window(self) -> int:
        return self.config.window

    @property
    def main(self) -> Part:
        """The part whose vectors `forward` gives."""
        part = self.generator if self.discriminator is None else self.discriminator
        assert part is not None
        return part

    @property
    def output(self) -> MaskedHead:  # type: ignore[override]
        """The generator's head, where the generator is all there is."""
        if self.discriminator is not None:
            raise ValueError(
                "ELECTRA's discriminator fills no blanks: its generator does, if the run kept it (model.generator)"
            )
        return self.main.output

    def forward(
        self,
        tokens: Tensor,
        *,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        at: Tensor | None = None,
        state: State = None,
    ) -> Output:
        return cast(Output, self.main(tokens, segments=segments, lengths=lengths, at=at))

    def detect(self, hidden: Tensor) -> Tensor:
        """The discriminator's hidden [B, T, D] -> logits [B, T] of "this token was replaced"."""
        if self.discriminator is None:
            raise ValueError("this ELECTRA has only its generator, which detects nothing: give parts = 'discriminator'")
        return self.discriminator.detect(hidden)

    def flops(self, window: int, share: float = 1.0) -> float:
        """Of all parts that there are, and of detection, which works at every place; the generator's head is extra.

        `share` is the generator's: it is asked at the blanks alone.
        """
        total = 0.0 if self.generator is None else self.generator.flops(window, share)
        if self.discriminator is not None:
            heads = (self.discriminator.detector, self.discriminator.verdict)
            weights = sum(head.weight.numel() for head in heads if head is not None)
            total += self.discriminator.flops(window) + 2.0 * weights
        return total
