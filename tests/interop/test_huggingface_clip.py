"""CLIP to and from folders of transformers: scores, texts and pictures are theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from captioned import caption_recipe, write_captions
from lmlab.interop.huggingface import export_run, import_run
from lmlab.runs import run
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.files import CLIP_FILE
from lmlab.tokenizers.processors.pictures import PictureProcessor

transformers: Any = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")
TEXTS = ["a photo of a cat", "Two dogs, on the LEFT!", "", "x " * 40]


def make_reference(vocabulary: int, *, act: str = "quick_gelu") -> Any:
    """A CLIPModel with random weights, biases and norms too."""
    text = {
        **{"vocab_size": vocabulary, "hidden_size": 12, "intermediate_size": 48, "num_hidden_layers": 3},
        **{"num_attention_heads": 3, "max_position_embeddings": 16, "hidden_act": act},
        **{"bos_token_id": vocabulary - 2, "eos_token_id": vocabulary - 1, "pad_token_id": vocabulary - 1},
    }
    vision = {
        **{"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"image_size": 24, "patch_size": 8, "hidden_act": act},
    }
    torch.manual_seed(3)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=10)
    model = transformers.CLIPModel(config).eval()
    for parameter in model.parameters():
        if parameter.ndim:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def pictures() -> list[Any]:
    numbers = np.random.default_rng(0)
    sizes = [(30, 41), (64, 24), (24, 24), (25, 100)]
    return [Image.fromarray(numbers.integers(0, 256, (*size, 3)).astype(np.uint8)) for size in sizes]


def image_processor() -> Any:
    """Their preprocessing, through Pillow, with the published mean and deviation."""
    size = {"height": 24, "width": 24}
    kind = getattr(transformers, "CLIPImageProcessorPil", transformers.CLIPImageProcessor)
    return kind(size={"shortest_edge": 24}, crop_size=size)


@pytest.fixture(scope="module")
def published(shared_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as transformers writes it: random weights, the published byte pairs, their processor of pictures."""
    path = shared_data("clip") / CLIP_FILE
    if not path.is_file():
        pytest.skip("needs the vocabulary that was published with CLIP")
    engine = json.loads(Tokenizer.load(path).engine.to_str())["model"]
    folder = tmp_path_factory.mktemp("published")
    tokenizer = transformers.CLIPTokenizer(vocab=engine["vocab"], merges=[tuple(pair) for pair in engine["merges"]])
    tokenizer.save_pretrained(folder)
    make_reference(len(tokenizer)).save_pretrained(folder)
    image_processor().save_pretrained(folder)
    return folder


@torch.no_grad()
def test_a_published_folder_is_read(published: Path, tmp_path: Path) -> None:
    import_run(published, tmp_path / "run")
    matcher = lmlab.load(tmp_path / "run").matcher
    reference = transformers.CLIPModel.from_pretrained(published).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(published)
    texts = tokenizer(TEXTS, padding=True, truncation=True, max_length=16, return_tensors="pt")
    pixels = image_processor()(pictures(), return_tensors="pt")["pixel_values"]
    theirs = reference(**texts, pixel_values=pixels)
    ours = matcher.embed_pixels([np.asarray(picture) for picture in pictures()]), matcher.embed_texts(TEXTS)
    np.testing.assert_allclose(ours[0], theirs.image_embeds, atol=1e-4)
    np.testing.assert_allclose(ours[1], theirs.text_embeds, atol=1e-4)
    scale = float(matcher.model.scale())
    np.testing.assert_allclose(scale * ours[0] @ ours[1].T, theirs.logits_per_image, atol=1e-4 * scale)


def test_pictures_are_read_as_by_their_processor(published: Path, tmp_path: Path) -> None:
    import_run(published, tmp_path / "run")
    processor = lmlab.load(tmp_path / "run").processor
    assert isinstance(processor, PictureProcessor)
    assert (processor.resize, processor.interpolation) == ("crop", "bicubic")
    for picture in pictures():
        theirs = image_processor()(picture, return_tensors="np")["pixel_values"]
        ours = processor.normalise(processor.process(np.asarray(picture))[None]).numpy()
        np.testing.assert_allclose(ours, theirs, atol=2e-2)  # one level of a byte is 1/255/0.26


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    run.start(caption_recipe(write_captions(home, copies=2), budget="3steps"), home / "run")
    return home / "run"


@torch.no_grad()
def test_a_run_is_written_and_read_back(trained: Path, tmp_path: Path) -> None:
    export_run(trained, tmp_path / "theirs")
    own, texts = lmlab.load(trained), ["red above blue", "blue above white", "green"]
    reference = transformers.CLIPModel.from_pretrained(tmp_path / "theirs").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    files = [trained.parent / name for name in ("red-blue-0.png", "white-white-1.png")]
    pixels = [np.asarray(Image.open(file)) for file in files]
    seen = image_processor().from_pretrained(tmp_path / "theirs")(pixels, return_tensors="pt")["pixel_values"]
    theirs = reference(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], pixel_values=seen)
    np.testing.assert_allclose(own.embed_pictures(files), theirs.image_embeds, atol=1e-4)
    np.testing.assert_allclose(own.matcher.embed_texts(texts), theirs.text_embeds, atol=1e-4)
    import_run(tmp_path / "theirs", tmp_path / "again")
    again = lmlab.load(tmp_path / "again")
    assert np.array_equal(again.embed_pictures(files), own.embed_pictures(files))
    assert np.array_equal(again.matcher.embed_texts(texts), own.matcher.embed_texts(texts))
    assert again.processor == own.processor
    (tmp_path / "theirs" / "lmlab.json").unlink()
    import_run(tmp_path / "theirs", tmp_path / "foreign")
    foreign = lmlab.load(tmp_path / "foreign")
    np.testing.assert_allclose(foreign.matcher.embed_texts(texts), own.matcher.embed_texts(texts), atol=1e-6)
    np.testing.assert_allclose(foreign.embed_pictures(files), own.embed_pictures(files), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vision_config": {"hidden_act": "gelu"}}, "vision_config.hidden_act = 'gelu' is not supported"),
        ({"text_config": {"intermediate_size": 50}}, "text_config.intermediate_size = 50 is not supported"),
        ({"vision_config": {"patch_size": 7}}, "patch = 7 does not divide"),
    ],
)
def test_folders_that_do_not_fit(trained: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    export_run(trained, tmp_path / "theirs")
    (tmp_path / "theirs" / "lmlab.json").unlink()
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    for table, values in change.items():
        config[table] |= values
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        import_run(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pictures_that_are_not_square(trained: Path, tmp_path: Path) -> None:
    settings = caption_recipe(trained.parent / "captions.tsv", budget="1steps").model_dump()
    wide = lmlab.runs.recipe.make_recipe(
        {
            "data": {"captions": settings["data"]["captions"], "size": [8, 16]},
            "tokenizer": {"spec": "words"},
            "model": {"kind": "clip", **settings["model"]},
            "train": {"budget": "1steps", "batch": 8},
        }
    )
    run.start(wide, tmp_path / "wide")
    with pytest.raises(ValueError, match="transformers has squares only"):
        export_run(tmp_path / "wide", tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
