"""Contrastive learning: each picture finds its caption among all captions of the batch, and each caption its picture.

Radford et al. 2021 (CLIP), figure 3; the loss is InfoNCE (van den Oord et al. 2018) in both directions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.corpus import Corpus
from lmlab.data.loaders.augmentation import Augmentation, augment
from lmlab.data.loaders.captions import CaptionBatch, CaptionedPictures, CaptionLoader
from lmlab.data.loaders.loader import Loader
from lmlab.metrics.metric import Average, StreamingMetric, mean_nats
from lmlab.metrics.retrieval import Matching, StreamingRecall
from lmlab.models.abilities import MatchesPictures, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import Batch, Loss, PreTraining
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, collate

DEPTHS = (1, 5, 10)
"""The k of recall at k."""


class ContrastiveConfig(Config):
    """Augmentation; the batch size, which the loss depends on, is a setting of training."""

    crop: int = Field(0, ge=0, description="augmentation: shift training pictures by up to this many pixels")
    flip: bool = Field(False, description="augmentation: mirror half of the training pictures; not for left and right")
    colour: float = Field(0.0, ge=0, le=1, description="augmentation: change brightness and contrast by this fraction")


class Contrastive(PreTraining):
    """The mean over a batch of −log P(own caption | picture) and −log P(own picture | caption), halved.

    P is the softmax of scale · cosine over the batch. Two pairs with the same caption, or with the same picture, are
    not negatives of each other: their scores are left out of the sum. So a pair with m such others among N pairs has
    N − m candidates, and guessing costs ln(N − m), which is watched as `chance`. Two captions are the same if their
    tokens are, as the model reads them.

    The loss is that of the whole step: micro-batches and processes are embedded first, then compared (`NotAdditive`).
    """

    Config: ClassVar[type[Config]] = ContrastiveConfig
    reads: ClassVar[tuple[str, ...]] = ("captions",)
    default_for: ClassVar[tuple[str, ...]] = ("captions",)
    specials: ClassVar[tuple[str, ...]] = ("cls",)
    likelihood: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    loss_weights: ClassVar[Mapping[str, float]] = {"pairs": 1.0}
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {
        "chance": mean_nats,
        "temperature": partial(Average, "lower"),
        **{f"text_to_picture_at_{k}": partial(StreamingRecall, "text_to_picture", k) for k in DEPTHS},
        **{f"picture_to_text_at_{k}": partial(StreamingRecall, "picture_to_text", k) for k in DEPTHS},
    }

    def __init__(
        self, config: ContrastiveConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        config = config or ContrastiveConfig()
        self.frame = frame
        self.augmentation = Augmentation(config.crop, config.flip, config.colour)

    @classmethod
    def needs(cls, config: ContrastiveConfig) -> tuple[type, ...]:
        return (MatchesPictures,)

    @classmethod
    def settings_from_corpus(cls, config: ContrastiveConfig, corpus: Corpus) -> dict[str, Any]:
        """No settings; a ValueError if the pictures have other texts than captions."""
        fields = getattr(corpus.train, "fields", {})
        if "caption" not in fields:
            raise ValueError(
                f"the pictures have no captions but {' and '.join(fields)}s: name the column of the caption, for "
                "instance --columns caption=NAME"
            )
        return {}

    def process_by(self, processor: Any) -> None:
        """Make inputs of pictures by this processor from now on."""
        self.processor = processor

    def loader(self, data: CaptionedPictures, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        return CaptionLoader(data, batch=batch, window=window, seed=seed)

    def augment(self, raw: CaptionBatch, generator: np.random.Generator) -> CaptionBatch:
        """The same pairs with changed pictures."""
        if not self.augmentation.changes:
            return raw
        return raw._replace(pixels=augment(raw.pixels, self.augmentation, generator))

    def batch(self, raw: CaptionBatch, generator: np.random.Generator | None = None) -> Batch:
        """Pictures and framed captions; as labels the numbers by which equal ones are known."""
        assert self.frame is not None, "captions are text"
        rows = replace(self.frame, window=raw.window).rows([{"a": caption} for caption in raw.captions])
        inputs = {"pixels": self.processor.normalise(raw.pixels), **collate(rows)}
        captions = [hash_tokens(row.inputs["tokens"].pieces) for row in rows]
        labels = {"pictures": torch.from_numpy(raw.pictures), "captions": torch.tensor(captions)}
        return Batch(inputs, labels, {"pairs": len(rows)}, {"pairs": len(rows)})

    def embed(self, model: Any, heads: Mapping[str, nn.Module], batch: Batch) -> dict[str, Tensor]:
        """The vectors of a micro-batch; the learnt scale has a row for each pair, so that its gradient is divided."""
        matcher, inputs = require(model, MatchesPictures), batch.inputs
        return {
            "pictures": matcher.embed_pictures(inputs["pixels"]).float(),
            "texts": matcher.embed_texts(inputs["tokens"], inputs.get("lengths")).float(),
            "scale": matcher.scale().expand(len(inputs["pixels"])),
            "picture_numbers": batch.labels["pictures"],
            "caption_numbers": batch.labels["captions"],
        }

    def compare(self, heads: Mapping[str, nn.Module], vectors: Mapping[str, Tensor]) -> Loss:
        scale = vectors["scale"].float().mean()
        cosines = (vectors["pictures"] @ vectors["texts"].T).float()  # [N, N], pictures by texts
        same = torch.zeros_like(cosines, dtype=torch.bool)
        for numbers in (vectors["picture_numbers"], vectors["caption_numbers"]):
            same |= numbers[:, None] == numbers
        same.fill_diagonal_(False)
        scores = (scale * cosines).masked_fill(same, -torch.inf)
        own = torch.arange(len(scores), device=scores.device)
        both = [F.cross_entropy(each, own, reduction="sum") for each in (scores, scores.T)]
        chance = (~same).sum(1).float().log()
        return Loss({"pairs": (both[0] + both[1]) / 2}, watched={"chance": chance, "temperature": (1 / scale)[None]})

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        vectors = self.embed(model, heads, batch)
        loss = self.compare(heads, vectors)
        if model.training:
            return loss
        seen = Matching(*(vectors[name].detach().cpu().numpy() for name in Matching._fields))
        recalls = {name: seen for name in self.watched_metrics if "_at_" in name}
        return loss._replace(watched={**loss.watched, **recalls})

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        """Of the encoders, and of the cosines of the batch. Micro-batches that are embedded twice count once."""
        pairs = len(batch.inputs["pixels"])
        space = float(model.config.space)
        return PASSES * (require(model, MatchesPictures).matching_flops(batch.inputs) + 2.0 * pairs * pairs * space)


def hash_tokens(tokens: list[int]) -> int:
    """A number of 63 bits that is the same for the same tokens, in every process."""
    digest = hashlib.blake2b(np.array(tokens, np.int64).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
