"""The typographic attack: letters are where they should be, controls are counted, and no effect is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lmlab.analysis.pictures.matching import ZeroShot
from lmlab.analysis.pictures.typographic import attack, choose_wrong
from lmlab.data.readers.pictures.files import find_pictures
from lmlab.data.readers.pictures.lettering import INK, PAPER, letter_dots, write_word
from lmlab.data.readers.pictures.signs import make_sign
from lmlab.data.readers.pictures.sources import ArraySource, PictureRow
from lmlab.pages.views import to_page
from lmlab.tokenizers.processors.pictures import PictureProcessor

GREY = np.full((64, 64, 3), 128, np.uint8)


class FakeMatcher:
    """A matcher whose vector of a picture is its ink and its paper, so that it finds words or not, by its setting."""

    processor = PictureProcessor(height=64, width=64, channels=3)

    def __init__(self, *, reads: bool) -> None:
        self.reads = reads

    def embed_pixels(self, pictures: list[np.ndarray]) -> np.ndarray:
        return np.array([[(each == INK).sum(), (each == PAPER).sum()] for each in pictures], np.float32)

    def classify(self, vectors: np.ndarray, labels: list[str], templates: list[str]) -> ZeroShot:
        found = np.tile(np.linspace(0.4, 0.1, len(labels), dtype=np.float32), (len(vectors), 1))
        if self.reads:
            found[vectors[:, 0] > 0, labels.index("star")] = 0.9
        return ZeroShot(tuple(labels), found)


def fake_matcher(*, reads: bool) -> Any:
    return FakeMatcher(reads=reads)


def rows(count: int = 40) -> list[PictureRow]:
    return [PictureRow(ArraySource(GREY[None], 0, f"{number}.png"), "circle") for number in range(count)]


def test_letters_are_dots() -> None:
    assert letter_dots("L").astype(int).tolist() == [[1, 0, 0]] * 4 + [[1, 1, 1]]
    assert letter_dots("to").shape == (5, 7)
    assert letter_dots("é").all()
    assert len({letter_dots(letter).tobytes() for letter in "abcdefghijklmnopqrstuvwxyz"}) == 26


def test_a_word_is_written_on_a_label() -> None:
    written, blank = write_word(GREY, "star"), write_word(GREY, "star", blank=True)
    assert (GREY == 128).all(), "the picture itself is not changed"
    assert ((written != GREY) | (blank != GREY)).any(axis=2).sum() == (blank != GREY).any(axis=2).sum()
    scale = 64 * 8 // 10 // (letter_dots("star").shape[1] + 2)
    scale = min(scale, int(0.22 * 64 / 7))
    assert (written == INK).all(axis=2).sum() == letter_dots("star").sum() * scale**2
    assert (write_word(GREY, "star", down=0.0)[0] == PAPER).any()
    with pytest.raises(ValueError, match="too long to be written"):
        write_word(GREY, "a very long word indeed")
    with pytest.raises(ValueError, match="the word is empty"):
        write_word(GREY, " ")


def test_a_model_that_reads_is_fooled() -> None:
    found = attack(fake_matcher(reads=True), rows(), word="star", labels=["circle", "square", "star"])
    assert [found.rate(name).value for name in ("plain", "blank", "written")] == [0.0, 0.0, 1.0]
    assert found.has_effect
    assert found.accuracy("plain") == 1.0
    assert found.accuracy("written") == 0.0
    assert found.lead().startswith("with the word written on it, the label is that word for 100.0%")
    assert to_page(found).count("data:image/png") == 12
    assert found.as_json()["clear_effect"] is True


def test_a_model_that_does_not_read_is_not() -> None:
    found = attack(fake_matcher(reads=False), rows(), word="star", labels=["circle", "square"])
    assert found.labels == ("circle", "square", "star")
    assert found.lead().startswith("no clear effect")


def test_without_a_word_each_picture_gets_a_wrong_label() -> None:
    labels = ["circle", "square", "star"]
    assert [choose_wrong("circle", labels, number) for number in range(3)] == ["square", "star", "square"]
    mixed = [row._replace(label=labels[number % 3]) for number, row in enumerate(rows(6))]
    found = attack(fake_matcher(reads=True), mixed)
    assert all(each.word != each.known for each in found.attacked)


def test_built_in_signs_say_what_they_show() -> None:
    files = find_pictures("builtin:signs")
    assert files.test is not None
    kinds = {make_sign("train", number).kind for number in range(50)}
    assert kinds == {"shape", "word", "named shape"}
    for number in range(50):
        sign, row = make_sign("train", number), files.train[number]
        assert row.label == sign.thing.shape
        assert row.label in row.texts["caption"]
        written = (row.picture.read() == PAPER).all(axis=2).sum() > 50
        assert written == (sign.kind != "shape")
    assert all(make_sign("test", number).kind == "shape" for number in range(50))
