"""Attention over pictures: the weights of every head, rollout as a direct product, and pages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lmlab
from lmlab.analysis.pictures.attention import look, parse_patch
from lmlab.analysis.pictures.neighbours import find_near_pictures
from lmlab.analysis.pictures.probing import probe_pictures, read_picture_layers
from lmlab.cli.application import app
from lmlab.data.corpora.pictures.images import ImagesConfig, open_pictures
from lmlab.data.readers.pictures.decoding import read_picture
from lmlab.messages import ArgumentError

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps, and its pictures of 8 × 12 pixels."""
    home = tmp_path_factory.mktemp("vit")
    for number in range(24):
        path = home / "pictures" / ("odd" if number % 2 else "even") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 12, 3)).astype(np.uint8)).save(path)
    settings = {"model.width": 16, "model.heads": 2, "model.layers": 3, "model.patch": 4, "train.batch": 4}
    lmlab.train("vit", home / "pictures", output=home / "run", budget="3steps", settings=settings)
    return home


def test_weights_are_softmax_of_queries_and_keys(home: Path) -> None:
    model = lmlab.load(home / "run")
    pixels = read_picture(home / "pictures" / "odd" / "1.png")
    found = look(model, pixels)
    assert found.weights.shape == (3, 2, 7, 7)
    assert found.grid == (2, 3)
    network = model.model
    x = network.embed(model.processor.normalise(pixels[None]))
    with torch.no_grad():
        for layer, block in enumerate(network.blocks):
            q, k, _ = block.attention.query_key_value(block.attention_norm(x)).view(7, 3, 2, 8).unbind(1)
            expected = torch.einsum("thd,shd->hts", q, k).div(8**0.5).softmax(-1)
            np.testing.assert_allclose(found.weights[layer], expected, atol=1e-5)
            x = block(x)


def test_rollout_is_the_direct_product(home: Path) -> None:
    found = look(lmlab.load(home / "run"), read_picture(home / "pictures" / "odd" / "1.png"))
    steps = [0.5 * found.weights[layer].mean(0) + 0.5 * np.eye(7) for layer in range(3)]
    expected = steps[2] @ steps[1] @ steps[0]
    np.testing.assert_allclose(found.rollout(), expected, atol=1e-6)
    np.testing.assert_allclose(found.rollout().sum(1), 1, atol=1e-5)
    shown = found.figures()[1]
    assert shown.title == "Rollout"
    np.testing.assert_allclose(shown.weights, expected[0, 1:].reshape(2, 3), atol=1e-6)
    chosen = found.of(patch=(1, 2), layer=1, head=0).figures()
    np.testing.assert_allclose(chosen[2].weights, found.weights[1, 0, 6, 1:].reshape(2, 3), atol=1e-7)


def test_statistics_of_a_head_that_attends_evenly(home: Path) -> None:
    found = look(lmlab.load(home / "run"), read_picture(home / "pictures" / "odd" / "1.png"))
    even = found.__class__(found.pixels, np.full((1, 1, 7, 7), 1 / 7, np.float32), found.grid)
    (head,) = even.heads()
    centres = [(4 * row, 4 * column) for row in range(2) for column in range(3)]
    far = np.mean([np.hypot(a - c, b - d) for a, b in centres for c, d in centres])
    np.testing.assert_allclose((head.entropy, head.distance, head.cls), (np.log2(7), far, 1 / 7), rtol=1e-5)


@pytest.mark.parametrize("options", [[], ["--rollout"], ["--patch", "0,1", "--layer", "1"]])
def test_the_command_writes_a_page(home: Path, tmp_path: Path, options: list[str]) -> None:
    picture, page = str(home / "pictures" / "odd" / "1.png"), tmp_path / "page.html"
    command = ["inspect", "attention", str(home / "run"), picture, "-o", str(page), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "data:image/png" in text
    assert ("Layer 0, head 1" in text) == (not options)
    if not options:
        asked = CliRunner().invoke(app, [*command[:4], "--json"])
        assert json.loads(asked.stdout)["grid"] == [2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--patch", "2,0"], "there are 2 rows and 3 columns"),
        (["--patch", "x"], "give row and column"),
        (["--link", "it:cat"], "is for models of text"),
    ],
)
def test_what_does_not_fit_is_named(home: Path, options: list[str], message: str) -> None:
    picture = str(home / "pictures" / "odd" / "1.png")
    result = CliRunner().invoke(app, ["inspect", "attention", str(home / "run"), picture, *options])
    assert result.exit_code != 0
    assert message in str(result.exception) + result.output
    with pytest.raises(ArgumentError):
        parse_patch("1")


def test_neighbours_are_ranked_by_cosine(home: Path, tmp_path: Path) -> None:
    model = lmlab.load(home / "run")
    asked = home / "pictures" / "odd" / "1.png"
    found = find_near_pictures(model, asked, home / "pictures", top=23)
    assert found.searched == 23
    vectors = {}
    with torch.no_grad():
        for path in [asked, *(Path(each.picture) for each in found.neighbours)]:
            pixels = model.processor.normalise(read_picture(path)[None])
            vectors[path] = torch.nn.functional.normalize(model.model(pixels).hidden[0, 0], dim=0)
    expected = [float(vectors[asked] @ vectors[Path(each.picture)]) for each in found.neighbours]
    np.testing.assert_allclose([each.cosine for each in found.neighbours], expected, atol=1e-5)
    assert expected == sorted(expected, reverse=True)
    page = tmp_path / "near.html"
    command = ["inspect", "neighbours", str(home / "run"), str(asked), str(home / "pictures"), "-o", str(page)]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert page.read_text().count("data:image/png") == 11


def test_the_picture_encoder_of_clip(home: Path) -> None:
    from lmlab.language_model import LanguageModel
    from lmlab.models import create
    from lmlab.tokenizers.processors.pictures import PictureProcessor

    settings = {"vocabulary": 9, "image": [8, 8], "channels": 3, "patch": 4, "width": 8, "heads": 2, "layers": 2}
    clip = create("clip", {**settings, "text_width": 8, "text_heads": 2, "text_layers": 1, "space": 6})
    model = LanguageModel(model=clip.eval(), tokenizer=None, processor=PictureProcessor(height=8, width=8))
    found = look(model, read_picture(home / "pictures" / "odd" / "1.png"))
    assert found.weights.shape == (2, 2, 5, 5)
    near = find_near_pictures(model, home / "pictures" / "odd" / "1.png", home / "pictures", top=2)
    assert len(near.neighbours) == 2


def test_probes_find_the_class_where_it_is(tmp_path: Path) -> None:
    """Classes that the brightness tells are read off every layer; random labels off none, whatever the model."""
    numbers = np.random.default_rng(0)
    for number in range(120):
        name = ("dark", "light")[number % 2]
        path = tmp_path / "pictures" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = numbers.integers(0, 100, (8, 8, 3)).astype(np.uint8) + np.uint8(100 * (number % 2))
        Image.fromarray(pixels).save(path)
        (tmp_path / "random" / "ab"[numbers.integers(2)]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "random" / "ab"[numbers.integers(2)] / f"{number}.png")
    settings = {"model.width": 16, "model.heads": 2, "model.layers": 2, "model.patch": 4, "train.batch": 8}
    lmlab.train("vit", tmp_path / "pictures", output=tmp_path / "run", budget="2steps", settings=settings)
    model = lmlab.load(tmp_path / "run")
    found = probe_pictures(model, str(tmp_path / "pictures"))
    assert len(found.layers) == 3
    assert found.examples == (96, 12)
    assert (found.majority, found.pixels) == (0.5, 1.0)
    assert all(each.accuracy == 1 and each.random == 1 and each.control is None for each in found.layers)
    chance = probe_pictures(model, str(tmp_path / "random"), twin=False)
    assert all(each.accuracy < 0.95 for each in chance.layers)
    page = tmp_path / "page.html"
    arguments = ["inspect", "probing", str(tmp_path / "run"), str(tmp_path / "pictures"), "-o", str(page)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "the pixels 100.0%" in done.output.replace("\n", " ")
    assert "random weights" in page.read_text()
    done = CliRunner().invoke(app, ["inspect", "probing", str(tmp_path / "run"), str(tmp_path / "pictures" / "dark")])
    assert "has no class" in str(done.exception)


def test_vectors_of_probes_are_means_over_patches(home: Path) -> None:
    model = lmlab.load(home / "run")
    config = ImagesConfig(images=[str(home / "pictures")])
    split = open_pictures(config, config.images, given=model.processor, progress=None).splits["train"]
    found = read_picture_layers(model, split, [0, 3])
    pixels = model.processor.normalise(split.pixels[split.pictures[[0, 3]]])
    with torch.no_grad():
        expected = [layer[:, 1:].mean(1) for layer in model.model.layers(pixels=pixels)]
    for one, other in zip(found.layers, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert [each.label for each in found.answers] == [split.labels[0], split.labels[3]]


def test_pictures_without_a_test_part_are_not_probed(home: Path, tmp_path: Path) -> None:
    for part in ("train", "valid"):
        shutil.copytree(home / "pictures", tmp_path / "own" / part)
    with pytest.raises(ValueError, match="has a validation part and no test part: name the pictures to test on"):
        probe_pictures(lmlab.load(home / "run"), str(tmp_path / "own"))
