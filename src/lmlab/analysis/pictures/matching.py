"""Pictures and texts as vectors in one space: search, zero-shot labels, and recall (CLIP)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.data.corpora.pictures.shards import decode, in_order, workers
from lmlab.data.readers.media import ENDINGS
from lmlab.data.readers.pictures.files import find_pictures
from lmlab.data.readers.pictures.sources import FileSource, PictureFiles, PictureRow, PictureSource
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.retrieval import Matching, RankedRecall, Ranks, chance_of_recall
from lmlab.metrics.statistics import Estimate, estimate
from lmlab.models.abilities import MatchesPictures
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, collate
from lmlab.tokenizers.processors.pictures import PictureProcessor, PixelArray

Vectors = NDArray[np.float32]
Item = TypeVar("Item")
DEPTHS = (1, 5, 10)
"""The k of recall@k."""
PLAIN = ("{}",)
"""The template of a label without one."""


class UnknownWordWarning(UserWarning):
    """A label or a query has words that the model has not learnt."""


class ReadPictures(NamedTuple):
    """Pictures that could be read: where each stood among those that were given, and its vector."""

    vectors: Vectors  # [N, E]
    numbers: list[int]  # [N]
    problems: list[str]  # a line for each of the others


class Recall(NamedTuple):
    """Recall@k in one direction, with its interval, and that of a random order."""

    k: int
    estimate: Estimate
    chance: float


class ZeroShot(NamedTuple):
    """Labels without training: the probability of each label for each picture."""

    labels: tuple[str, ...]
    probabilities: Vectors  # [N, L]

    @property
    def best(self) -> list[str]:
        """The most probable label of each picture."""
        return [self.labels[number] for number in self.probabilities.argmax(1)]

    def ranked(self, number: int) -> list[tuple[str, float]]:
        """The labels of a picture with their probabilities, the most probable first."""
        row = self.probabilities[number]
        return [(self.labels[label], float(row[label])) for label in np.argsort(-row, kind="stable")]


@dataclass(frozen=True, kw_only=True)
class Matcher:
    """A model that gives pictures and texts vectors in one space, with its tokenizer and its processor of pictures."""

    model: MatchesPictures
    tokenizer: Tokenizer
    frame: Frame
    processor: PictureProcessor
    window: int
    batch: int = 64
    progress: ReportProgress | None = None

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> Vectors:
        """The unit vectors [N, E] of texts; a text that is too long is cut."""
        frame, found = replace(self.frame, window=self.window), []
        for part in in_batches(texts, self.batch):
            check_cancelled()
            tokens = self.tokenizer.encode_batch(part)
            inputs = collate(frame.rows([{"a": ids} for ids in tokens]))
            moved = {name: each.to(self.model.device) for name, each in inputs.items()}
            found.append(self.model.embed_texts(moved["tokens"], moved.get("lengths")).float().cpu().numpy())
        return np.concatenate(found) if found else np.zeros((0, 0), np.float32)

    @torch.inference_mode()
    def embed_pixels(self, pictures: Iterable[PixelArray]) -> Vectors:
        """The unit vectors [N, E] of pictures [h, w, C] of any size."""
        found = []
        for part in in_batches(pictures, self.batch):
            check_cancelled()
            pixels = self.processor.normalise(np.stack([self.processor.process(each) for each in part]))
            found.append(self.model.embed_pictures(pixels.to(self.model.device)).float().cpu().numpy())
        return np.concatenate(found) if found else np.zeros((0, 0), np.float32)

    def embed_sources(self, sources: Sequence[PictureSource]) -> ReadPictures:
        """The unit vectors of pictures in files, in bounded memory; those that cannot be read are left out."""
        numbers: list[int] = []
        problems: list[str] = []

        def read() -> Iterator[PixelArray]:
            with ThreadPoolExecutor(workers()) as pool:
                decoded = in_order(pool, partial(decode, processor=self.processor), sources)
                for number, each in enumerate(decoded):
                    if self.progress is not None:
                        self.progress(number + 1, len(sources))
                    if each.pixels is None:
                        problems.append(each.problem)
                    else:
                        numbers.append(number)
                        yield each.pixels

        vectors = self.embed_pixels(read())
        if not numbers:
            raise ValueError(problems[0] if problems else "there are no pictures")
        return ReadPictures(vectors, numbers, problems)

    def unknown_words(self, texts: Sequence[str]) -> list[str]:
        """The words of texts that are not in the vocabulary, each once."""
        words = dict.fromkeys(word for text in texts for word in text.split())
        ids = (np.asarray(self.tokenizer.encode(word)) for word in words)
        return [word for word, own in zip(words, ids, strict=True) if self.tokenizer.is_unknown(own).any()]

    def warn_of_unknown(self, texts: Sequence[str]) -> None:
        """Warn of words that are not in the vocabulary: the model reads the same unknown token for all of them."""
        if unknown := self.unknown_words(texts):
            shown = ", ".join(repr(word) for word in unknown[:5]) + (", …" if len(unknown) > 5 else "")
            warnings.warn(
                f"not in the vocabulary of the run: {shown}; it reads the same unknown token for each of them, so what "
                "it gives for such a text means little. Use words of its training captions",
                UnknownWordWarning,
                stacklevel=3,
            )

    def embed_labels(self, labels: Sequence[str], templates: Sequence[str] = PLAIN) -> Vectors:
        """The unit vector [L, E] of each label: the mean over its templates, normalised (section 3.1.4)."""
        check_labels(labels, templates)
        self.warn_of_unknown([*labels, *(template.replace("{}", " ") for template in templates)])
        texts = [template.replace("{}", label) for label in labels for template in templates]
        means = self.embed_texts(texts).reshape(len(labels), len(templates), -1).mean(1)
        unit: Vectors = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        return unit

    def classify(self, pictures: Vectors, labels: Sequence[str], templates: Sequence[str] = PLAIN) -> ZeroShot:
        """The probability of each label for pictures with these vectors: softmax of scale · cosine."""
        with torch.inference_mode():
            scale = float(self.model.scale())
        scores = scale * (pictures @ self.embed_labels(labels, templates).T)
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return ZeroShot(tuple(labels), (powers / powers.sum(1, keepdims=True)).astype(np.float32))


def in_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items; the last may have fewer."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def check_labels(labels: Sequence[str], templates: Sequence[str]) -> None:
    """Raise a ValueError unless there are two different labels, and templates with a place for them."""
    if len(set(labels)) < len(labels) or len(labels) < 2 or not all(label.strip() for label in labels):
        raise ValueError(f'labels {", ".join(labels)!r}: give at least two different ones, as --labels "cat,dog"')
    for template in templates:
        if "{}" not in template:
            raise ValueError(
                f'template {template!r}: mark the place of the label with {{}}, as in "a picture of a {{}}"'
            )
    if not templates:
        raise ValueError("there is no template: give at least one, such as {}")


def is_picture(text: str) -> bool:
    """Whether a text is the path of a picture; a ValueError if it looks like one and there is no such file."""
    if not text.lower().endswith(ENDINGS["images"]):
        return False
    if not Path(text).is_file():
        raise ValueError(f"{text} does not exist, and looks like the name of a picture")
    return True


def read_rows(path: str, *, columns: Mapping[str, str] | None = None) -> list[PictureRow]:
    """All rows of a folder, table, zip file or built-in data set, whatever their split; each picture with its texts."""
    files = find_pictures(path, columns=columns)
    return [row for part in (files.train, files.valid, files.test) for row in part or ()]


def held_out_rows(files: PictureFiles) -> tuple[list[PictureRow], str | None]:
    """The rows to evaluate on, and the name of their split: test, else validation, else all."""
    for name, rows in (("test", files.test), ("valid", files.valid)):
        if rows is not None:
            return list(rows), name
    return list(files.train), None


def unique_sources(rows: Sequence[PictureRow]) -> tuple[list[PictureSource], list[int]]:
    """The pictures of rows, each once, and the number of each row's picture among them."""
    numbers: dict[PictureSource, int] = {}
    source_numbers = [numbers.setdefault(row.picture, len(numbers)) for row in rows]
    return list(numbers), source_numbers


def picture_source(path: str) -> PictureSource:
    """A picture in a file."""
    return FileSource(Path(path))


def match_captions(matcher: Matcher, rows: Sequence[PictureRow]) -> tuple[Matching, list[str]]:
    """The vectors of rows with captions, and a line for each picture that cannot be read; equal captions are one."""
    sources, source_numbers = unique_sources(rows)
    read = matcher.embed_sources(sources)
    own = {number: row for row, number in enumerate(read.numbers)}
    kept = [row for row, number in enumerate(source_numbers) if number in own]
    captions = [rows[row].texts["caption"] for row in kept]
    known = {text: number for number, text in enumerate(dict.fromkeys(captions))}
    texts = matcher.embed_texts(list(known))
    pictures = np.array([own[source_numbers[row]] for row in kept], np.int64)
    numbers = np.array([known[text] for text in captions], np.int64)
    return Matching(read.vectors[pictures], texts[numbers], pictures, numbers), read.problems


def score_retrieval(matching: Matching) -> dict[str, Recall]:
    """Recall@1, 5 and 10 in both directions, by name, each with its interval and that of a random order."""
    found = {}
    for direction in ("text_to_picture", "picture_to_text"):
        ranks: Ranks = getattr(matching, direction)()
        for k in DEPTHS:
            score = estimate(RankedRecall(k), ranks.best.tolist(), ranks.right.tolist())
            found[f"{direction}_at_{k}"] = Recall(k, score, chance_of_recall(ranks, k))
    return found


def score_zero_shot(found: ZeroShot, true: Sequence[str]) -> Estimate:
    """The accuracy of zero-shot labels with its interval."""
    return estimate(Accuracy(), found.best, list(true))
