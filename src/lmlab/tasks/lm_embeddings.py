"""What frozen language models say of each word of a sentence: the h^LM of TagLM (Peters et al. 2017).

Any run can be the language model. Its own pieces are aligned with words: of a model that reads from left to right a
word is its last piece, where it has been read as a whole; of one that reads backwards its first; of an encoder, too.
A word that has no piece has zeros.
Shapes: K words, L layers, F width, of all language models side by side.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.data.loaders.bucketing import in_batches
from lmlab.data.readers.files import cache_folder
from lmlab.layers.layer_mix import side_by_side
from lmlab.models.abilities import PredictsNext
from lmlab.models.model import Model
from lmlab.progress import ReportProgress
from lmlab.runs.model_files import load_frame, load_model
from lmlab.runs.storage import MODEL, digest_weights, write_folder, write_json
from lmlab.tasks.frozen_vectors import make_room
from lmlab.tasks.records import Item
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, Row, collate
from lmlab.tokenizers.words import SplitText, read_words

STATES = "states"
"""The folder of a run that keeps the language models which it needs."""
KEPT = ("config.json", "tokenizer.json", "tokenizer_options.json", "frame.json", MODEL)
BATCH_TOKENS = 4096
PART = 256
"""Sentences whose states are computed before they are written."""

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class FrozenLM:
    """One frozen language model."""

    model: Model
    tokenizer: Tokenizer
    frame: Frame
    layers: str

    @classmethod
    def load(cls, folder: Path, *, layers: str) -> FrozenLM:
        """The language model of a run; a ValueError says what is missing."""
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is not a run directory, and its states are needed: it has no config.json")
        model, tokenizer = load_model(folder)
        if not isinstance(model, Model) or tokenizer is None:
            raise ValueError(f"{folder} has no word vectors; use a network that was trained on text")
        return cls(model.eval(), tokenizer, load_frame(folder, model, tokenizer), layers)

    @torch.inference_mode()
    def read(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """[K, L, F] for each sentence, L being 1 where only the last layer is read."""
        parts, pieces, rows = self._rows(sentences)
        inputs = collate(rows, device=self.model.device)
        found = self.model.layers(**inputs) if self.layers == "mix" else [self.model.vectors(**inputs)]
        vectors = side_by_side(found).float().cpu().numpy()  # [B, T, L, F]
        by_part = []
        for number, (row, text) in enumerate(zip(rows, pieces, strict=True)):
            positions = self._positions_of_words(text.words, row.inputs[self.frame.reads].positions("a"))
            states = np.zeros((len(parts[number]), *vectors.shape[2:]), np.float32)
            states[list(positions)] = vectors[number, list(positions.values())]
            by_part.append(states)
        ends = np.cumsum([len(list(self._parts(words))) for words in sentences])[:-1]
        empty = np.zeros((0, *vectors.shape[2:]), np.float32)
        groups = np.split(np.arange(len(by_part)), ends)
        return [np.concatenate([empty, *(by_part[number] for number in group)]) for group in groups]

    def flops(self, sentences: Sequence[Sequence[str]]) -> float:
        """Floating-point operations of `read`: one forward pass."""
        inputs = collate(self._rows(sentences)[2])
        return self.model.embedding_flops_of(inputs) + self.model.reading_flops(inputs)

    def _rows(self, sentences: Sequence[Sequence[str]]) -> tuple[list[Sequence[str]], list[SplitText], list[Row]]:
        """The parts of all sentences that fit into the window, their pieces, and these as rows."""
        parts = [part for words in sentences for part in self._parts(words)]
        pieces = [read_words(words, self.tokenizer) for words in parts]
        return parts, pieces, self.frame.rows([{"a": text.pieces} for text in pieces])

    def _positions_of_words(self, words: Sequence[int | None], positions: Mapping[int, int]) -> dict[int, int]:
        """Return the position in the row at which each word is complete; a word that was cut off has none."""
        last = isinstance(self.model, PredictsNext) and self.frame.reads not in self.frame.backwards
        found: dict[int, int] = {}
        for piece, word in enumerate(words):
            if word is not None and piece in positions and (last or word not in found):
                found[word] = positions[piece]
        return found

    def _parts(self, words: Sequence[str]) -> Iterator[Sequence[str]]:
        """A sentence, in several parts where it does not fit into the window."""
        if self.model.window is None:
            yield words
            return
        room = self.model.window - self.frame.overhead(self.frame.reads, "a")
        lengths = [len(self.tokenizer.encode(f" {word}")) for word in words]
        first, used = 0, 0
        for number, length in enumerate(lengths):
            if number > first and used + length > room:
                yield words[first:number]
                first, used = number, 0
            used += length
        yield words[first:]


@dataclass(frozen=True)
class LanguageStates:
    """The states of several language models side by side."""

    folders: Sequence[str]
    layers: str = "last"

    @cached_property
    def readers(self) -> list[FrozenLM]:
        with torch.inference_mode(False):  # who predicts may be the first to need them, and weights outlive that
            return [FrozenLM.load(Path(folder), layers=self.layers) for folder in self.folders]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """How many layers there are, and how wide they are together; a ValueError where they differ in number."""
        shapes = [reader.read([["a"]])[0].shape[1:] for reader in self.readers]
        if len({layers for layers, _ in shapes}) > 1:
            raise ValueError(
                f"the language models have {', '.join(str(layers) for layers, _ in shapes)} layers: to mix them they "
                "need as many; take objective.state_layers=last"
            )
        return shapes[0][0], sum(width for _, width in shapes)

    def read(self, sentences: Sequence[Sequence[str]]) -> list[Vectors]:
        """[K, L·F] for each sentence."""
        found: list[Any] = [None] * len(sentences)
        for group in self._groups(sentences):
            read = [reader.read([sentences[number] for number in group]) for reader in self.readers]
            for position, number in enumerate(group):
                joined = np.concatenate([each[position] for each in read], axis=-1)
                found[number] = joined.reshape(len(joined), math.prod(joined.shape[1:]))
        return found

    def flops(self, sentences: Sequence[Sequence[str]]) -> float:
        """Floating-point operations of `read`, PART sentences at a time."""
        parts = (sentences[first : first + PART] for first in range(0, len(sentences), PART))
        groups = ([part[number] for number in group] for part in parts for group in self._groups(part))
        return sum(reader.flops(group) for group in groups for reader in self.readers)

    def _groups(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        """The numbers of the sentences that are read together."""
        return in_batches([sum(map(len, words)) for words in sentences], tokens=BATCH_TOKENS)

    def keep(self, folder: Path) -> None:
        """Copy what is needed of the language models into a run, which then needs nothing from outside."""
        for number, source in enumerate(self.folders):
            target = folder / str(number)
            if Path(source) == target or (target / MODEL).is_file():
                continue

            def fill(new: Path, source: str = source) -> None:
                for name in KEPT:
                    if (Path(source) / name).is_file():
                        shutil.copyfile(Path(source) / name, new / name)

            target.parent.mkdir(parents=True, exist_ok=True)
            write_folder(target, fill)

    def kept_in(self, folder: Path) -> LanguageStates:
        """The same from the copies that a run keeps, where it has them."""
        own = [folder / str(number) for number in range(len(self.folders))]
        return replace(self, folders=[str(each) for each in own]) if all(map(Path.is_dir, own)) else self


def with_states(
    language: LanguageStates, items: Sequence[Item], *, progress: ReportProgress | None = None
) -> list[Item]:
    """Items with the states of their words, computed now or found in the cache by a hash of all they depend on."""
    words = [item.words or () for item in items]
    digest = hashlib.sha256(f"2 {language.layers}".encode())
    for source in language.folders:
        digest.update(str(digest_weights(Path(source))).encode())
    for sentence in words:
        digest.update(json.dumps(sentence, ensure_ascii=False).encode())
    folder = cache_folder() / "states" / digest.hexdigest()
    if not (folder / "index.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_folder(folder, lambda new: _compute(language, words, new, progress))
        make_room(folder.parent, keep=folder)
    folder.touch()
    index = json.loads((folder / "index.json").read_text())
    states = np.memmap(folder / "states.f32", np.float32, "r", shape=tuple(index["shape"]))
    ends = np.cumsum([0, *map(len, words)])
    return [replace(item, states=states[ends[i] : ends[i + 1]]) for i, item in enumerate(items)]


def _compute(
    language: LanguageStates, words: Sequence[Sequence[str]], folder: Path, progress: ReportProgress | None
) -> None:
    """Write the states of sentences, some at a time."""
    layers, width = language.shape
    ends = np.cumsum([0, *map(len, words)])
    shape = (max(1, int(ends[-1])), layers * width)
    states = np.memmap(folder / "states.f32", np.float32, "w+", shape=shape)
    for first in range(0, len(words), PART):
        part = words[first : first + PART]
        states[ends[first] : ends[first + len(part)]] = np.concatenate(language.read(part))
        if progress is not None:
            progress(first + len(part), len(words))
    states.flush()
    write_json(folder / "index.json", {"shape": shape})
