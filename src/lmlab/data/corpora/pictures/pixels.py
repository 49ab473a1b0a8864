"""Pictures as sequences of pixels, so that every system that predicts the next token learns from them."""

from __future__ import annotations

from collections.abc import Iterator

from lmlab.data.corpora.corpus import Corpus
from lmlab.data.corpora.pictures.images import ImagesConfig, open_pictures
from lmlab.data.corpora.preparing import ReportStage
from lmlab.data.corpora.sequences import EncodedItem, EncodingSettings, open_sequences
from lmlab.data.corpora.store import open_home
from lmlab.data.readers.files import cache_folder
from lmlab.tokenizers.processors.pixels import LARGEST, Pixels


def prepare_pixels(
    config: ImagesConfig, tokenizer: str | Pixels, *, progress: ReportStage | None, largest: int = LARGEST
) -> Corpus:
    """Return the corpus of a recipe's pictures as tokens; a spec such as `pixels:16` is fitted to the pictures.

    Pictures are encoded one at a time, so the memory does not depend on how many there are.
    """
    given = tokenizer.pictures if isinstance(tokenizer, Pixels) else None
    found = open_pictures(config, config.images, given=given, largest=largest, progress=progress)
    if isinstance(tokenizer, str):
        unfitted = Pixels.from_spec(tokenizer.partition(":")[2])
        tokenizer = unfitted.fit(found.processor, found.splits["train"].pixels)
    own, total = tokenizer, sum(split.size for split in found.splits.values())

    def encode() -> Iterator[EncodedItem]:
        done = 0
        for name, split in found.splits.items():
            for number, picture in zip(split.names, split.pictures.tolist(), strict=True):
                yield EncodedItem(number, own.encode(split.pixels[picture]), name)
                done += 1
                if progress is not None:
                    progress("encoding pictures", done, total)

    return open_sequences(open_home(cache_folder()), EncodingSettings(own, {}, found.digest), encode)
