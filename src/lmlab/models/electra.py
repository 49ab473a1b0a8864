"""ELECTRA: a small generator fills masks, and the model predicts for every token whether it was replaced.

Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, cast

from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import head_width
from lmlab.layers.kernels.linear import Linear
from lmlab.models.abilities import FillsMasks, State
from lmlab.models.albert import FactorisedConfig, FactorisedEncoder
from lmlab.models.bert import GELU, EncoderConfig, initialise_scaled
from lmlab.models.gpt import initialise
from lmlab.models.model import EncoderModel, ModelConfig, Output, by_depth


class ElectraConfig(EncoderConfig):
    """The size of the discriminator, and of the generator as a fraction of it."""

    embedding_width: int | None = Field(
        None,
        ge=1,
        description="embedding size, shared by both parts; by default the discriminator's width",
    )
    generator: float = Field(
        0.25,
        gt=0,
        le=1,
        description="generator size: its width, heads and inner units as a fraction of the discriminator's",
    )
    parts: Literal["both", "discriminator", "generator"] = Field(
        "both", description="parts of the model: pre-training needs both; afterwards the discriminator is used"
    )

    @field_validator("generator")
    @classmethod
    def _generator_has_whole_heads(cls, fraction: float, info: ValidationInfo) -> float:
        if {"width", "heads"} <= info.data.keys():
            head_width(*_shared(fraction, info.data["width"], info.data["heads"]))
        return fraction

    @field_validator("parts")
    @classmethod
    def _both_have_heads(cls, parts: str, info: ValidationInfo) -> str:
        if parts == "both" and not info.data.get("head", True):
            raise ValueError("training both parts needs their heads; set head = true, or choose one part")
        return parts

    def part(self, fraction: float, *, head: bool) -> FactorisedConfig:
        """The settings of one part, `fraction` of the size, with or without a head that fills masks."""
        width, heads = _shared(fraction, self.width, self.heads)
        fields = {name: getattr(self, name) for name in EncoderConfig.model_fields}
        fields |= {"width": width, "heads": heads, "inner": round(fraction * self.inner_width), "head": head}
        fields["initial"] = "published"  # both parts are initialised again together
        return FactorisedConfig(**fields, embedding_width=self.embedding_width or self.width)


def _shared(fraction: float, width: int, heads: int) -> tuple[int, int]:
    return max(1, round(fraction * width)), max(1, round(fraction * heads))


class Discriminator(FactorisedEncoder):
    """P(replaced) = σ(w · gelu(W h + b) + c) at each position (section 2)."""

    def __init__(self, config: FactorisedConfig) -> None:
        super().__init__(config)
        self.detector = Linear(config.width, config.width)
        self.detector_output = Linear(config.width, 1)
        for head in (self.detector, self.detector_output):
            head.apply(initialise)

    def discriminator_head(self, hidden: Tensor) -> Tensor:
        """hidden [..., D] -> logits [...] of "this token was replaced"."""
        x = GELU[self.config.gelu](self.detector(hidden))
        return cast(Tensor, self.detector_output(x)).squeeze(-1)

    def detect(self, **inputs: Any) -> Tensor:
        """Logits [B, T] of "this token was replaced"."""
        return self.discriminator_head(self(**inputs).hidden)

    def token_flops(self) -> float:
        """Floating-point operations of `discriminator_head` for one token."""
        return 2.0 * (self.detector.weight.numel() + self.detector_output.weight.numel())

    def detection_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """Of the encoder, and of `discriminator_head` at all positions, padding too."""
        return self.reading_flops(inputs) + inputs["tokens"].numel() * self.token_flops()


class Electra(EncoderModel):
    """Generator and discriminator, which share their token, position and segment vectors (section 3.2).

    A generator of 1/4 to 1/2 of the size works best: with a stronger one the task of the discriminator is too hard. The
    discriminator is what is used afterwards, so `forward` returns its vectors, and those of a generator only if it is
    alone.
    """

    Config: ClassVar[type[ModelConfig]] = ElectraConfig
    RENAMED: ClassVar[Mapping[str, str]] = {
        f"discriminator.verdict.{name}": f"discriminator.detector_output.{name}" for name in ("weight", "bias")
    }

    config: ElectraConfig

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__()
        self.config = config
        self.discriminator: FactorisedEncoder | None = None
        self.generator: FactorisedEncoder | None = None
        if config.parts != "generator":
            encoder = Discriminator if config.head else FactorisedEncoder
            self.discriminator = encoder(config.part(1.0, head=False))
        if config.parts != "discriminator":
            self.generator = FactorisedEncoder(config.part(config.generator, head=config.head))
        if self.generator is not None and self.discriminator is not None:
            self.generator.embedding = self.discriminator.embedding
            self.generator.positions = self.discriminator.positions
            self.generator.segments = self.discriminator.segments
            assert self.generator.output is not None, "two parts have heads"
            self.generator.output.softmax.weight = cast(nn.Parameter, self.discriminator.embedding.weight)
        if config.initial == "scaled":
            self.apply(initialise_scaled)

    @classmethod
    def changeable(cls, begun: Mapping[str, Any]) -> tuple[str, ...]:
        """A run of a generator alone may continue with both parts, and with a generator of another size."""
        return ("parts", "generator") if begun.get("parts") == "generator" else ()

    def adapt(self, tensors: dict[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Initialise a discriminator from the generator of a run that has nothing else; other tensors stay random.

        Without such a start it may keep predicting the majority class, if the generator is much better (section 3.3).
        """
        if self.discriminator is None or any(name.startswith("discriminator.") for name in tensors):
            return tensors
        learnt = {name.replace("generator.", "discriminator.", 1): tensor for name, tensor in tensors.items()}
        known = {
            name: tensor
            for name, tensor in (tensors | learnt).items()
            if name in fresh and tensor.shape == fresh[name].shape
        }
        if missing := [name for name in fresh if name.startswith("discriminator.blocks.") and name not in known]:
            raise ValueError(
                f"the generator to begin with is smaller than the discriminator ({missing[0]} does not fit): "
                "train it with model.generator=1"
            )
        return {**fresh, **known}

    @property
    def window(self) -> int:
        return self.config.window

    @property
    def main(self) -> FactorisedEncoder:
        """The part whose vectors `forward` gives."""
        part = self.generator if self.discriminator is None else self.discriminator
        assert part is not None
        return part

    def offers(self) -> Iterable[object]:
        """Vectors; masks filled by the generator; replaced tokens found by the discriminator."""
        yield self
        if self.generator is not None:
            yield from (offer for offer in self.generator.offers() if isinstance(offer, FillsMasks))
        if isinstance(self.discriminator, Discriminator):
            yield self.discriminator

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

    def depths(self) -> list[list[nn.Parameter]]:
        """Those of both parts, layer by layer."""
        parts = [part.depths() for part in (self.discriminator, self.generator) if part is not None]
        *stages, _ = ([each for part in layer for each in part] for layer in zip(*parts, strict=True))
        return by_depth(self, *stages)

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """Of the part whose vectors `forward` gives."""
        return self.main.body_flops(window, fraction=fraction)

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        return self.main.reading_flops(inputs, positions=positions)

    def head_flops(self) -> float:
        """FLOPs of the generator's head at a mask."""
        return 0.0 if self.generator is None else self.generator.head_flops()

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """The generator is asked at the blanks alone, the discriminator tells of every token."""
        total = 0.0 if self.generator is None else self.generator.pretraining_flops(window, predicted=predicted)
        if isinstance(self.discriminator, Discriminator):
            total += self.discriminator.body_flops(window) + self.discriminator.token_flops()
        return total
