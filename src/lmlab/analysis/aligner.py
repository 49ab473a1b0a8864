"""Texts and their translations aligned by the attention of the model that translates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lmlab.analysis.alignment import Alignment, align
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame


class Written(Protocol):
    """A target that stands for the tokens that it was written with."""

    @property
    def text(self) -> str: ...

    @property
    def tokens(self) -> list[int]: ...


class Translates(Protocol):
    """What turns texts into the rows that a translator reads and writes (decoding/translator.py)."""

    @property
    def model(self) -> Any: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def source_tokenizer(self) -> Tokenizer | None: ...

    @property
    def frame(self) -> Frame: ...

    def source_rows(self, texts: Sequence[str]) -> list[list[int]]: ...

    def target_rows(self, texts: Sequence[Any]) -> list[list[int]]: ...


@dataclass(frozen=True)
class Aligner:
    """Reads the attention from targets to sources while a translator reads both."""

    translator: Translates

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str | Written],
        *,
        layer: int = -1,
        head: int | None = None,
        batch: int = 32,
    ) -> list[Alignment]:
        """How much each target token attends to each source token: the mean over the heads of the decoder's last block.

        Another `layer` (from 0) or a single `head` can be asked for. A translation stands for the tokens that it was
        written with.
        """
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources and {len(targets)} targets: one target for each source is needed")
        translator = self.translator
        found = align(
            translator.model,
            translator.source_rows(sources),
            translator.target_rows(targets),
            show_source=(translator.source_tokenizer or translator.tokenizer).show,
            show_target=translator.tokenizer.show,
            layer=layer,
            head=head,
            batch=batch,
        )
        texts = [each if isinstance(each, str) else each.text for each in targets]
        found = [each._replace(texts=(a, b)) for each, a, b in zip(found, sources, texts, strict=True)]
        if "source" not in translator.frame.backwards:
            return found
        slots = [slot.is_part for slot, _ in translator.frame.layout("source", "a")]
        before, after = slots.index(True), slots[::-1].index(True)
        return [each.in_order(before, after) for each in found]
