"""Import ELMo's published weights (Peters et al. 2018): `options.json` and an HDF5 file, of bilm-tf or AllenNLP.

They contain the token layer and the LSTMs of both directions, without the softmax, so such a run gives vectors but
cannot predict tokens. Needs `h5py`: pip install 'lmlab[elmo]'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.config import build
from lmlab.interop.staging import staged
from lmlab.models import frame_of
from lmlab.models.elmo import Elmo, ElmoConfig
from lmlab.runs.model_files import write_config
from lmlab.runs.storage import read_json, write_manifest, write_tensors
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.engines import START, spelled_engine

HDF5 = (".hdf5", ".h5")
FORGET_BIAS = 1.0
"""The forget-gate bias that TensorFlow's cell adds; it is not in the file."""

Numbers = NDArray[np.float32]


class TensorEntry(NamedTuple):
    """One tensor of the model, and the table of the file that it comes from."""

    ours: str
    theirs: str
    change: Callable[[Numbers], Numbers] = lambda table: table


def import_elmo(folder: Path, run: Path, *, overwrite: bool = False) -> None:
    """Create a run directory from a folder with ELMo's options and weights."""
    with staged(run, overwrite=overwrite) as new:
        options = _only(_options_of(folder), folder, "a file of options (options.json)")
        weights = _find_weights(folder)
        config = read_options(read_json(options), where=str(options))
        tensors = read_weights(weights, config)
        model = Elmo(config)
        assert tensors.keys() == model.state_dict().keys(), "the table below has every tensor of the model"
        tokenizer = open_tokenizer()
        write_tensors(new / "model.safetensors", tensors)
        write_config(new, "elmo", config.model_dump())
        tokenizer.save(new / "tokenizer.json")
        frame_of(model, tokenizer).save(new)
        write_manifest(new)


def open_tokenizer() -> Tokenizer:
    """A tokenizer for words by their characters; a text begins with `<S>`, as in ELMo, and ends with a boundary."""
    engine = spelled_engine([], [])
    engine.add_special_tokens([START])
    return Tokenizer(engine)


def read_options(options: Any, *, where: str) -> ElmoConfig:
    """Convert ELMo's options to settings; a ValueError names what is missing or not supported."""
    try:
        lstm, cnn = options["lstm"], options["char_cnn"]
        clips = {lstm.get("cell_clip"), lstm.get("proj_clip")}
        values = {
            "vocabulary": 2,
            "width": lstm["projection_dim"],
            "cells": lstm["dim"],
            "layers": lstm["n_layers"],
            "connections": "residual" if lstm.get("use_skip_connections") else "none",
            "letter_width": cnn["embedding"]["dim"],
            "filters": cnn["filters"],
            "highways": cnn.get("n_highway") or 0,
            "activation": cnn["activation"],
            "letters": cnn["max_characters_per_token"],
            "clip": None if clips <= {None, 0} else float(max(clip or 0 for clip in clips)),
            "softmax": "none",
        }
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"it lacks {error}" if isinstance(error, KeyError) else "it is not a table of settings"
        raise ValueError(f"{where} is not ELMo's options: {missing}") from None
    if len(clips) > 1:
        raise ValueError(f"{where}: cell_clip and proj_clip differ ({clips}), which is not supported; make them equal")
    return build(ElmoConfig, values, where=where)


def read_weights(path: Path, config: ElmoConfig) -> dict[str, Tensor]:
    """Read the tensors of a model from an HDF5 file; a ValueError names a table that is missing or does not fit."""
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in Elmo(config).state_dict().items()}
    found: dict[str, Tensor] = {}
    with _open(path) as file:
        for entry in entries(config):
            table = file.get(entry.theirs)
            if table is None or not hasattr(table, "shape"):
                raise ValueError(f"{path} has no table {entry.theirs}, which its options require: download it again")
            numbers = np.ascontiguousarray(entry.change(np.asarray(table, np.float32)))
            if numbers.shape != expected[entry.ours]:
                raise ValueError(
                    f"{path}: the table {entry.theirs} has the shape {table.shape}, which does not fit its options "
                    f"({entry.ours} is {expected[entry.ours]}): the two files belong to different models"
                )
            found[entry.ours] = torch.from_numpy(numbers)
    return found


def entries(config: ElmoConfig) -> Iterator[TensorEntry]:
    """All tensors of a model, with their tables in the file."""

    def turn(table: Numbers) -> Numbers:
        return table.T

    def letters(table: Numbers) -> Numbers:
        return table[-261:]  # AllenNLP has a row for padding before the others

    def filters(table: Numbers) -> Numbers:
        return table[0].transpose(2, 1, 0) if table.ndim == 4 else table

    network = "embedding.network"
    yield TensorEntry(f"{network}.embedding.weight", "char_embed", letters)
    for number in range(len(config.filters)):
        yield TensorEntry(f"{network}.convolutions.{number}.weight", f"CNN/W_cnn_{number}", filters)
        yield TensorEntry(f"{network}.convolutions.{number}.bias", f"CNN/b_cnn_{number}")
    for number in range(config.highways):
        for ours, theirs in (("gate", "carry"), ("transform", "transform")):
            yield TensorEntry(f"{network}.highways.{number}.{ours}.weight", f"CNN_high_{number}/W_{theirs}", turn)
            yield TensorEntry(f"{network}.highways.{number}.{ours}.bias", f"CNN_high_{number}/b_{theirs}")
    yield TensorEntry(f"{network}.projection.weight", "CNN_proj/W_proj", turn)
    yield TensorEntry(f"{network}.projection.bias", "CNN_proj/b_proj")

    def from_input(table: Numbers) -> Numbers:
        return reorder(table[: len(table) - config.width]).T

    def from_state(table: Numbers) -> Numbers:
        return reorder(table[-config.width :]).T

    def bias(table: Numbers) -> Numbers:
        gates = reorder(table).copy()
        gates[config.cells : 2 * config.cells] += FORGET_BIAS
        return gates

    for direction in range(2):
        for number in range(config.layers):
            ours = f"recurrent.{direction}.layers.{number}.fused"
            theirs = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
            yield TensorEntry(f"{ours}.weight_ih_l0", f"{theirs}/W_0", from_input)
            yield TensorEntry(f"{ours}.weight_hh_l0", f"{theirs}/W_0", from_state)
            yield TensorEntry(f"{ours}.bias_ih_l0", f"{theirs}/B", bias)
            yield TensorEntry(f"{ours}.bias_hh_l0", f"{theirs}/B", np.zeros_like)
            yield TensorEntry(f"{ours}.weight_hr_l0", f"{theirs}/W_P_0", turn)


def reorder(table: Numbers) -> Numbers:
    """Reorder the gates [..., 4H] from TensorFlow's (i, j, f, o) to PyTorch's (i, f, g, o); j and g are the same."""
    i, j, f, o = np.split(table, 4, axis=-1)
    return np.concatenate([i, f, j, o], axis=-1)


def _options_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*options.json"))


def _tables_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in HDF5)


def _find_weights(folder: Path) -> Path:
    """The HDF5 file with weights; other HDF5 files of the folder may contain vectors."""
    tables = _tables_of(folder)
    if not tables:
        options = _options_of(folder)[0]
        raise ValueError(f"{options} is there, but the weights (*.hdf5) are missing: put them into the same folder")
    if len(tables) == 1:
        return tables[0]
    weights = [path for path in tables if _has_letters(path)]
    names = " and ".join(path.name for path in weights or tables)
    if not weights:
        raise ValueError(
            f"{folder} has no weights: there is no table char_embed in {names}; put them into the folder of the options"
        )
    if len(weights) > 1:
        raise ValueError(f"{folder} has weights in {names}: keep only the file that belongs to the options")
    return weights[0]


def _has_letters(path: Path) -> bool:
    with _open(path) as file:
        return "char_embed" in file


def _only(paths: list[Path], folder: Path, what: str) -> Path:
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths) or "none"
        raise ValueError(f"{folder} needs exactly one {what.removeprefix('a ').removeprefix('an ')}; it has {names}")
    return paths[0]


def _open(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise ValueError("ELMo's weights are an HDF5 file, which needs h5py: pip install 'lmlab[elmo]'") from None
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} cannot be read as HDF5 ({str(error).splitlines()[0]}); download it again") from None
