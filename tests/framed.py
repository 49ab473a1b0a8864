"""The frames of the usual models, for tests that have no model."""

from __future__ import annotations

from lmlab.models import LINEAGE
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, make_frame


def encoder_frame(tokenizer: Tokenizer) -> Frame:
    """That of a model that fills blanks."""
    return make_frame(LINEAGE["bert"].frame, tokenizer)


def pair_frame(
    tokenizer: Tokenizer,
    source_tokenizer: Tokenizer | None = None,
    *,
    start: int | None = None,
    backwards: bool = False,
) -> Frame:
    """That of a model that writes a target from a source."""
    return make_frame(LINEAGE["transformer"].frame, tokenizer, source_tokenizer, start=start, backwards=backwards)
