"""Pixels as tokens: the nearest level, raster order, palettes, and the score in bits per dimension."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.tokenizers.processors import load_processor, make_processor
from lmlab.tokenizers.processors.captioned_pixels import CaptionedPixels
from lmlab.tokenizers.processors.pictures import PictureProcessor
from lmlab.tokenizers.processors.pixels import Pixels, make_palette
from lmlab.tokenizers.training import train


def grey(height: int, width: int) -> PictureProcessor:
    return PictureProcessor(height=height, width=width, channels=1)


def test_levels_and_order_by_hand() -> None:
    """Four levels are 0, 85, 170 and 255; rows come one after another."""
    tokenizer = Pixels(4, grey(2, 3))
    picture = np.array([[0, 42, 43], [127, 128, 255]], np.uint8)[..., None]
    assert tokenizer.palette[:, 0].tolist() == [0, 85, 170, 255]
    assert tokenizer.encode(picture).tolist() == [0, 0, 1, 1, 2, 3]
    assert tokenizer.decode([0, 0, 1, 1, 2, 3])[..., 0].tolist() == [[0, 0, 85], [85, 170, 255]]
    assert (tokenizer.vocabulary, tokenizer.boundary, tokenizer.length) == (5, 4, 6)
    assert [tokenizer.show(token) for token in (1, 4)] == ["grey 85", "boundary"]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 256), st.integers(0, 2**32 - 1))
def test_every_pixel_gets_the_nearest_level(levels: int, seed: int) -> None:
    picture = np.random.default_rng(seed).integers(0, 256, (3, 5, 1)).astype(np.uint8)
    tokenizer = Pixels(levels, grey(3, 5))
    ids = tokenizer.encode(picture)
    error = np.abs(tokenizer.decode(ids.tolist()).astype(int) - picture)
    others = np.abs(tokenizer.palette[:, 0].astype(int) - picture.reshape(-1, 1)).min(1)
    assert error.ravel().tolist() == others.tolist()
    assert tokenizer.encode(tokenizer.decode(ids.tolist())).tolist() == ids.tolist()


def test_few_colours_are_kept_exactly() -> None:
    colours = np.array([[250, 10, 10], [0, 0, 0], [10, 10, 250]], np.uint8)
    pictures = colours[np.random.default_rng(0).integers(0, 3, (20, 4, 4))]
    tokenizer = Pixels(16).fit(PictureProcessor(height=4, width=4), pictures)
    assert tokenizer.vocabulary == 4
    assert tokenizer.palette[0].tolist() == [0, 0, 0], "dark colours come first"
    assert np.array_equal(tokenizer.decode(tokenizer.encode(pictures[3]).tolist()), pictures[3])
    assert tokenizer.show(0) == "#000000"


def test_many_colours_become_a_palette_that_is_better_than_greys() -> None:
    """The mean square error of k-means is below that of an even grid of 2 × 2 × 2 colours, and does not change."""
    pictures = np.random.default_rng(0).normal(100, 30, (20, 8, 8, 3)).clip(0, 255).astype(np.uint8)
    palette = make_palette(pictures, 8)
    assert np.array_equal(palette, make_palette(pictures, 8))
    assert len(palette) == 8
    tokenizer = Pixels(8, PictureProcessor(height=8, width=8), palette.tolist())
    found = np.stack([tokenizer.decode(tokenizer.encode(each).tolist()) for each in pictures]).astype(float)
    even = np.where(pictures < 128, 64.0, 192.0)
    assert ((found - pictures) ** 2).mean() < 0.5 * ((even - pictures) ** 2).mean()


def test_the_score_is_bits_for_each_pixel() -> None:
    assert Pixels(16).scores(math.log(16)) == {"bits_per_dimension": pytest.approx(4.0)}
    assert Pixels(16).describe(math.log(2)) == "1.0000 bits per dimension"


def test_settings_are_kept(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (4, 4, 4, 3)).astype(np.uint8)
    for tokenizer in (Pixels(8, grey(4, 6)), Pixels(8).fit(PictureProcessor(height=4, width=4), pictures)):
        tokenizer.save(tmp_path / "processor.json")
        assert load_processor(tmp_path) == tokenizer
    (tmp_path / "processor.json").write_text(json.dumps({"kind": "pixels", "levels": 4, "palette": [[1, 2, 3]]}))
    with pytest.raises(ValueError, match="is damaged"):
        load_processor(tmp_path)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pixels:many", "'many' is not understood; allowed: pixels, pixels:16"),
        ("pixels:1", "give 2 to 1024"),
        ("pixels:300", "there are 256 grey levels"),
    ],
)
def test_what_is_not_understood(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_processor(spec)


def test_another_size_is_resized() -> None:
    pytest.importorskip("PIL")
    white = np.full((9, 12, 3), 255, np.uint8)
    assert Pixels(2, grey(4, 6)).encode(white).tolist() == [1] * 24


def test_captions_of_a_lossy_tokenizer_have_no_bits_per_byte() -> None:
    """Unknown words do not tell how many bytes they had."""
    picture = np.zeros((2, 2, 1), np.uint8)
    for spec, score in (("words", "caption_nats_per_token"), ("bytes", "caption_bits_per_byte")):
        text = train(spec, ["a red square"])
        tokenizer = CaptionedPixels(text, Pixels(2, grey(2, 2)))
        ids = tokenizer.encode(np.array(text.encode("a strange square")), picture)
        totals = tokenizer.totals(ids, np.ones(len(ids)))
        assert list(totals) == ["bits_per_dimension", score]
        words = len(ids) - 4
        bytes_ = (words / math.log(2), float(len("a strange square")))
        assert totals[score] == pytest.approx((words, words) if spec == "words" else bytes_)
