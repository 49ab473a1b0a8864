"""Pictures on pages: PNG that other programs read, and regions that are darker the less weight they have."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest

from lmlab.pages.figures.pictures import DARKEST, PictureHeatmap, data_uri, encode_png

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 3)).astype(np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_pillow_reads_the_same_pixels(channels: int) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = PIXELS[..., :channels]
    found = np.asarray(image.open(io.BytesIO(encode_png(pixels)))).reshape(pixels.shape)
    assert np.array_equal(found, pixels)


def test_other_shapes_are_refused() -> None:
    for wrong in (PIXELS[..., :2], PIXELS.astype(np.float32)):
        with pytest.raises(ValueError, match="give uint8"):
            encode_png(wrong)


def test_a_region_with_the_largest_weight_stays_as_it_is() -> None:
    figure = PictureHeatmap("<star>", PIXELS, [[0.0, 0.1, 0.2], [0.5, 0.2, 0.0]])
    html = str(figure.html())
    dark = [float(each) for each in re.findall(r"fill-opacity:([\d.]+)", html)]
    assert dark == pytest.approx([DARKEST * (1 - weight / 0.5) for weight in (0, 0.1, 0.2, 0.5, 0.2, 0)], abs=1e-3)
    assert "&lt;star&gt;" in html
    assert "<star>" not in html, "titles are escaped"
    assert base64.b64encode(encode_png(PIXELS)).decode() in html
    assert data_uri(PIXELS).startswith("data:image/png;base64,")


def test_without_weights_the_picture_stands_alone() -> None:
    figure = PictureHeatmap("picture", PIXELS)
    assert "fill-opacity" not in figure.html()
    pyplot = pytest.importorskip("matplotlib.figure")
    figure.draw(pyplot.Figure().add_subplot())
    PictureHeatmap("words", PIXELS[..., :1], [[1.0]]).draw(pyplot.Figure().add_subplot())
