"""Masked words and regions of a text with a picture, and whether they belong together.

Li et al. 2019 (VisualBERT), section 3.3: masked words, and picture–sentence matching. Lu et al. 2019 (ViLBERT), section
3.2: masked regions as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.regions import DescribedBatch, DescribedLoader, DescribedPictures
from lmlab.data.loaders.rows import Rows
from lmlab.data.readers.media import Picture
from lmlab.data.readers.pictures.regions import make_vectors
from lmlab.metrics.metric import StreamingMetric, accuracy
from lmlab.models.abilities import FillsMasks, PredictsRegions, ReadsRegions, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.masked import Unit, at_masks, corrupt, is_right, sample_numbers
from lmlab.objectives.objective import IGNORE, Batch, Loss, PreTraining
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, collate, pad_rows
from lmlab.tokenizers.pieces import describe_pieces
from lmlab.tokenizers.processors.pictures import PictureProcessor

HIDDEN = 0.9
"""Fraction of the masked regions whose vector becomes zero; the others keep theirs (Lu et al. 2019, section 3.2)."""


class MaskedCaptionsConfig(Config):
    """What is masked, and what else is asked."""

    masking_rate: float = Field(0.15, gt=0, lt=1, description="fraction of the tokens of a text to predict")
    unit: Unit = Field("token", description="what is masked: single tokens, whole words, or spans of words")
    matching: bool = Field(True, description="picture–sentence matching: half of the texts are another picture's")
    region_masking_rate: float = Field(
        0.0, ge=0, lt=1, description="fraction of the regions to predict (ViLBERT: 0.15); 0: none"
    )


class MaskedCaptions(PreTraining):
    """Cross-entropy of masked tokens and of matching, and the squared error of the vectors of masked regions.

    Tokens and regions are masked in all rows, but predicted only where text and picture belong together.
    """

    Config: ClassVar[type[Config]] = MaskedCaptionsConfig
    reads: ClassVar[tuple[str, ...]] = ("captions",)
    default_for: ClassVar[tuple[str, ...]] = ("captions",)
    specials: ClassVar[tuple[str, ...]] = ("pad", "cls", "sep", "mask")
    likelihood: ClassVar[bool] = False
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {
        "accuracy": accuracy,
        "match_accuracy": accuracy,
    }

    def __init__(self, config: MaskedCaptionsConfig, tokenizer: Tokenizer, frame: Frame) -> None:
        self.config, self.frame = config, frame
        self.pieces = describe_pieces(tokenizer)
        self.pad, self.mask = tokenizer.special("pad"), tokenizer.special("mask")
        asked = {"masked": True, "match": config.matching, "regions": config.region_masking_rate > 0}
        self.loss_weights: Mapping[str, float] = {name: 1.0 for name, used in asked.items() if used}

    @classmethod
    def needs(cls, config: MaskedCaptionsConfig) -> tuple[type, ...]:
        return (FillsMasks, PredictsRegions if config.region_masking_rate else ReadsRegions)

    def process_by(self, processor: PictureProcessor) -> None:
        """Read the regions of pictures by this processor from now on."""
        self.processor = processor

    def loader(self, data: DescribedPictures, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        return DescribedLoader(data, batch=batch, window=window, seed=seed, mismatched=self.config.matching)

    def batch(self, raw: DescribedBatch, generator: np.random.Generator) -> Batch:
        """Corrupted texts with regions; as labels what was masked, and whether both belong together."""
        rows = replace(self.frame, window=raw.window).rows([{"a": text} for text in raw.texts])
        texts = collate(rows, pad=self.pad)
        plain_tokens, lengths = texts["tokens"].numpy(), texts["lengths"].numpy()
        plain = Rows(plain_tokens, np.zeros((len(rows), 2), np.int64), lengths=lengths)
        draws = sample_numbers(plain, generator, dynamic=True)
        corrupted = corrupt(
            plain,
            draws,
            pieces=self.pieces,
            mask=self.mask,
            unit=self.config.unit,
            masking_rate=self.config.masking_rate,
        )
        targets = np.where(raw.matches[:, None], corrupted.targets, IGNORE)
        labels = {"targets": targets, "positions": corrupted.positions, "kept": np.flatnonzero(targets != IGNORE)}
        counts = {"masked": len(labels["kept"])}
        if self.config.matching:
            labels["match"], counts["match"] = (~raw.matches).astype(np.int64), len(rows)
        inputs = {
            **texts,
            "tokens": torch.from_numpy(corrupted.tokens),
            **collate_regions(raw.pictures, self.processor),
        }
        found = {name: torch.from_numpy(value) for name, value in labels.items()}
        if self.config.region_masking_rate:
            found |= self._mask_regions(inputs, raw.matches, generator)
            counts["regions"] = len(found["region_positions"])
        return Batch(inputs, found, counts, {"pairs": len(rows)})

    def _mask_regions(
        self, inputs: dict[str, Tensor], matches: NDArray[np.bool_], generator: np.random.Generator
    ) -> dict[str, Tensor]:
        """Mask regions in the inputs; return the positions [M] of those to predict, and their vectors."""
        regions, lengths = inputs["regions"], inputs["region_lengths"].numpy()
        rank = np.where(np.arange(regions.shape[1]) < lengths[:, None], generator.random(regions.shape[:2]), np.inf)
        wanted = np.maximum(1, np.round(self.config.region_masking_rate * lengths))[:, None]
        chosen = rank.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") < wanted
        hidden = chosen & (generator.random(chosen.shape) < HIDDEN)
        positions = torch.from_numpy(np.flatnonzero(chosen & matches[:, None]))
        targets = regions.flatten(0, 1)[positions]
        inputs["regions"] = regions.masked_fill(torch.from_numpy(hidden)[..., None], 0.0)
        return {"region_positions": positions, "region_targets": targets}

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        """The surprisal of masked tokens and of matching, and mean squared errors of regions."""
        reader, filler, labels = require(model, ReadsRegions), require(model, FillsMasks), batch.labels
        both = reader.read_both(**batch.inputs, at=labels["positions"])
        chosen, targets = at_masks(batch, both.words)
        nothing = both.words.sum() * 0  # where texts are empty
        sums, watched = {"masked": filler.total_nll(chosen, targets) if len(targets) else nothing}, {}
        if len(targets) and not model.training:
            watched["accuracy"] = is_right(filler.logits(chosen), targets)
        if "match" in labels:
            scores = reader.match(both.joint).float()
            sums["match"] = F.cross_entropy(scores, labels["match"], reduction="sum")
            watched["match_accuracy"] = is_right(scores, labels["match"])
        if "region_positions" in labels:
            assert both.regions is not None
            masked = both.regions.flatten(0, 1)[labels["region_positions"]]
            predicted = require(model, PredictsRegions).predict_regions(masked)
            sums["regions"] = (predicted.float() - labels["region_targets"]).square().mean(-1).sum()
        return Loss(sums, watched=watched)

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        reader, filler = require(model, ReadsRegions), require(model, FillsMasks)
        total = filler.reading_flops(batch.inputs, positions=1 + batch.labels["positions"].shape[1])
        total += filler.head_flops() * batch.counts["masked"] + reader.match_flops() * len(batch.inputs["tokens"])
        if masked := batch.counts.get("regions", 0):
            total += require(model, PredictsRegions).region_flops() * masked
        return PASSES * total


def collate_regions(pictures: list[Picture], processor: PictureProcessor) -> dict[str, Tensor]:
    """The regions of pictures as inputs of a model: `regions` [B, R, F], `boxes` [B, R, 4] and `region_lengths` [B]."""
    found = [make_vectors(picture, processor) for picture in pictures]
    regions, lengths = pad_rows([each.vectors for each in found])
    boxes, _ = pad_rows([each.boxes for each in found])
    dtype = torch.get_default_dtype()
    return {"regions": regions.to(dtype), "boxes": boxes.to(dtype), "region_lengths": lengths}
