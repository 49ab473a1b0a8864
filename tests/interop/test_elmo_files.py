"""ELMo's published format: a small trained model with the vectors that the authors' code gave for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import lmlab
from lmlab.interop.elmo import import_elmo, read_options
from lmlab.language_model import LanguageModel

h5py = pytest.importorskip("h5py")
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def fixture(shared_data: Callable[[str], Path]) -> Path:
    return shared_data("elmo_fixture")


@pytest.fixture(scope="module")
def model(fixture: Path, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    path = tmp_path_factory.mktemp("elmo") / "run"
    import_elmo(fixture, path)
    return lmlab.load(path)


@pytest.fixture
def folder(fixture: Path, tmp_path: Path) -> Path:
    """A copy of the two files that may be damaged."""
    for name in ("options.json", "lm_weights.hdf5"):
        shutil.copyfile(fixture / name, tmp_path / name)
    return tmp_path


def sentences(fixture: Path, number: int) -> list[str]:
    found = json.loads((fixture / "sentences.json").read_text())[number]
    return [each if isinstance(each, str) else " ".join(each) for each in found]


@pytest.mark.parametrize("number", range(3))
def test_vectors_with_the_state_carried_from_sentence_to_sentence(
    model: LanguageModel, fixture: Path, number: int
) -> None:
    """The authors read ten sentences after each other; forward and backward are stored apart."""
    found = model.embed(sentences(fixture, number), carry_state=True)
    with h5py.File(fixture / f"lm_embeddings_{number}.hdf5") as file:
        for place, each in enumerate(found):
            np.testing.assert_allclose(each.vectors, np.concatenate(list(file[str(place)]), -1), atol=TOLERANCE)


@pytest.mark.parametrize("number", range(3))
def test_vectors_from_a_fresh_state(model: LanguageModel, fixture: Path, number: int) -> None:
    """Only the first sentence of a list began with a fresh state; ours all do, in any batch."""
    texts = sentences(fixture, number)
    found = model.embed(texts)
    with h5py.File(fixture / f"lm_embeddings_{number}.hdf5") as file:
        expected = [np.concatenate(list(file[str(place)]), -1) for place in range(len(texts))]
    np.testing.assert_allclose(found[0].vectors, expected[0], atol=TOLERANCE)
    assert not np.allclose(found[1].vectors, expected[1], atol=0.1)


def test_token_vectors(model: LanguageModel, fixture: Path) -> None:
    words = (fixture / "vocab_test.txt").read_text(encoding="utf-8").split()
    with h5py.File(fixture / "elmo_token_embeddings.hdf5") as file:
        expected = np.array(file["embedding"])
    plain = [number for number, word in enumerate(words) if not word.startswith("<")]
    assert len(plain) > 400
    ids = torch.tensor([[model.text_tokenizer.encode(words[number])[0] for number in plain]])
    with torch.no_grad():
        np.testing.assert_allclose(model.model.embedding(ids)[0].numpy(), expected[plain], atol=TOLERANCE)


def numpy_top_layer(path: Path, x: np.ndarray, *, skip: bool) -> np.ndarray:
    """The forward direction over token vectors [T, D] in numpy, by TensorFlow's equations and order of gates."""

    def sigmoid(z: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-z))

    with h5py.File(path) as file:
        for number in range(2):
            cell = file[f"RNN_0/RNN/MultiRNNCell/Cell{number}/LSTMCell"]
            W, B, P = (np.array(cell[name], np.float64) for name in ("W_0", "B", "W_P_0"))
            h, c, out = np.zeros(16), np.zeros(64), []
            for vector in x:
                i, j, f, o = np.split(np.concatenate([vector, h]) @ W + B, 4)
                c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -3, 3)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ P, -3, 3)
                out.append(h + vector if skip and number else h)
            x = np.stack(out)
    return x


@pytest.mark.parametrize("skip", [True, False])
def test_residual_connections_on_and_off(folder: Path, skip: bool) -> None:
    options = json.loads((folder / "options.json").read_text())
    options["lstm"]["use_skip_connections"] = skip
    (folder / "options.json").write_text(json.dumps(options))
    import_elmo(folder, folder / "run")
    own = lmlab.load(folder / "run")
    tokenizer = own.text_tokenizer
    row = torch.tensor([[tokenizer.start, *tokenizer.encode("an unheard-of Wörd , twice"), tokenizer.boundary]])
    with torch.no_grad():
        first, *_, top = own.model.layers(tokens=row)
    expected = numpy_top_layer(folder / "lm_weights.hdf5", first[0, :, :16].double().numpy(), skip=skip)
    np.testing.assert_allclose(top[0, :, :16].numpy(), expected, atol=TOLERANCE)


def test_it_says_that_it_predicts_nothing(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="cannot continue plain text"):
        model.score("a text")


def test_a_missing_table_is_one_line(folder: Path) -> None:
    with h5py.File(folder / "lm_weights.hdf5", "a") as file:
        del file["CNN_high_1/W_carry"]
    with pytest.raises(ValueError, match="has no table CNN_high_1/W_carry") as caught:
        import_elmo(folder, folder / "run")
    assert "\n" not in str(caught.value)
    assert not (folder / "run").exists()


def test_files_of_different_models_are_one_line(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text())
    options["lstm"]["dim"] = 32
    (folder / "options.json").write_text(json.dumps(options))
    with pytest.raises(ValueError, match="belong to different models"):
        import_elmo(folder, folder / "run")


def test_a_damaged_file_is_one_line(folder: Path) -> None:
    (folder / "lm_weights.hdf5").write_bytes(b"not HDF5")
    with pytest.raises(ValueError, match="cannot be read as HDF5"):
        import_elmo(folder, folder / "run")


@pytest.mark.parametrize("options", [{}, {"lstm": {}, "char_cnn": {}}, [], {"lstm": None, "char_cnn": 3}])
def test_bad_options_are_one_line(options: object) -> None:
    with pytest.raises(ValueError, match="is not ELMo's options"):
        read_options(options, where="options.json")


def test_unequal_clips_are_refused(fixture: Path) -> None:
    options = json.loads((fixture / "options.json").read_text())
    options["lstm"]["proj_clip"] = 5
    with pytest.raises(ValueError, match="differ"):
        read_options(options, where="options.json")
