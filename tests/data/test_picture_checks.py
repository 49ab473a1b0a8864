"""What the check of pictures finds; unusual and bad files; preparation in bounded memory."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmlab.data.corpora.pictures import shards
from lmlab.data.corpora.pictures.checking import PictureCheck
from lmlab.data.corpora.pictures.images import ImagesConfig, PictureWarning, open_pictures
from lmlab.data.readers.pictures.decoding import BadPictureError, decode_picture
from random_pictures import encode, picture

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "cache"))


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def check(folder: Path, **settings: Any) -> PictureCheck:
    config = ImagesConfig(images=[str(folder)], **settings)
    return open_pictures(config, config.images, given=None, progress=None).check


def test_numbers_sizes_classes_duplicates_and_leaks(tmp_path: Path) -> None:
    home = tmp_path / "animals"
    for number in range(12):
        write(home / "train" / ("cat" if number < 9 else "dog") / f"{number}.png", encode(picture(number)))
    write(home / "train" / "cat" / "again.png", encode(picture(3)))
    write(home / "train" / "dog" / "noise.png", encode(picture(4)))
    write(home / "train" / "dog" / "large.png", encode(picture(20, 10, 6, 3)))
    for number in (0, 50, 51):
        write(home / "valid" / "cat" / f"{number}.png", encode(picture(number)))
    for number in (1, 50, 60, 61):
        write(home / "test" / "dog" / f"{number}.png", encode(picture(number)))
    found = check(home)
    assert found.pictures == {"train": 15, "valid": 3, "test": 4}
    assert found.classes == {"cat": 10, "dog": 5}
    assert found.duplicates == {"train": 2, "valid": 0, "test": 0}
    assert found.leaks == {"valid": 1, "test": 2}
    assert found.noisy == 1
    assert found.sizes == {"8 × 8": 19, "10 × 6": 1}, "each picture of a split counts once"
    assert found.lines() == [
        "pictures: train 15, valid 3, test 4",
        "sizes: 8 × 8 95%, 10 × 6 5%; resized to 8 × 8 pixels",
        "2 classes: cat 67%, dog 33%",
        "duplicates: 2 within train",
        "leaks: 1 of 3 pictures of valid are also in train",
        "leaks: 2 of 4 pictures of test are also in train or valid",
        "label noise: 1 picture of train with two classes",
    ]
    assert check(home) == found, "the same from the cache"


def test_training_prints_the_check_and_the_card_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from lmlab.cli.application import app

    for number in range(20):
        write(tmp_path / "animals" / ("cat" if number % 2 else "dog") / f"{number}.png", encode(picture(number)))
    options = ["--budget", "1steps", "--set", "model.width=8", "--set", "model.layers=1", "--set", "train.batch=4"]
    result = CliRunner().invoke(app, ["train", "vit", str(tmp_path / "animals"), "-o", str(tmp_path / "run"), *options])
    assert result.exit_code == 0, result.output
    assert "2 classes: cat 50%, dog 50%" in result.stderr
    assert "| data check | sizes: all 8 × 8 pixels |" in (tmp_path / "run" / "README.md").read_text()


def bomb(width: int, height: int) -> bytes:
    """A PNG file of a few bytes whose header promises a large picture."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )


def test_each_bad_file_is_one_line(tmp_path: Path) -> None:
    home = tmp_path / "animals"
    for number in range(20):
        write(home / ("cat" if number % 2 else "dog") / f"{number}.png", encode(picture(number)))
    bad = {
        "bomb.png": (bomb(100_000, 100_000), "pixels"),
        "wide.png": (bomb(70_000_000, 1), "pixels"),
        "broken.png": (encode(picture(1))[:90], "cannot be read"),
        "empty.png": (b"", "is empty"),
        "html.jpg": (b"<html>not found</html>", "is not a picture"),
    }
    for name, (content, _) in bad.items():
        write(home / "cat" / name, content)
    with pytest.raises(ValueError, match=r"\(and \d more\)\. Remove them, or leave them out with --set data\.bad=skip"):
        check(home)
    assert not list((tmp_path / "cache").glob("*/pictures-*")), "nothing is left of it"
    with pytest.warns(PictureWarning) as warned:
        found = check(home, bad="skip")
    lines = [str(each.message) for each in warned if each.category is PictureWarning]
    assert len(lines) == len(bad)
    for name, (_, why) in bad.items():
        assert sum(f"{name} " in line and why in line and "\n" not in line for line in lines) == 1, name
    assert sum(found.pictures.values()) == 20
    assert found.lines()[0].endswith("skipped 5 that cannot be read")


def test_unusual_files_are_read_as_they_look() -> None:
    grey, colours = picture(1, 6, 5), picture(2, 6, 5, 3)
    file = io.BytesIO()
    tagged = Image.Exif()
    tagged[0x0112] = 6  # the camera was turned by a quarter
    Image.fromarray(colours).save(file, "PNG", exif=tagged)
    np.testing.assert_array_equal(decode_picture(file.getvalue(), name="turned"), np.rot90(colours, -1))
    file = io.BytesIO()
    few = Image.fromarray(colours // 128 * 255).convert("P", palette=Image.Palette.ADAPTIVE)
    few.save(file, "GIF")
    np.testing.assert_array_equal(decode_picture(file.getvalue(), name="palette"), np.asarray(few.convert("RGB")))
    deep = decode_picture(encode(grey.astype(np.uint16) * 257), name="deep")
    np.testing.assert_array_equal(deep[..., 0], grey)
    file = io.BytesIO()
    Image.fromarray(grey).convert("1").save(file, "PNG")
    assert set(np.unique(decode_picture(file.getvalue(), name="bits"))) == {0, 255}
    file = io.BytesIO()
    smooth = np.full((16, 16, 3), (200, 90, 30), np.uint8)
    Image.fromarray(smooth).convert("CMYK").save(file, "JPEG", quality=95)
    np.testing.assert_allclose(decode_picture(file.getvalue(), name="cmyk").astype(int), smooth, atol=4)
    with pytest.raises(BadPictureError, match="is not a picture"):
        decode_picture(b"%PDF-1.4", name="file.pdf")


def test_pictures_are_prepared_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pixels of four times as many pictures take no more memory."""
    monkeypatch.setattr(shards, "AHEAD", 8)
    for number in range(240):
        write(
            tmp_path / "large" / str(number % 2) / f"{number}.png", encode(picture(number % 9, 4, 4, 3) + number // 9)
        )
    for number in range(60):
        write(tmp_path / "small" / str(number % 2) / f"{number}.png", encode(picture(number, 4, 4, 3)))
    peaks = {}
    for name in ("small", "large"):
        tracemalloc.start()
        found = check(tmp_path / name, size=96)
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(found.pictures.values()) == (240 if name == "large" else 60)
    pixels = 96 * 96 * 3
    assert peaks["large"] - peaks["small"] < 60 * pixels, "180 more pictures have 5 MB of pixels"


def test_results_come_in_order_and_few_wait() -> None:
    from concurrent.futures import ThreadPoolExecutor

    started: list[int] = []

    def work(number: int) -> int:
        started.append(number)
        return number * number

    with ThreadPoolExecutor(3) as pool:
        for done, each in enumerate(shards.in_order(pool, work, range(1000))):
            assert each == done * done
            assert len(started) <= done + 1 + shards.AHEAD
