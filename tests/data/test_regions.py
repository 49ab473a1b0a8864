"""Regions of pictures: given vectors, pixels of boxes, patches, and NLVR's scenes."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmlab.data import make_config, prepare
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.loaders.regions import DescribedLoader
from lmlab.data.readers.media import Picture, Regions, digest_media
from lmlab.data.readers.pictures.regions import GRID, SIDE, crop, grid_boxes, make_vectors
from lmlab.data.readers.pictures.tables import read_table
from lmlab.tokenizers.processors.pictures import PictureProcessor

NLVR = Path(os.environ.get("LMLAB_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "nlvr" / "dev.json"
SHAPE = {"type": "circle", "color": "Yellow", "size": 20, "x_loc": 70, "y_loc": 90}


def record(**changes: Any) -> dict[str, Any]:
    return {"sentence": "There is a circle.", "label": "true", "structured_rep": [[SHAPE], [], []], **changes}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_scene_becomes_regions(tmp_path: Path) -> None:
    blue = {"type": "square", "color": "#0099ff", "size": 10, "x_loc": 0, "y_loc": 0}
    (row,) = read_table(write(tmp_path / "dev.json", record(structured_rep=[[SHAPE], [blue], []])))
    assert row.regions is not None
    assert row.regions.features is not None
    assert (row.label, row.texts) == ("true", {"sentence": "There is a circle."})
    assert row.regions.names == ("box 1", "medium yellow circle", "box 2", "small blue square", "box 3")
    kind, colour, size, box, place, near, order, number, _ = np.split(
        row.regions.features, [4, 7, 10, 13, 17, 21, 25, 33], axis=1
    )
    assert [order[1].tolist(), order[3].tolist(), order[0].any()] == [[1, 0, 1, 0], [1, 0, 1, 0], False]
    assert number[[0, 2, 4]].argmax(1).tolist() == [1, 1, 0]
    assert not number[[1, 3]].any()
    assert kind.argmax(1).tolist() == [0, 1, 0, 2, 0]
    assert [colour[1].tolist(), colour[3].tolist()] == [[0, 0, 1], [0, 1, 0]]
    assert [size[1].tolist(), size[3].tolist()] == [[0, 1, 0], [1, 0, 0]]
    assert not colour[0].any()
    assert not size[0].any()
    assert box.argmax(1).tolist() == [0, 0, 1, 1, 2]
    np.testing.assert_allclose(place[[0, 1, 3]], [[0, 0, 1, 1], [0.7, 0.9, 0.9, 1], [0, 0, 0.1, 0.1]], atol=1e-6)
    np.testing.assert_array_equal(
        near == 1, [[True] * 4, [False] * 3 + [True], [True] * 4, [True] * 2 + [False] * 2, [True] * 4]
    )
    np.testing.assert_allclose(near[1, :3], np.exp([-14, -18, -2]), rtol=1e-5)
    expected = [[0, 0, 0.25, 1], [0.175, 0.9, 0.225, 1], [0.375, 0, 0.625, 1], [0.375, 0, 0.4, 0.1], [0.75, 0, 1, 1]]
    np.testing.assert_allclose(row.regions.boxes, expected, atol=1e-6)


def test_boxes_say_what_is_in_them_and_shapes_their_height(tmp_path: Path) -> None:
    tower = [{"type": "square", "color": "Black", "size": 20, "x_loc": 40, "y_loc": 80 - 21 * at} for at in range(3)]
    tower[1] |= {"color": "Yellow"}
    (row,) = read_table(write(tmp_path / "dev.json", record(structured_rep=[tower, [], []])))
    assert row.regions is not None
    assert row.regions.features is not None
    order, number, contents = np.split(row.regions.features, [21, 25, 33], axis=1)[1:]
    assert order[1:4].tolist() == [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]]  # the lowest has two above it
    assert number[0].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    squares, black, yellow, medium = 1, 3, 5, 7
    at_least = {squares: 3, black: 2, yellow: 1, medium: 3}
    expected = [[float(at_least.get(look, 0) >= least) for look in range(9)] for least in range(1, 5)]
    np.testing.assert_array_equal(contents[0].reshape(4, 9), expected)
    assert not contents[1:].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sentence": ""}, "line 1: there is no sentence"),
        ({"structured_rep": [[], []]}, "must be a list of 3 boxes"),
        ({"structured_rep": [[3], [], []]}, "a shape must be an object"),
        ({"structured_rep": [[{**SHAPE, "color": "red"}], [], []]}, "not a shape of NLVR: type circle"),
        ({"structured_rep": [[{**SHAPE, "x_loc": 300}], [], []]}, "x_loc and y_loc from 0 to 100"),
        ({"structured_rep": [[SHAPE] * 200, [], []]}, "203 regions; give at most 100"),
    ],
)
def test_bad_scenes_are_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path / "dev.json", record(**changes)))


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ([{"box": [0, 0, 2, 1], "features": [1]}], "fractions of the picture"),
        ([{"box": [0.5, 0, 0.4, 1], "features": [1]}], "left ≤ right"),
        ([{"box": [0, 0, 1, 1]}], "there is no picture, and the regions have no vectors"),
        ([{"box": [0, 0, 1, 1], "features": [1]}, {"box": [0, 0, 1, 1], "features": [1, 2]}], "each region needs"),
        ("none", "regions must be a list"),
    ],
)
def test_bad_regions_of_a_table_are_named(regions: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path / "t.jsonl", {"sentence": "a", "label": "true", "regions": regions}))


def test_published_scenes_keep_a_sentence_in_one_split() -> None:
    if not NLVR.is_file():
        pytest.skip("NLVR's development set is not there (LMLAB_DATA)")
    corpus = prepare(make_config({"captions": [str(NLVR)]}), processor="words")
    splits = [split for split in (corpus.train, corpus.valid, corpus.test) if isinstance(split, PictureSplit)]
    sentences = [{text.lower() for text in split.fields["sentence"]} for split in splits]
    assert sum(map(len, sentences)) == len(set.union(*sentences)) > 200
    counts = Counter(label for split in splits for label in split.labels)
    assert counts == {"true": 547, "false": 442}
    assert splits[0].region_width == 69
    assert splits[0].picture(0).regions is not None


def pixels(height: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)


def test_a_crop_at_its_own_size_is_the_pixels() -> None:
    picture = pixels(16, 16)
    found = crop(picture, np.array([[0.5, 0.25, 1, 0.75], [0, 0, 0.5, 0.5]], np.float32), 8)
    np.testing.assert_array_equal(found[0], picture[4:12, 8:])
    np.testing.assert_array_equal(found[1], picture[:8, :8])


def test_a_crop_is_bilinear_as_pillow_does_it() -> None:
    image = pytest.importorskip("PIL.Image")
    picture = pixels(12, 20)
    small = np.array([[0.25, 0.25, 0.5, 0.5]], np.float32)  # 5 × 3 pixels, which become more
    expected = image.fromarray(picture).resize((8, 8), image.Resampling.BILINEAR, box=(5, 3, 10, 6))
    difference = np.abs(crop(picture, small, 8)[0].astype(int) - np.asarray(expected).astype(int))
    assert np.median(difference) <= 1, "at its edges Pillow does not look outside of the box"


def test_vectors_are_given_ones_then_boxes_then_patches() -> None:
    processor = PictureProcessor(height=24, width=24, channels=3)
    picture, boxes = pixels(24, 24), np.array([[0, 0, 1 / 3, 1 / 3]], np.float32)
    given = make_vectors(Picture(picture, Regions(boxes, ("a",), np.ones((1, 4), np.float32))), processor)
    assert given.vectors.tolist() == [[1, 1, 1, 1]]
    cut = make_vectors(Picture(picture, Regions(boxes)), processor)
    expected = (picture[:8, :8].astype(np.float32) / 255 - 0.5) / 0.5
    np.testing.assert_allclose(cut.vectors[0].reshape(3, 8, 8), expected.transpose(2, 0, 1), atol=1e-6)
    patches = make_vectors(Picture(picture), processor)
    assert patches.vectors.shape == (GRID**2, SIDE**2 * 3)
    np.testing.assert_allclose(patches.boxes[GRID + 1], [1 / 6, 1 / 6, 2 / 6, 2 / 6], atol=1e-6)
    for features in (None, np.zeros((0, 4), np.float32)):
        empty = make_vectors(Picture(picture, Regions(np.zeros((0, 4), np.float32), (), features)), processor)
        assert empty.boxes.tolist() == grid_boxes(1).tolist() == [[0, 0, 1, 1]]
        assert len(empty.vectors) == 1


def test_regions_count_in_the_digest_of_a_picture() -> None:
    picture, boxes = pixels(4, 4), np.zeros((1, 4), np.float32)
    digests = {
        digest_media(Picture(picture)),
        digest_media(Picture(picture, Regions(boxes))),
        digest_media(Picture(picture, Regions(boxes, (), np.ones((1, 2), np.float32)))),
    }
    assert len(digests) == 3


class Texts:
    """Texts whose tokens are the number of the row, every third of them equal."""

    def row(self, number: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
        return np.array([number // 3], np.uint32)


class Described:
    size = 21
    labels = ["true", "false", None] * 7

    def __init__(self, field: str) -> None:
        self.tokens = {field: Texts()}

    def picture(self, row: int) -> Picture:
        return Picture(np.full((1, 1, 1), row, np.uint8))


@pytest.mark.parametrize("field", ["caption", "sentence"])
def test_half_of_the_pairs_have_another_text(field: str) -> None:
    loader = DescribedLoader(Described(field), batch=4, window=8, seed=3, mismatched=True)
    batches = [loader.batch(step) for step in range(int(loader.steps_per_epoch))]
    seen = [int(each.pixels[0, 0, 0]) for batch in batches for each in batch.pictures]
    rows = [row for row in range(21) if field == "caption" or row % 3 != 1]
    assert sorted(seen) == rows
    matches = np.concatenate([batch.matches for batch in batches])
    assert matches.sum() == -(-len(rows) // 2)
    texts = [int(text[0]) for batch in batches for text in batch.texts]
    assert [text == row // 3 for text, row in zip(texts, seen, strict=True)] == matches.tolist()
    assert all(0 < batch.matches.sum() < len(batch.matches) for batch in batches)
    again = loader.batch(1)
    assert [text.tolist() for text in again.texts] == [text.tolist() for text in batches[1].texts]


def test_questions_are_not_descriptions() -> None:
    with pytest.raises(ValueError, match="these pictures have questions: give captions"):
        DescribedLoader(Described("question"), batch=4, window=8, seed=0, mismatched=True)
