"""What is learnt need not be tokens: a toy model of images, with a head, goes through a run without a tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

import lmlab.data
from lmlab.config import Config
from lmlab.costs.design import describe
from lmlab.data import DATA, Kind, make_config
from lmlab.data.config import DataConfig, Paths
from lmlab.data.corpora.corpus import Corpus, Dataset, Processor
from lmlab.data.corpora.examples import fingerprint
from lmlab.data.loaders.loader import Loader
from lmlab.data.readers.examples import Example
from lmlab.data.readers.media import Picture
from lmlab.layers.watching import record_layer
from lmlab.metrics.metric import accuracy
from lmlab.models import LINEAGE, System
from lmlab.models.abilities import GivesVectors
from lmlab.models.model import Model, ModelConfig, Output, by_depth
from lmlab.objectives import OBJECTIVES
from lmlab.objectives.objective import Batch, Loss, PreTraining
from lmlab.pages.run import make_page
from lmlab.runs import run
from lmlab.runs.averaging import average
from lmlab.runs.model_files import load_heads
from lmlab.runs.recipe import make_recipe
from lmlab.runs.report import gather_facts
from lmlab.runs.storage import read_tensors
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors import PROCESSORS

HERE = __name__


class ImagesConfig(DataConfig):
    """A folder of gray pictures, whose names begin with their class."""

    PATHS: ClassVar[tuple[str, ...]] = ("images",)
    what: ClassVar[str] = "images"

    kind: str = "images"
    images: Paths


def read_pictures(folder: Path) -> list[Example]:
    """The pictures of a folder of PGM files such as `1-017.pgm`, in the order of their names."""
    found = []
    for path in sorted(folder.glob("*.pgm"), key=lambda path: path.stem.partition("-")[2]):
        header, _, content = path.read_bytes().partition(b"\n")
        _, width, height, _ = header.split()
        pixels = np.frombuffer(content, np.uint8).reshape(int(height), int(width), 1)
        found.append(Example(media=Picture(pixels), label=path.name[0], source=str(path)))
    return found


class PixelProcessor:
    """Pictures as rows of numbers from 0 to 1."""

    def __init__(self, white: float = 255.0) -> None:
        self.white = white

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"pixels {self.white}".encode()).hexdigest()

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"kind": "pixels", "white": self.white}))

    def process(self, picture: Picture) -> NDArray[np.float32]:
        return (picture.pixels / self.white).astype(np.float32).ravel()


class Images(Dataset):
    """Processed pictures, each with its class."""

    def __init__(self, examples: Sequence[Example], processor: PixelProcessor) -> None:
        pictures = [example.media for example in examples if isinstance(example.media, Picture)]
        self.pixels = np.stack([processor.process(picture) for picture in pictures])  # [N, pixels]
        self.classes = np.array([int(example.label) for example in examples])  # [N]

    @property
    def size(self) -> int:
        return len(self.classes)

    def describe(self) -> str:
        return f"{self.size} images"


def prepare(
    config: ImagesConfig, *, processor: Processor | str | None, source: Tokenizer | str | None, progress: object
) -> Corpus:
    own = processor if isinstance(processor, PixelProcessor) else PixelProcessor()
    folder = Path(config.images[0])
    examples = read_pictures(folder)
    digest = fingerprint([examples])
    return Corpus(
        processor=own,
        train=Images(examples[:48], own),
        valid=Images(examples[48:], own),
        test=None,
        fingerprint=hashlib.sha256(f"{digest} {own.fingerprint}".encode()).hexdigest(),
        text_fingerprint=digest,
        folder=folder,
    )


class ImageBatch(NamedTuple):
    """Some of the pictures."""

    pixels: NDArray[np.float32]  # [B, pixels]
    classes: NDArray[np.int64]  # [B]


class ImageLoader(Loader):
    """Pictures in the order of their numbers."""

    window = 1

    def __init__(self, data: Images, batch: int) -> None:
        self.data, self.batch_size, self.steps_per_epoch = data, batch, data.size / batch

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"images": float(self.batch_size), "pixels": float(self.data.pixels.shape[1] * self.batch_size)}

    def batch(self, step: int) -> ImageBatch:
        chosen = (step * self.batch_size + np.arange(self.batch_size)) % self.data.size
        return ImageBatch(self.data.pixels[chosen], self.data.classes[chosen])


class BrightConfig(ModelConfig):
    """The size of a network."""

    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = {"pixels": 9}

    pixels: int = Field(ge=1, description="pixels of an image; set by the data")
    width: int = Field(8, ge=1, description="units")

    @classmethod
    def from_corpus(cls, corpus: Any) -> dict[str, Any]:
        return {"pixels": corpus.train.pixels.shape[1]}


class Bright(Model):
    """One layer over the pixels."""

    Config = BrightConfig

    def __init__(self, config: BrightConfig) -> None:
        super().__init__()
        self.config, self.hidden = config, nn.Linear(config.pixels, config.width)

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        return {"images": torch.zeros(rows, self.config.pixels, device=self.device)}

    def forward(self, images: Tensor, *, state: Any = None) -> Output:
        h = torch.dropout(torch.tanh(self.hidden(images))[:, None], 0.1, self.training)  # [B, 1, D]
        record_layer(h)
        return Output(h)

    def depths(self) -> list[list[nn.Parameter]]:
        return by_depth(self, (self.hidden,))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        return 2.0 * self.hidden.weight.numel()


class Recall:
    """The fraction of the class 1 that is found: no mean over batches."""

    better = "higher"

    def __init__(self) -> None:
        self.pairs: list[Tensor] = []

    def add(self, watched: Tensor) -> None:
        self.pairs.append(watched)

    def value(self) -> float:
        found, true = torch.cat(self.pairs).unbind(1)
        return float((found & true).sum() / true.sum().clamp(min=1))


class NoSettings(Config):
    """An objective without settings."""


class Classes(PreTraining):
    """Cross-entropy of the class of an image, by a head."""

    Config = NoSettings
    reads: ClassVar[tuple[str, ...]] = ("images",)
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False
    watched_metrics: ClassVar[Mapping[str, Any]] = {"accuracy": accuracy, "recall": Recall}
    additive: ClassVar[bool] = True
    loss_weights: ClassVar[Mapping[str, float]] = {"class": 1.0}

    def __init__(self, config: NoSettings, tokenizer: None, frame: None) -> None:
        assert tokenizer is None

    @classmethod
    def needs(cls, config: NoSettings) -> tuple[type, ...]:
        return (GivesVectors,)

    def heads(self, model: Any) -> dict[str, nn.Module]:
        return {"class": nn.Linear(model.config.width, 2)}

    def loader(self, data: Images, *, batch: int, window: int, seed: int, streams: bool) -> ImageLoader:
        return ImageLoader(data, batch)

    def batch(self, raw: ImageBatch, generator: Any = None) -> Batch:
        images, classes = torch.from_numpy(raw.pixels), torch.from_numpy(raw.classes)
        units = {"images": len(classes), "pixels": images.numel()}
        return Batch({"images": images}, {"classes": classes}, {"class": len(classes)}, units)

    def loss(self, model: Any, heads: Mapping[str, nn.Module], batch: Batch, state: Any = None) -> Loss:
        logits, classes = heads["class"](model(**batch.inputs).hidden[:, 0]), batch.labels["classes"]
        found = logits.argmax(-1)
        watched = {"accuracy": found == classes, "recall": torch.stack([found, classes], dim=1)}
        return Loss({"class": nn.functional.cross_entropy(logits, classes, reduction="sum")}, watched=watched)

    def batch_flops(self, model: Any, batch: Batch, *, memory_length: int = 0) -> float:
        return float(3 * model.body_flops(1) * batch.units["images"])


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of pictures, and the tables with what learns from them."""
    monkeypatch.setitem(DATA, "images", Kind(f"{HERE}:ImagesConfig", f"{HERE}:prepare", keys=("images",)))
    monkeypatch.setitem(PROCESSORS, "pixels", f"{HERE}:PixelProcessor")
    monkeypatch.setitem(OBJECTIVES, "classes", f"{HERE}:Classes")
    row = System(
        *("bright", f"{HERE}:Bright", 2020, "this test", "a layer over pixels", ("vectors",)),
        objective={"kind": "classes"},
        tokenizer=None,
    )
    monkeypatch.setitem(LINEAGE, "bright", row)
    folder = tmp_path / "pictures"
    write_pictures(folder)
    return folder


def write_pictures(folder: Path) -> None:
    """Write 64 pictures of 2 × 2 pixels: of class 1 where they are bright."""
    folder.mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(1, 256, (64, 4)).astype(np.uint8)):
        name = f"{int(pixels.sum() > 512)}-{number:03}.pgm"
        (folder / name).write_bytes(b"P5 2 2 255\n" + pixels.tobytes())


def recipe(images: Path, **train: Any) -> Any:
    settings = {"budget": "256images", "batch": 8, "rate": 0.05, "log_every": 4, "evaluations": 4, "save_seconds": 0}
    data = {"images": str(images)}
    return make_recipe({"data": data, "model": {"kind": "bright"}, "train": {**settings, **train}})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_run_needs_no_tokens(images: Path, tmp_path: Path) -> None:
    outcome = run.start(recipe(images, evaluation_tokens=16), tmp_path / "run")
    assert outcome.progress.units == {"images": 256, "pixels": 1024}
    assert outcome.progress.step == 32
    assert not outcome.lossy
    assert not (tmp_path / "run" / "tokenizer.json").exists()
    assert outcome.progress.flops == 3 * 32 * 8 * 2 * 4 * 8
    price = lines(tmp_path / "run")[-1]
    assert (price["images"], price["parameters"]["total"]) == (256, 4 * 8 + 8 + 8 * 2 + 2)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "48 images" in card
    assert "32 steps, 256 images, 1,024 pixels" in card
    assert "okenizer" not in card

    extended = run.resume(tmp_path / "run", settings={"budget": "40steps"})
    assert extended.progress.units["images"] == 320
    model = lmlab.load(tmp_path / "run")
    assert repr(model) == f"LanguageModel(Bright, {tmp_path / 'run'})"
    assert model.tokenizer is None
    assert model.model.config.pixels == 4
    for role in ("writer", "scorer", "filler", "translator", "embedder"):
        with pytest.raises(ValueError, match=r"tokenizer|cannot"):
            getattr(model, role)
    with pytest.raises(ValueError, match="bright has no tokenizer, so it cannot be given text"):
        model.embed("a text")
    facts = gather_facts(tmp_path / "run")
    assert facts["tokenizer"] is None
    assert (facts["cost"]["counted"], facts["cost"]["images"]) == ("images", 320)
    assert "images read, in 40 steps" in make_page(facts)


def test_a_folder_of_pictures_reaches_its_reader(images: Path) -> None:
    """Whatever the key that names it: the endings of its files tell that it is not text."""
    named = make_config({"text": str(images)})
    assert isinstance(named, ImagesConfig)
    assert named == make_config({"images": str(images)})
    corpus = lmlab.data.prepare(named, processor=PixelProcessor(white=510.0))
    assert corpus.tokenizer is None
    assert isinstance(corpus.train, Images)
    assert corpus.train.pixels.max() <= 0.5
    assert corpus.train.describe() == "48 images"
    with pytest.raises(ValueError, match="these data are not plain text"):
        corpus.train.as_text()
    other = lmlab.data.prepare(named, processor=None)
    assert other.text_fingerprint == corpus.text_fingerprint
    assert other.fingerprint != corpus.fingerprint


def test_training_lines_have_no_mean_of_what_is_of_a_whole_evaluation(images: Path, tmp_path: Path) -> None:
    run.start(recipe(images), tmp_path / "run")
    trained = [line for line in lines(tmp_path / "run") if "loss" in line]
    assert trained
    assert all("accuracy" in line and "recall" not in line for line in trained)
    assert all(line["cost"]["images_per_second"] > 0 for line in trained)
    assert all("valid_recall" in line for line in lines(tmp_path / "run") if "valid_loss" in line)


def test_a_validation_reads_as_many_images_as_it_may(images: Path, tmp_path: Path) -> None:
    recipes = {most: recipe(images, evaluation_tokens=most, budget="8steps") for most in (1, 16)}
    found = {most: run.start(each, tmp_path / str(most)).progress.best for most, each in recipes.items()}
    assert found[1] != found[16]


def test_heads_resume_exactly_and_load(images: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run.start(recipe(images), whole)
    calls = iter(range(1000))
    assert run.start(recipe(images), cut, interrupted=lambda: next(calls) >= 13).interrupted
    assert not run.resume(cut).interrupted
    for name in ("head.safetensors", "model.safetensors", "last/head.safetensors"):
        one, other = read_tensors(whole / name), read_tensors(cut / name)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    heads = nn.ModuleDict(Classes(NoSettings(), None, None).heads(lmlab.load(whole).model))
    load_heads(whole, heads)
    assert torch.equal(heads.state_dict()["class.weight"], read_tensors(whole / "head.safetensors")["class.weight"])
    with pytest.raises(ValueError, match="does not fit these heads: of another shape: class"):
        load_heads(whole, nn.ModuleDict({"class": nn.Linear(9, 2)}))
    (whole / "head.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="Taking the last checkpoint instead"):
        load_heads(whole, heads)
    assert torch.equal(
        heads.state_dict()["class.weight"], read_tensors(whole / "last" / "head.safetensors")["class.weight"]
    )


def test_heads_are_averaged_with_the_model(images: Path, tmp_path: Path) -> None:
    run.start(recipe(images, keep=2), tmp_path / "run")
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == [f"{what}-0000{step}.safetensors" for what in ("head", "step") for step in (24, 32)]
    average(tmp_path / "run", last=2, output=tmp_path / "mean")
    parts = [read_tensors(tmp_path / "run" / "checkpoints" / name)["class.weight"] for name in kept[:2]]
    heads = nn.ModuleDict(Classes(NoSettings(), None, None).heads(lmlab.load(tmp_path / "mean").model))
    load_heads(tmp_path / "mean", heads)
    torch.testing.assert_close(heads.state_dict()["class.weight"], (parts[0] + parts[1]) / 2)
    assert repr(lmlab.load(tmp_path / "mean")).startswith("LanguageModel(Bright, ")


def test_a_run_begins_with_a_model_and_with_new_heads(images: Path, tmp_path: Path) -> None:
    run.start(recipe(images), tmp_path / "first")
    values = {"data": {"kind": "images", "images": str(images)}, "model": {"kind": "bright"}}
    second = make_recipe({**values, "train": {"budget": "1steps", "rate": 1e-12}, "origin": tmp_path / "first"})
    run.start(second, tmp_path / "second")
    (first, again), (old, new) = (
        [read_tensors(tmp_path / folder / f"{name}.safetensors") for folder in ("first", "second")]
        for name in ("model", "head")
    )
    for name in first:
        torch.testing.assert_close(again[name], first[name])
    assert not torch.allclose(old["class.weight"], new["class.weight"])


def test_the_cost_of_what_reads_no_tokens(images: Path) -> None:
    design = describe("bright", settings={"pixels": 4})
    assert (design.vocabulary, design.parameters.total) == (0, 4 * 8 + 8)
    assert design.activations(2) > 0
