"""How pictures become pixels: `preprocessor_config.json` of Hugging Face to a `PictureProcessor`, and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.interop.staging import EXPORT
from lmlab.runs.storage import DamagedError, read_json, write_json
from lmlab.tokenizers.processors.pictures import PictureProcessor

if TYPE_CHECKING:
    from lmlab.models.settings import PictureModelConfig
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame

FILES = ("preprocessor_config.json", "processor_config.json")
"""Where a folder of theirs says it: the first that is there counts."""
INTERPOLATIONS = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""Their numbers, which are those of Pillow."""
STEP = 1 / 255


@dataclass(frozen=True)
class PictureSettings:
    """The file that says how pictures are read; `reader` is the class of theirs for it."""

    reader: str

    def read_settings(self, folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}

    def read_frame(self, folder: Path, tokenizer: Tokenizer, config: Any) -> Frame | None:
        return None

    def read_processor(self, folder: Path, config: PictureModelConfig) -> PictureProcessor:
        """The processor of the run that was exported, or the one that the folder describes."""
        ours = read_json(folder / EXPORT) if (folder / EXPORT).is_file() else {}
        if isinstance(ours, dict) and "processor" in ours:
            found = PictureProcessor.from_settings(ours["processor"], where=str(folder / EXPORT))
            if found.shape == (*config.image, config.channels):
                return found
        return read_picture_settings(folder, image=config.image, channels=config.channels)

    def write(self, folder: Path, config: Any, tokenizer: Any, frame: Any, processor: PictureProcessor) -> None:
        """Write the file, and what it cannot say to `lmlab.json`."""
        write_json(folder / FILES[0], {"image_processor_type": self.reader, **describe_processor(processor)})
        write_json(folder / EXPORT, {**read_json(folder / EXPORT), "processor": processor.model_dump()})


def describe_processor(processor: PictureProcessor) -> dict[str, Any]:
    """The settings of theirs for a processor; a warning names what these cannot say."""
    height, width, channels = processor.shape
    sides = {"height": height, "width": width}
    number = next(each for each, name in INTERPOLATIONS.items() if name == processor.interpolation)
    settings: dict[str, Any] = {
        "do_resize": True,
        "size": sides,
        "resample": number,
        "do_center_crop": False,
        "do_rescale": True,
        "rescale_factor": STEP,
        "do_normalize": True,
        "image_mean": _each_channel(processor.mean, channels),
        "image_std": _each_channel(processor.std, channels),
        "do_convert_rgb": channels == 3,
    }
    if processor.resize == "pad" or (processor.resize == "crop" and height != width):
        warnings.warn(
            f"data.resize = {processor.resize!r} to {height} × {width} pixels cannot be written for transformers, "
            "which stretches pictures of another shape: change their shape before it reads them",
            stacklevel=4,
        )
    elif processor.resize == "crop":
        settings |= {"size": {"shortest_edge": height}, "do_center_crop": True, "crop_size": sides}
    return settings


def read_picture_settings(folder: Path, *, image: list[int], channels: int) -> PictureProcessor:
    """The processor that a folder of theirs describes, for a model of these sides; a ValueError says what differs."""
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise ValueError(f"{folder} has no {FILES[0]}, which says how pictures are read: copy it from the same model")
    values = read_json(path)
    values = values.get("image_processor", values) if isinstance(values, dict) else values
    if not isinstance(values, dict):
        raise DamagedError(f"{path} is damaged: it is not a table of settings")
    crop = bool(values.get("do_center_crop", False))
    sides = _sides(values, "crop_size" if crop else "size", path)
    if sides not in (None, tuple(image)):
        raise ValueError(f"{path} gives pictures of {sides} pixels, and the model reads {tuple(image)}")
    number = values.get("resample", 2)
    if number not in INTERPOLATIONS:
        raise ValueError(f"{path}: resample = {number!r} is not supported (allowed: 0, 2 or 3)")
    if abs(float(values.get("rescale_factor", STEP)) - STEP) > 1e-6 or not values.get("do_rescale", True):
        raise ValueError(f"{path}: rescale_factor must be 1/255, and do_rescale true")
    normal = values.get("do_normalize", True)
    return PictureProcessor.from_settings(
        {
            "height": image[0],
            "width": image[1],
            "channels": channels,
            "resize": "crop" if crop else "stretch",
            "interpolation": INTERPOLATIONS[number],
            "mean": values.get("image_mean", [0.5]) if normal else [0.0],
            "std": values.get("image_std", [0.5]) if normal else [1.0],
        },
        where=str(path),
    )


def _each_channel(values: list[float], channels: int) -> list[float]:
    """One number for each channel."""
    return values * channels if len(values) == 1 else values


def _sides(values: Mapping[str, Any], name: str, path: Path) -> tuple[int, int] | None:
    """Height and width of a table of theirs; None where it has none."""
    given = values.get(name)
    if given is None:
        return None
    if isinstance(given, int):
        return given, given
    if isinstance(given, dict) and {"height", "width"} <= given.keys():
        return given["height"], given["width"]
    if isinstance(given, dict) and "shortest_edge" in given:
        return given["shortest_edge"], given["shortest_edge"]
    raise ValueError(f"{path}: {name} = {given!r} is not supported; give height and width")
