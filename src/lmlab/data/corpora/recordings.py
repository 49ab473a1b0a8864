"""Recordings with their texts: spectrograms and tokens, memory-mapped and kept in the cache by their content."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lmlab.data.config import DataConfig, Paths
from lmlab.data.corpora.corpus import Corpus, Dataset, Processor
from lmlab.data.corpora.preparing import ReportStage, as_tokenizer, check_tokenizer, digest, name_of
from lmlab.data.corpora.splitting import NAMES, main_fractions
from lmlab.data.corpora.store import building, open_home
from lmlab.data.readers.clips import SpeechClip, read_clips
from lmlab.data.readers.files import cache_folder
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers import Tokenizer, resolve
from lmlab.tokenizers.processors.sounds import SoundProcessor

FORMAT = 1
INDEX = "index.json"
Kept = np.float16
"""The type of stored spectrograms: their values are from -1 to 2, and are exact to a thousandth."""


class SpeechConfig(DataConfig):
    """Recordings and their texts, for models of speech."""

    PATHS: ClassVar[tuple[str, ...]] = ("speech", "valid", "test")
    what: ClassVar[str] = "recordings"

    kind: Literal["speech"] = "speech"
    speech: Paths = Field(description="tables of clips (TSV or CSV with the columns path and text), or builtin:tones")
    valid: Paths | None = Field(None, description="tables of validation clips; by default split off by `split`")
    test: Paths | None = Field(None, description="tables of test clips; by default split off by `split`")
    mels: int = Field(80, ge=4, le=512, description="mel bands of the spectrograms")
    seconds: float = Field(30.0, gt=0, le=600, description="the longest recording; longer ones are left out")


@dataclass(frozen=True)
class SpeechSplit(Dataset):
    """One part of a corpus of recordings."""

    sounds: NDArray[np.float16]  # [all frames, M]
    frame_starts: NDArray[np.int64]  # [N]
    frame_lengths: NDArray[np.int64]  # [N]
    tokens: NDArray[np.uint32]  # [all tokens], without special tokens
    token_starts: NDArray[np.int64]  # [N]
    token_lengths: NDArray[np.int64]  # [N]
    names: Sequence[str]
    said: Sequence[str]
    frames_per_second: float

    @property
    def size(self) -> int:
        """The number of predicted tokens: those of the texts, and the end of each."""
        return int(self.token_lengths.sum()) + len(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def sizes(self) -> dict[str, int]:
        return {"items": len(self.names)}

    def sound(self, index: int) -> NDArray[np.float32]:
        """The spectrogram [F, M] of a recording."""
        start = int(self.frame_starts[index])
        return self.sounds[start : start + int(self.frame_lengths[index])].astype(np.float32)

    def texts(self) -> Iterator[str]:
        return iter(self.said)

    def describe(self) -> str:
        minutes = float(self.frame_lengths.sum()) / self.frames_per_second / 60
        return f"{len(self)} recordings ({minutes:.1f} min)"


def prepare(
    config: SpeechConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    progress: ReportStage | None = None,
    media: Processor | None = None,
) -> Corpus:
    """Read, split and process the recordings of a recipe; a second call finds them in the cache."""
    sounds = media if isinstance(media, SoundProcessor) else None
    sounds = sounds or SoundProcessor(mels=config.mels, seconds=config.seconds, pad=False)
    tokenizer = check_tokenizer(as_tokenizer(processor))
    parts = split_clips(config)
    text_fingerprint = digest(
        ["speech", FORMAT, {part: [[clip.digest, clip.text] for clip in clips] for part, clips in parts.items()}]
    )
    key = digest([text_fingerprint, sounds.fingerprint, name_of(tokenizer)])
    home = open_home(cache_folder())
    folder = home / key[:32]
    if _read(folder, key, sounds) is None:
        with building(folder, key, read=lambda where, own: _read(where, own, sounds)) as new:
            _build(new, parts, sounds, tokenizer, key=key, report=progress or (lambda stage, done, total: None))
    found = _read(folder, key, sounds)
    assert found is not None, "recordings that were just written can be read"
    return Corpus(
        processor=(own := Tokenizer.load(folder / "tokenizer.json")),
        train=found["train"],
        valid=found.get("valid"),
        test=found.get("test"),
        fingerprint=digest([own.fingerprint, sounds.fingerprint, text_fingerprint]),
        text_fingerprint=text_fingerprint,
        folder=folder,
        media=sounds,
    )


def split_clips(config: SpeechConfig) -> dict[str, list[SpeechClip]]:
    """The clips of each split; equal texts stay together, so that no test text is also a training text."""
    given = {"train": config.speech, "valid": config.valid, "test": config.test}
    named = {part: [clip for path in paths for clip in read_clips(path)] for part, paths in given.items() if paths}
    if not named["train"]:
        raise ValueError(f"{', '.join(config.speech)}: there are no recordings; a table has a path and a text a row")
    fractions = main_fractions(config.split, named)
    main = sorted(named["train"], key=lambda clip: (digest(clip.text.lower()), clip.digest))
    parts: dict[str, list[SpeechClip]] = {part: [] for part in NAMES if part in fractions or part in named}
    edges = np.cumsum(list(fractions.values()))
    group, before = 0, ""
    for position, clip in enumerate(main):
        if clip.text.lower() != before:
            group = int(np.searchsorted(edges, (position + 0.5) / len(main)))
        before = clip.text.lower()
        parts[list(fractions)[min(group, len(fractions) - 1)]].append(clip)
    for part, clips in named.items():
        if part != "train":
            parts[part] = clips
    if not parts["train"]:
        raise ValueError(f"{len(main)} recordings are too few to split; give more, or --valid and --test tables")
    return {part: clips for part, clips in parts.items() if clips}


def _build(
    folder: Path,
    parts: dict[str, list[SpeechClip]],
    sounds: SoundProcessor,
    spec: str | Tokenizer,
    *,
    key: str,
    report: ReportStage,
) -> None:
    """Write the spectrograms and tokens of all splits, and last the index."""
    tokenizer = resolve(spec, lambda: [clip.text for clip in parts["train"]])
    tokenizer.save(folder / "tokenizer.json")
    total, done, index = sum(map(len, parts.values())), 0, dict[str, Any]()
    left_out: list[str] = []
    for part, clips in parts.items():
        lengths, tokens, kept = [], [], []
        with (folder / f"{part}.frames").open("wb") as file:
            for clip in clips:
                sound = clip.read()
                done += 1
                report("spectrograms", done, total)
                if len(sound.samples) / sound.rate > sounds.seconds:
                    left_out.append(clip.name)
                    continue
                spectrogram = sounds.process(sound.samples, sound.rate).T
                file.write(np.ascontiguousarray(spectrogram, Kept).tobytes())
                lengths.append(len(spectrogram))
                tokens.append(tokenizer.encode(clip.text))
                kept.append(clip)
        if not kept:
            raise ValueError(f"all recordings of {part} are longer than {sounds.seconds:g} s; raise data.seconds")
        np.concatenate([np.asarray(each, np.uint32) for each in tokens]).tofile(folder / f"{part}.tokens")
        index[part] = {
            **{"frames": lengths, "tokens": [len(each) for each in tokens]},
            **{"names": [clip.name for clip in kept], "texts": [clip.text for clip in kept]},
        }
    if left_out:
        message = f"{len(left_out)} of {total} recordings are left out: they are longer than data.seconds = "
        warnings.warn(f"{message}{sounds.seconds:g} ({left_out[0]} …)", TextWarning, stacklevel=4)
    content = json.dumps({"format": f"speech {FORMAT}", "key": key, "splits": index}, ensure_ascii=False)
    (folder / INDEX).write_text(content, encoding="utf-8")


def _read(folder: Path, key: str, sounds: SoundProcessor) -> dict[str, SpeechSplit] | None:
    """The splits in a folder of the cache; None if it is not there, or a file has a wrong size."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if index["format"] != f"speech {FORMAT}" or index["key"] != key:
            return None
        return {part: _open(folder, part, values, sounds) for part, values in index["splits"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _open(folder: Path, part: str, values: dict[str, Any], sounds: SoundProcessor) -> SpeechSplit:
    frames, tokens = (np.array(values[name], np.int64) for name in ("frames", "tokens"))
    return SpeechSplit(
        sounds=np.memmap(folder / f"{part}.frames", Kept, "r", shape=(int(frames.sum()), sounds.mels)),
        frame_starts=np.cumsum(frames) - frames,
        frame_lengths=frames,
        tokens=np.fromfile(folder / f"{part}.tokens", np.uint32, int(tokens.sum())),
        token_starts=np.cumsum(tokens) - tokens,
        token_lengths=tokens,
        names=values["names"],
        said=values["texts"],
        frames_per_second=sounds.frames_per_second,
    )
