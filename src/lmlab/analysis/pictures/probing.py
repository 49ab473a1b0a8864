"""Probes of pictures: which layer of a Transformer over patches knows the class of a picture.

The vector of a picture in a layer is the mean over its patches. Beside the probes stand one of the same model with
random weights, and one of the pixels: what a layer adds is what its probe has more than these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmlab.analysis.pictures.attention import reads_pictures
from lmlab.analysis.probing import ProbeFeatures, Probes, ProbeTarget, compare_layers, find_kind, make_twin
from lmlab.data.corpora.pictures.images import ImagesConfig, open_pictures
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.layers.watching import watching_layers
from lmlab.models import name_of
from lmlab.models.abilities import MatchesPictures, ability
from lmlab.progress import ReportProgress, check_cancelled

BATCH = 64
"""Pictures that are read at once."""
SIDE = 16
"""Rows and columns of pixels that a probe of the pixels reads, at most."""


def probe_pictures(
    model: Any,
    data: str,
    test: str | None = None,
    *,
    kind: str = "linear",
    twin: bool = True,
    length: bool = False,
    limit: int = 1000,
    seed: int = 0,
    progress: ReportProgress | None = None,
) -> Probes:
    """Probe every layer of a LanguageModel for the classes of pictures, of a folder or a table.

    Without `test`, the test part of the data is used: those of a run's own folder are the pictures that it did not
    learn from. At most `limit` pictures of each are read.
    """
    if not reads_pictures(model):
        raise ValueError(f"{name_of(model.model)} does not read pictures as patches: give a run of vit or clip")
    how = find_kind(kind)
    config = ImagesConfig(images=[data], test=None if test is None else [test], bad="skip")
    splits = open_pictures(config, config.images, given=model.processor, progress=None).splits
    if "test" not in splits:
        raise ValueError(
            f"{data} has a validation part and no test part: name the pictures to test on as a second folder"
        )
    learnt, judged = (_choose(splits[name], limit, seed, data) for name in ("train", "test"))
    features = [read_picture_layers(model, *each) for each in (learnt, judged)]
    untaught = make_twin(model, seed) if twin else None
    random = [] if untaught is None else [read_picture_layers(untaught, *each) for each in (learnt, judged)]
    return compare_layers(
        features[0],
        features[1],
        random,
        pixels=[_read_pixels(*each) for each in (learnt, judged)],
        name="class",
        kind=how,
        control=False,
        length=length,
        seed=seed,
        progress=progress,
    )


def _choose(split: PictureSplit, limit: int, seed: int, data: str) -> tuple[PictureSplit, list[int]]:
    """Some rows of a split, in a random order; a ValueError if one has no class."""
    if None in split.labels:
        name = split.names[list(split.labels).index(None)]
        raise ValueError(f"{name} has no class: {data} must have a folder for each class, or a column label")
    rows = np.random.default_rng(seed).permutation(split.size)[:limit]
    return split, sorted(rows.tolist())


def _answers(split: PictureSplit, rows: Sequence[int]) -> list[ProbeTarget]:
    return [ProbeTarget(str(split.labels[row]), None, int(split.pictures[row])) for row in rows]


def read_picture_layers(model: Any, split: PictureSplit, rows: Sequence[int]) -> ProbeFeatures:
    """For every layer the mean over the patches of each picture."""
    network = model.model
    matches = ability(network, MatchesPictures)
    found: list[list[Tensor]] = []
    for begin in range(0, len(rows), BATCH):
        check_cancelled()
        pixels = split.pixels[split.pictures[list(rows[begin : begin + BATCH])]]
        inputs = model.processor.normalise(pixels).to(network.device)
        with torch.inference_mode(), watching_layers() as layers:
            _ = network(pixels=inputs) if matches is None else matches.embed_pictures(inputs)
        means = [layer[:, 1:].mean(1).float().cpu() for layer in layers]
        found = [[*before, new] for before, new in zip(found or [[] for _ in means], means, strict=True)]
    return ProbeFeatures([torch.cat(each) for each in found], _answers(split, rows), 0)


def _read_pixels(split: PictureSplit, rows: Sequence[int]) -> ProbeFeatures:
    """The pixels, at most 16 × 16 of them: means over blocks."""
    pixels = torch.from_numpy(np.array(split.pixels[split.pictures[list(rows)]])).permute(0, 3, 1, 2).float() / 255
    small = torch.nn.functional.adaptive_avg_pool2d(pixels, (min(SIDE, pixels.shape[2]), min(SIDE, pixels.shape[3])))
    return ProbeFeatures([small.flatten(1)], _answers(split, rows), 0)
