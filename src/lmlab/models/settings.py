"""The settings that every model has, and what of them only the data know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from lmlab.config import Config
from lmlab.layers.attention.multi_head import head_width

MOST_LAYERS = 10_000
"""More layers are a mistake, or a file that is meant to exhaust the memory."""


class ModelConfig(Config):
    """Settings that every model has; some are known only from the data."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "restart": "reset_probability",
        "waves": "position_order",
        "place": "state_position",
    }
    """Old names of settings in the config.json of earlier runs, with those of today."""
    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = {}
    """Settings that only the data know, with values that will do to describe a model before these are read."""

    @model_validator(mode="after")
    def _limit_layers(self) -> Self:
        for name, value in self:
            if name.endswith("layers") and isinstance(value, int) and value > MOST_LAYERS:
                raise ValueError(f"{name} = {value:,}: at most {MOST_LAYERS:,} layers are allowed")
        return self

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, values: Any) -> Any:
        return cls.upgrade(values) if isinstance(values, Mapping) else values

    @classmethod
    def upgrade(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Settings by today's names; where both names are given, the new one counts."""
        old = {name: new for name, new in cls.RENAMED.items() if name in values and new in cls.model_fields}
        known = {new: values[name] for name, new in old.items()}
        return known | {name: value for name, value in values.items() if name not in old}

    @classmethod
    def from_corpus(cls, corpus: Any) -> dict[str, Any]:
        """What a corpus says of these settings."""
        return {}

    @classmethod
    def usual(cls, corpus: Any) -> dict[str, Any]:
        """Settings that suit a corpus, where no others are given: a window of one item, if all have one length."""
        length = getattr(corpus.token_processor, "length", None)
        return {"window": length + 1} if length is not None and "window" in cls.model_fields else {}


class TokenModelConfig(ModelConfig):
    """Settings of every model that reads tokens."""

    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = {"vocabulary": 2**20}

    OPEN: ClassVar[bool] = False
    """Whether the model reads words that it has no number for, by their letters."""

    vocabulary: int = Field(ge=2, description="vocabulary size; set by the tokenizer")

    @classmethod
    def from_corpus(cls, corpus: Any) -> dict[str, Any]:
        """The sizes of the vocabularies; and the boundary, if the model asks for it."""
        tokenizer, source = corpus.token_processor or corpus.text_tokenizer, corpus.source_tokenizer
        if cls.OPEN and corpus.tokenizer is None:
            raise ValueError("this model reads words by their letters, and these data have none; take another, as gpt2")
        if tokenizer.is_open and not cls.OPEN:
            raise ValueError(
                f"tokenizer {tokenizer.spec!r} leaves rare words to their letters, which this model does not read; "
                f"take words:{tokenizer.predicted}, or a model that does: lm-1b, elmo"
            )
        known = {"vocabulary": tokenizer.predicted}
        if "boundary" in cls.model_fields:
            known["boundary"] = tokenizer.boundary
        return known if source is None else {**known, "source_vocabulary": source.vocabulary}


class PictureModelConfig(ModelConfig):
    """Settings of every model that reads pictures."""

    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = {"image": [224, 224], "channels": 3}

    image: list[int] = Field(
        min_length=2, max_length=2, description="height and width of a picture in pixels; set by the data"
    )
    channels: int = Field(ge=1, le=4, description="channels of a picture: 1 for grey, 3 for colour; set by the data")

    @classmethod
    def from_corpus(cls, corpus: Any) -> dict[str, Any]:
        """The shape of the pictures; and the sizes of the vocabularies, if the model reads text, too."""
        processor = corpus.media
        known = {"image": [processor.height, processor.width], "channels": processor.channels}
        return {**super().from_corpus(corpus), **known}


class RegionModelConfig(TokenModelConfig):
    """Settings of every model that reads texts with the regions of pictures."""

    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = {**TokenModelConfig.PLACEHOLDERS, "region_width": 2048}

    region_width: int = Field(ge=1, description="numbers in the vector of a region; set by the data")

    @classmethod
    def from_corpus(cls, corpus: Any) -> dict[str, Any]:
        """The width of the regions' vectors, and the sizes of the vocabularies."""
        width = getattr(corpus.train, "region_width", None)  # examples of a task keep that of the run
        return {**super().from_corpus(corpus), **({} if width is None else {"region_width": width})}


def _divides_width(heads: int, info: ValidationInfo) -> int:
    head_width(info.data.get("width", heads), heads)
    return heads


Heads = Annotated[
    int, Field(ge=1, description="attention heads; must divide the width"), AfterValidator(_divides_width)
]
"""A setting of a model whose `width` comes before it."""
