"""Pictures from files of many kinds, also from bad ones."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lmlab.data import make_config, prepare
from lmlab.data.corpora.pictures.images import PictureWarning
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.readers.pictures.decoding import BadPictureError, decode_picture
from lmlab.tokenizers.processors import load_processor
from lmlab.tokenizers.processors.pictures import PictureProcessor
from random_pictures import encode, picture

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "cache"))


def write_classes(folder: Path, count: int = 12) -> Path:
    for number in range(2 * count):
        path = folder / ("cat" if number % 2 else "dog") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(picture(number)))
    return folder


def splits(**data: Any) -> dict[str, PictureSplit]:
    corpus = prepare(make_config(data), processor=None)
    found = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
    return {name: split for name, split in found.items() if isinstance(split, PictureSplit)}


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "animals")
    found = splits(text=str(folder))
    assert sum(split.size for split in found.values()) == 24
    assert set(found) == {"train", "valid", "test"}
    for split in found.values():
        assert set(split.labels) == {"cat", "dog"}
        for name, label, number in zip(split.names, split.labels, split.pictures, strict=True):
            assert Path(name).parent.name == label
            np.testing.assert_array_equal(split.pixels[number], picture(int(Path(name).stem)))
            assert isinstance(split.pixels, np.memmap)


def test_equal_pictures_stay_together(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "animals", 20)
    for number in range(20):
        (folder / "cat" / f"copy-{number}.png").write_bytes(encode(picture(2 * (number // 2) + 1)))
    found = splits(images=str(folder))
    contents = [{split.pixels[number].tobytes() for number in split.pictures} for split in found.values()]
    assert not any(one & other for place, one in enumerate(contents) for other in contents[place + 1 :])


def test_a_table_and_its_zip_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        for number in range(10):
            archive.writestr(f"inner/{number}.png", encode(picture(number)))
    rows = [
        {"image": f"{number}.png", "caption": f"picture {number}", "label": str(number % 2)} for number in range(10)
    ]
    (tmp_path / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = prepare(make_config({"captions": str(tmp_path / "table.jsonl")}), processor="characters")
    assert isinstance(corpus.train, PictureSplit)
    assert corpus.tokenizer is not None
    assert isinstance(corpus.media, PictureProcessor)
    for row in range(corpus.train.size):
        number = int(corpus.train.fields["caption"][row].split()[1])
        np.testing.assert_array_equal(corpus.train.pixels[corpus.train.pictures[row]], picture(number))
        assert corpus.train.tokens is not None
        tokens = corpus.train.tokens["caption"].row(row)
        assert corpus.tokenizer.decode(tokens.tolist()) == f"picture {number}"


def test_regions_are_kept(tmp_path: Path) -> None:
    rows = []
    for number in range(6):
        (tmp_path / f"{number}.png").write_bytes(encode(picture(number)))
        regions = [{"box": [0, 0, 0.5, number / 10], "name": "head", "features": [number, 1]}] * (number % 3)
        rows.append({"picture": f"{number}.png", "sentence": f"it is {number}", "truth": True, "regions": regions})
    (tmp_path / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = splits(captions=str(tmp_path / "table.jsonl"))
    for split in found.values():
        assert split.regions is not None
        for sentence, label, own in zip(split.fields["sentence"], split.labels, split.regions, strict=True):
            number = int(sentence.split()[2])
            assert (label, len(own.boxes), own.names) == ("true", number % 3, ("head",) * (number % 3))
            features = [] if own.features is None else own.features.tolist()
            assert features == [[number, 1]] * (number % 3)


def write_idx(path: Path, values: NDArray[np.uint8], *, lie: int = 0) -> None:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, values.shape[0] + lie, *values.shape[1:])
    path.write_bytes(gzip.compress(header + values.tobytes()))


def test_idx_files(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    pixels, labels = picture(0, 40, 8, 8), (np.arange(40) % 4).astype(np.uint8)
    for name in ("train", "t10k"):
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", pixels + (name == "t10k"))
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels)
    found = splits(text=str(folder))
    assert found["test"].size == 40
    np.testing.assert_array_equal(found["test"].pixels[..., 0][found["test"].pictures], pixels + 1)
    assert found["test"].labels == [str(label) for label in labels]
    write_idx(folder / "train-images-idx3-ubyte.gz", pixels, lie=10**6)
    with pytest.raises(ValueError, match=r"its header names .* bytes, and it has"):
        splits(text=str(folder))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"no picture", "is not a picture"),
        (encode(picture(0))[:80], "cannot be read"),
        (encode(picture(0, 64, 64, 3), "JPEG")[:400], "cannot be read"),
    ],
)
def test_bad_files_are_refused_or_skipped(tmp_path: Path, data: bytes, message: str) -> None:
    folder = write_classes(tmp_path / "animals")
    (folder / "cat" / "bad.png").write_bytes(data)
    with pytest.raises(ValueError, match=rf"bad\.png {message}.*data\.bad=skip"):
        splits(images=str(folder))
    assert not list((tmp_path / "cache").glob("corpora/*")), "nothing is left of it"
    with pytest.warns(PictureWarning, match=rf"skipped: .*bad\.png {message}"):
        found = splits(images=str(folder), bad="skip")
    assert sum(split.size for split in found.values()) == 24
    with pytest.warns(PictureWarning, match="skipped"):
        splits(images=str(folder), bad="skip")


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(np.zeros((3000, 3000), np.uint8))
    monkeypatch.setattr("lmlab.data.readers.pictures.decoding.MOST_PIXELS", 10**6)
    with pytest.raises(BadPictureError, match="3,000 × 3,000 pixels"):
        decode_picture(data, name="bomb.png")


def test_a_path_out_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("picture,label\n../secret.png,a\nb.png,b\n")
    with pytest.raises(ValueError, match=r"line 2: '\.\./secret\.png' leads out of the folder"):
        splits(images=str(tmp_path / "table.csv"))


def test_modes_of_pictures() -> None:
    grey = picture(3, 6, 5)
    assert decode_picture(encode(grey), name="grey").shape == (6, 5, 1)
    deep = decode_picture(encode((grey.astype(np.uint16) << 8) | 7), name="deep")
    np.testing.assert_allclose(deep[..., 0].astype(int), grey, atol=1)
    file = io.BytesIO()
    Image.fromarray(picture(4)).convert("CMYK").save(file, "JPEG")
    assert decode_picture(file.getvalue(), name="cmyk").shape == (8, 8, 3)
    clear = np.zeros((4, 4, 4), np.uint8)
    assert PictureProcessor(height=4, width=4).process(decode_picture(encode(clear), name="clear")).min() == 255
    frames = [Image.fromarray(np.full((4, 4), level, np.uint8)) for level in (10, 200)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert decode_picture(file.getvalue(), name="animated").max() == 10, "the first frame"


def test_the_processor(tmp_path: Path) -> None:
    processor = PictureProcessor(height=4, width=6, channels=1, mean=[0.25], std=[0.5])
    processor.save(tmp_path / "processor.json")
    assert load_processor(tmp_path) == processor
    batch = np.stack([processor.process(picture(number, 9, 7, 3)) for number in range(2)])
    expected = (batch.transpose(0, 3, 1, 2) / 255 - 0.25) / 0.5
    np.testing.assert_allclose(processor.normalise(batch).numpy(), expected, atol=1e-6)
    square = picture(5, 10, 10, 3)
    for rule in ("stretch", "crop", "pad"):
        made = PictureProcessor.model_validate({"height": 4, "width": 8, "resize": rule}).process(square)
        assert made.shape == (4, 8, 3)
        assert (made[:, 0] == 255).all() == (rule == "pad")
    (tmp_path / "processor.json").write_text('{"kind": "pictures", "height": 0}')
    with pytest.raises(ValueError, match=r"processor\.json is damaged"):
        load_processor(tmp_path)
