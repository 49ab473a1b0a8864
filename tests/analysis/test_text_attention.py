"""A text with a picture: attention between words and regions, and masks filled with the picture in view."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lmlab
from lmlab.analysis.pictures.text_attention import read_picture_text, region_inputs
from lmlab.cli.application import app
from lmlab.runs.held_out import find_picture

Image = pytest.importorskip("PIL.Image")
SETTINGS = {"train.batch": 4, "train.warmup": 1, "train.evaluations": 1, "model.heads": 2, "model.layers": 3}


@pytest.fixture(scope="module", params=["visualbert", "vilbert"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps on pictures of 12 × 12 pixels with captions; some have boxes."""
    home = tmp_path_factory.mktemp("both")
    rows = []
    for number in range(24):
        name = ("red", "green", "blue")[number % 3]
        pixels = np.zeros((12, 12, 3), np.uint8)
        pixels[2:8, 3:9, number % 3] = 255 - number
        Image.fromarray(pixels).save(home / f"{number}.png")
        box = {"box": [3 / 12, 2 / 12, 9 / 12, 8 / 12], "name": name}
        whole = {"box": [0, 0, 1, 1], "name": "all"}
        rows.append({"picture": f"{number}.png", "caption": f"a {name} square", "regions": [box, whole]})
    (home / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {**SETTINGS, "model.dropout": 0.0}
    lmlab.train(
        str(request.param),
        home / "table.jsonl",
        output=home / "run",
        tokenizer="words",
        budget="3steps",
        settings=settings,
    )
    return home


def test_weights_are_softmax_of_queries_and_keys(home: Path) -> None:
    """The first layer that has words and regions, computed again from its own matrices."""
    model = lmlab.load(home / "run")
    found = read_picture_text(model, home / "1.png", "a green square")
    words, regions = len(found.tokens), len(found.regions)
    assert (words, regions) == (5, 36)
    network, inputs = model.model, region_inputs(model, home / "1.png")
    tokens = torch.tensor([[model.text_tokenizer.engine.token_to_id(each) for each in found.tokens]])
    with torch.no_grad():
        if hasattr(network, "connections"):
            attention = network.connections[0].attention
            x, y = _enter_streams(network, tokens, inputs)
            q, k = attention.first.query_key_value(x), attention.second.query_key_value(y)
            q, k = (each.view(len(each), 3, attention.first.heads, -1) for each in (q, k))
            scores = torch.einsum("thd,shd->hts", q[:, 0], k[:, 1]) / q.shape[-1] ** 0.5
            expected = scores.softmax(-1)[..., 1:]
        else:
            x = torch.cat([_words(network, tokens), network._enter_regions(inputs["regions"], inputs["boxes"])[0]])
            q, k, _ = network.blocks[0].attention.query_key_value(x).view(words + regions, 3, 2, -1).unbind(1)
            expected = (torch.einsum("thd,shd->hts", q, k) / q.shape[-1] ** 0.5).softmax(-1)[:, :words, words:]
    np.testing.assert_allclose(found.to_regions[0], expected, atol=1e-5)
    assert found.to_words.shape == (*found.to_regions.shape[:2], regions, words)
    assert found.match is not None
    assert 0 < found.match < 1


def _words(network: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    x = network.embedding(tokens[0]) + network.positions(0, tokens.shape[1]) + network.segments.weight[0]
    return network.embedding_norm(x)


def _enter_streams(
    network: torch.nn.Module, tokens: torch.Tensor, inputs: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Words after the blocks before the first connection, and regions after [IMG]."""
    with torch.no_grad():
        alone = network.config.layers - network.config.connections
        x = network.layers(tokens=tokens)[alone][0]
        y, _ = network._enter_regions(inputs["regions"], inputs["boxes"], inputs["region_lengths"])
    return x, y.view(-1, y.shape[-1])


def test_masks_are_filled_with_the_picture_in_view(home: Path) -> None:
    model = lmlab.load(home / "run")
    found = model.fill("a [MASK] square", picture=home / "1.png", top=3)
    pieces = ["[CLS]", "a", "[MASK]", "square", "[SEP]"]
    tokens = torch.tensor([[model.text_tokenizer.engine.token_to_id(each) for each in pieces]])
    with torch.no_grad():
        hidden = model.model(tokens, **region_inputs(model, home / "1.png")).hidden[0, 2]
        expected = model.model.output.logits(hidden).softmax(-1).topk(3).values
    np.testing.assert_allclose([each.probability for each in found.candidates[0]], expected, atol=1e-5)
    other = model.fill("a [MASK] square", picture=home / "2.png", top=3)
    assert other.candidates != found.candidates
    assert model.fill("a [MASK] square", top=3).candidates != found.candidates
    two = model.fill("a [MASK] [MASK]", picture=home / "1.png", jointly=True, top=2)
    assert len(two.fillings) == 2


def test_a_row_of_the_test_data_has_its_own_regions(home: Path) -> None:
    picture = find_picture(home / "run", "test:0")
    assert picture.regions is not None
    assert picture.regions.names[1] == "all"
    found = read_picture_text(lmlab.load(home / "run"), picture, "a green square")
    assert found.regions == list(picture.regions.names)
    cells = np.array(found.map(np.array([0.5, 0.1], np.float32)))
    assert cells[0, 0] == pytest.approx(0.1)
    assert cells[10, 12] == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"test pictures, test:0 to"):
        find_picture(home / "run", "test:999")


def test_commands(home: Path, tmp_path: Path) -> None:
    def lmlab_(*arguments: object) -> str:
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        return done.output if done.exception is None or done.exit_code == 0 else str(done.exception)

    page = tmp_path / "page.html"
    said = lmlab_("inspect", "attention", home / "run", home / "1.png", "a green square", "-o", page)
    assert "5 tokens and 36 regions" in said.replace("\n", " ")
    assert page.read_text().count("<image") >= 6
    found = json.loads(lmlab_("inspect", "attention", home / "run", "test:0", "a red square", "--json"))
    assert np.shape(found["to_regions"])[-2:] == (5, 2)
    filled = json.loads(lmlab_("fill", home / "run", "a [MASK] square", "--picture", "test:0", "--json"))
    assert len(filled["candidates"][0]) == 5
    assert "reads a picture with a text" in lmlab_("inspect", "attention", home / "run", home / "1.png")
    assert "there are" in lmlab_("inspect", "attention", home / "run", home / "1.png", "a", "--layer", 99)
    assert "--link is not for a text with a picture" in lmlab_(
        "inspect", "attention", home / "run", home / "1.png", "a", "--link", "a:b"
    )
    (tmp_path / "bad.png").write_bytes(b"no picture")
    assert "is not a picture" in lmlab_("fill", home / "run", "a [MASK]", "--picture", tmp_path / "bad.png")
    assert "does not exist" in lmlab_("fill", home / "run", "a [MASK]", "--picture", tmp_path / "none.png")
