"""ViT to `transformers` and back: the same scores, the same pixels, the same names, the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hf_references import transformers
from typer.testing import CliRunner

import lmlab
from lmlab.cli.application import app
from lmlab.data.readers.examples import Example
from lmlab.data.readers.media import Picture
from lmlab.interop.huggingface import export_run, import_run, read_model
from lmlab.runs.storage import read_json, write_json

Image = pytest.importorskip("PIL.Image")
SHAPE: dict[str, Any] = {
    "hidden_size": 15,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 22,
    "image_size": [8, 12],
    "patch_size": 4,
    "num_channels": 3,
    "layer_norm_eps": 1e-6,
}
LABELS = {0: "cat", 1: "dog", 2: "owl"}


def make_theirs(folder: Path, *, head: bool, seed: int = 0, **changes: Any) -> Any:
    """A folder of `transformers` with random weights, and its model."""
    torch.manual_seed(seed)
    config = transformers.ViTConfig(**{**SHAPE, **changes}, id2label=LABELS if head else None)
    model = (transformers.ViTForImageClassification if head else transformers.ViTModel)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    sides = config.image_size if isinstance(config.image_size, list) else [config.image_size] * 2
    processor = transformers.ViTImageProcessorPil(size={"height": sides[0], "width": sides[1]}, resample=3)
    processor.save_pretrained(folder)
    return model


def picture(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(len(shape)).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("changes", [{}, {"image_size": 8, "patch_size": 2, "num_attention_heads": 5}])
def test_their_classifier_becomes_a_run_with_the_same_scores(tmp_path: Path, changes: dict[str, Any]) -> None:
    theirs = make_theirs(tmp_path / "theirs", head=True, **changes)
    assert CliRunner().invoke(app, ["convert", str(tmp_path / "theirs"), str(tmp_path / "run")]).exit_code == 0
    model = lmlab.load(tmp_path / "run")
    pixels = picture(20, 30, 3)
    processor = transformers.ViTImageProcessorPil.from_pretrained(tmp_path / "theirs")
    inputs = processor(Image.fromarray(pixels), return_tensors="pt")
    ours = model.processor.normalise(model.processor.process(pixels)[None])
    torch.testing.assert_close(ours, inputs["pixel_values"], atol=1e-5, rtol=0)
    with torch.no_grad():
        expected = theirs(**inputs).logits[0].softmax(-1)
    found = model.predictor.predict([Example(media=Picture(model.processor.process(pixels)))])[0]
    assert list(found.scores) == list(LABELS.values())
    torch.testing.assert_close(torch.tensor(list(found.scores.values())), expected, atol=1e-4, rtol=0)


def test_an_encoder_without_a_head_has_the_same_vectors(tmp_path: Path) -> None:
    theirs = make_theirs(tmp_path, head=False)
    pixels = torch.randn(2, 3, 8, 12)
    with torch.no_grad():
        expected = theirs(pixel_values=pixels).last_hidden_state
        torch.testing.assert_close(read_model(tmp_path)(pixels).hidden, expected, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps on grey pictures."""
    home = tmp_path_factory.mktemp("vit")
    for number in range(24):
        path = home / "pictures" / ("odd" if number % 2 else "even") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8)).astype(np.uint8)).save(path)
    settings = {"model.width": 16, "model.layers": 2, "train.batch": 4}
    lmlab.train("vit", home / "pictures", output=home / "run", budget="2steps", settings=settings)
    return home / "run"


def test_our_run_opens_in_transformers_and_comes_back_to_the_bit(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "theirs")
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path / "theirs").eval()
    assert theirs.config.id2label == {0: "even", 1: "odd"}
    pixels = torch.randn(3, 1, 8, 8)
    model = lmlab.load(run)
    head = model.predictor.heads["label"]
    with torch.no_grad():
        expected = head(model.model(pixels).hidden[:, 0])
        torch.testing.assert_close(theirs(pixel_values=pixels).logits, expected, atol=1e-4, rtol=0)
    import_run(tmp_path / "theirs", tmp_path / "back")
    for name in ("model.safetensors", "head.safetensors", "processor.json", "task.json"):
        assert (tmp_path / "back" / name).read_bytes() == (run / name).read_bytes(), name
    assert read_json(tmp_path / "back" / "config.json")["model"] == read_json(run / "config.json")["model"]
    (tmp_path / "theirs" / "lmlab.json").unlink()
    import_run(tmp_path / "theirs", tmp_path / "plain")
    assert lmlab.load(tmp_path / "plain").processor.shape == (8, 8, 1)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    make_theirs(tmp_path / "theirs", head=True)
    path = tmp_path / "theirs" / "preprocessor_config.json"
    settings = read_json(path)
    write_json(path, {**settings, "size": {"height": 9, "width": 9}})
    with pytest.raises(ValueError, match=r"pictures of \(9, 9\) pixels, and the model reads \(8, 12\)"):
        import_run(tmp_path / "theirs", tmp_path / "run")
    path.unlink()
    with pytest.raises(ValueError, match=r"has no preprocessor_config\.json"):
        import_run(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()
