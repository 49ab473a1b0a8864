"""The pictures that are nearest to a picture, by the cosine of the vectors that a model gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.analysis.pictures.attention import reads_pictures
from lmlab.analysis.view import Viewed, plain
from lmlab.data.readers.pictures.decoding import BadPictureError, read_picture
from lmlab.data.readers.pictures.files import find_pictures
from lmlab.data.readers.pictures.sources import PictureRow
from lmlab.models import name_of
from lmlab.models.abilities import MatchesPictures, ability
from lmlab.pages.figures.pictures import PictureHeatmap
from lmlab.pages.views import Table
from lmlab.progress import ReportProgress

BATCH = 64
"""Pictures that are read at once."""


class NearPicture(NamedTuple):
    """A picture, its class if it has one, and the cosine of its vector with the one that was asked for."""

    picture: str
    label: str | None
    cosine: float


@dataclass(frozen=True)
class PictureNeighbours(Viewed):
    """The nearest pictures, the first is the nearest."""

    asked: str
    neighbours: list[NearPicture]
    pixels: list[NDArray[np.uint8]]
    """The picture that was asked for, and those of the neighbours, in the size that the model reads."""
    searched: int
    unread: int = 0
    """Files that are no pictures."""
    title: str = field(default="Nearest pictures", init=False)

    def lead(self) -> str:
        return f"The nearest of {self.searched:,} pictures to {self.asked}."

    def notes(self) -> list[str]:
        return [f"{self.unread:,} files could not be read and were left out"] * bool(self.unread)

    def table(self) -> Table:
        return Table(NearPicture._fields, self.neighbours, ("", "", ".4f"))

    def figures(self) -> list[PictureHeatmap]:
        titles = [f"{each.label or Path(each.picture).name} {each.cosine:.3f}" for each in self.neighbours]
        return [PictureHeatmap(*each) for each in zip(["asked for", *titles], self.pixels, strict=True)]

    def as_json(self) -> dict[str, Any]:
        return {"picture": self.asked, "searched": self.searched, "neighbours": plain(self.neighbours)}


def embed_pictures(model: Any, pixels: Sequence[NDArray[np.uint8]]) -> Tensor:
    """Unit vectors [B, D] of pictures in the size that a LanguageModel reads: of [CLS], or those of CLIP's space."""
    network = model.model
    inputs = model.processor.normalise(np.stack(pixels)).to(network.device)
    matches = ability(network, MatchesPictures)
    with torch.inference_mode():
        found = network(pixels=inputs).hidden[:, 0] if matches is None else matches.embed_pictures(inputs)
    return torch.nn.functional.normalize(found.float(), dim=-1).cpu()


def find_near_pictures(
    model: Any, picture: str | Path, folder: str | Path, *, top: int = 10, progress: ReportProgress | None = None
) -> PictureNeighbours:
    """The pictures of a folder, table or zip file that are nearest to a picture; itself is left out."""
    if not reads_pictures(model):
        raise ValueError(f"{name_of(model.model)} gives no vectors of pictures: give a run of vit or clip")
    asked = model.processor.process(read_picture(picture))
    (direction,) = embed_pictures(model, [asked])
    files = find_pictures(str(folder))
    rows = [row for part in (files.train, files.valid, files.test) for row in part or () if not _same(row, picture)]
    best: list[tuple[float, int, NDArray[np.uint8]]] = []
    read = 0
    for start in range(0, len(rows), BATCH):
        group = [(start + position, _read(model, row)) for position, row in enumerate(rows[start : start + BATCH])]
        kept = [(number, pixels) for number, pixels in group if pixels is not None]
        read += len(kept)
        if kept:
            cosines = (embed_pictures(model, [pixels for _, pixels in kept]) @ direction).tolist()
            best += [(cosine, number, pixels) for cosine, (number, pixels) in zip(cosines, kept, strict=True)]
            best = sorted(best, key=lambda each: (-each[0], each[1]))[:top]
        if progress is not None:
            progress(start + len(group), len(rows))
    if not best:
        raise ValueError(f"{folder} has no other picture that can be read")
    near = [NearPicture(rows[number].picture.name, rows[number].label, cosine) for cosine, number, _ in best]
    shown = [asked, *(pixels for _, _, pixels in best)]
    return PictureNeighbours(str(picture), near, shown, read, len(rows) - read)


def _same(row: PictureRow, picture: str | Path) -> bool:
    path = Path(row.picture.name)
    return path.exists() and Path(picture).exists() and path.samefile(picture)


def _read(model: Any, row: PictureRow) -> NDArray[np.uint8] | None:
    """The picture of a row in the size that the model reads; None where it cannot be read."""
    try:
        pixels: NDArray[np.uint8] = model.processor.process(row.picture.read())
    except BadPictureError:
        return None
    return pixels
