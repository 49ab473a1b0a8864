"""Models in run directories: weights, heads, tokenizer, frame and config, written and read by name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lmlab import __version__
from lmlab.config import Config, build
from lmlab.models import find, load_class
from lmlab.models.abilities import learns_by_gradient
from lmlab.models.model import ReadsLetters
from lmlab.runs.storage import (
    HEADS,
    MANIFEST,
    MODEL,
    TASK,
    DamagedError,
    read_folder,
    read_json,
    read_tensors,
    verify,
    write_json,
)
from lmlab.tokenizers.processors import FILE as PROCESSOR

if TYPE_CHECKING:
    from lmlab.models.model import Model
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame


def model_tensors(model: Any) -> dict[str, Tensor]:
    """The weights of a model by name, tied ones once (under their first name)."""
    if not learns_by_gradient(model):
        tensors: dict[str, Tensor] = model.tensors()
        return tensors
    seen: set[int] = set()
    result: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            result[name] = tensor.detach().cpu()
    return result


class _SkipInitialization(TorchFunctionMode):
    """Leaves new weights unset: the meta device has none, and setting them there would load torch's compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if re.fullmatch(r"(\w+_)?(normal|uniform|constant|zeros|ones)_", func.__name__):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs or {})


def expected_tensors(kind: str, config: Config) -> dict[str, Tensor]:
    """The tensors that a network with these settings has, on the meta device: names and shapes without memory."""
    try:
        with torch.device("meta"), _SkipInitialization():
            state = load_class(kind)(config).state_dict(keep_vars=True)
    except (TypeError, RuntimeError, OverflowError) as error:  # numbers that no tensor can have as its size
        reason = str(error).splitlines()[0]
        raise ValueError(f"the settings of {kind} are too large for any machine: {reason}") from None
    first = {id(tensor): name for name, tensor in reversed(state.items())}
    return {name: tensor.detach() for name, tensor in state.items() if first[id(tensor)] == name}


def load_weights(
    model: nn.Module, tensors: Mapping[str, Tensor], *, source: Path, into: str = "the model in config.json"
) -> None:
    """Copy weights into a model or into heads; a ValueError names what does not fit."""
    tensors = with_new_names(tensors, type(model))
    check_fit(model_tensors(model), tensors, source=source, into=into)
    model.load_state_dict(dict(tensors), strict=False)


def check_fit(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], *, source: Path, into: str) -> None:
    """A ValueError names the tensors that are missing, unexpected or of another shape."""
    missing = sorted(expected.keys() - tensors.keys())
    extra = sorted(tensors.keys() - expected.keys())
    shapes = [
        f"{name} is {list(tensors[name].shape)}, not {list(expected[name].shape)}"
        for name in expected.keys() & tensors.keys()
        if tensors[name].shape != expected[name].shape
    ]
    if missing or extra or shapes:
        parts = (("missing", missing), ("unexpected", extra), ("of another shape", sorted(shapes)))
        problems = [f"{what}: {_some(names)}" for what, names in parts if names]
        raise ValueError(f"{source} does not fit {into}: {'; '.join(problems)}")


class NotFiniteWeightsError(ValueError):
    """The weights of a run are NaN or infinite."""


def check_finite_weights(model: nn.Module, *, source: Path) -> None:
    """A `NotFiniteWeightsError` where a weight is NaN or infinite."""
    for name, weights in model.named_parameters():
        if not bool(weights.detach().float().sum().isfinite()) and not bool(weights.isfinite().all()):
            raise NotFiniteWeightsError(
                f"{source} cannot be used: its weights are not numbers ({name} has NaN or infinity); train again, or "
                "resume it from an earlier checkpoint"
            )


def with_new_names(tensors: Mapping[str, Tensor], kind: type) -> dict[str, Tensor]:
    """Tensors by the names that they have today; RENAMED of a model maps old names to new ones."""
    renamed: Mapping[str, str] = getattr(kind, "RENAMED", {})
    return {renamed.get(name, name): tensor for name, tensor in tensors.items()}


def _some(names: list[str]) -> str:
    """At most three of the names, and the number of others."""
    return ", ".join(names[:3]) + (f", … and {len(names) - 3} more" if len(names) > 3 else "")


def copy_weights(model: Model, run: Path) -> None:
    """Copy the weights of a run into a model; tokens that the run does not have keep their random weights."""
    tensors, fresh = _best_weights(run), model_tensors(model)
    vocabularies = (getattr(model, "vocabulary", 0), read_json(run / "config.json")["model"].get("vocabulary", 0))
    more = int(vocabularies[0]) - int(vocabularies[1])
    if more > 0:
        for name in tensors.keys() & fresh.keys():
            old, new = tensors[name], fresh[name]
            if old.dim() and old.shape[1:] == new.shape[1:] and len(new) == len(old) + more:
                tensors[name] = torch.cat([old.to(new.dtype), new[len(old) :]])
        warnings.warn(
            f"the vocabulary of {run} grows by {more} special token{'s' * (more > 1)}, which the objective needs; "
            "their embeddings are initialised at random",
            stacklevel=2,
        )
    load_weights(model, model.adapt(tensors, fresh), source=run / MODEL)


def load_heads(run: str | Path, heads: nn.Module) -> None:
    """Copy the heads that a run has learnt into new ones of the same shapes, a `ModuleDict` by name."""
    load_weights(heads, read_heads(run), source=Path(run) / HEADS, into="these heads")


def read_heads(run: str | Path, *, name: str | None = None) -> dict[str, Tensor]:
    """The weights of the heads that a run has learnt, by name; an error calls the run by `name`, or by its path."""
    run = Path(run)
    if not (run / HEADS).is_file():
        raise ValueError(f"{name or run} has no {HEADS}: it was not trained for a task, or has not been evaluated yet")
    return _best_weights(run, HEADS)


def read_mix(run: Path, *, name: str | None = None) -> tuple[str, dict[str, Tensor]]:
    """The task of a run, and the `scores` and `gamma` of the mix of layers that it has learnt, in heads or body.

    Errors call the run by `name`, or by its path; for a damaged file they show the path.
    """
    name = name or str(run)
    if not (run / TASK).is_file():
        if not run.is_dir():
            raise ValueError(f"{name} does not exist; give a run that was fine-tuned")
        raise ValueError(f"{name} has not learnt a task: lmlab finetune {name} DATA -o NEW --how mix")
    found = read_heads(run, name=name)
    if "mix.scores" not in found and (run / "config.json").is_file():
        found = with_new_names(_best_weights(run), load_class(read_json(run / "config.json")["kind"]))
    if "mix.scores" not in found:
        raise ValueError(
            f"{name} has learnt no mix of layers: fine-tune with --how mix, or a tagger with --states RUN "
            "--set objective.state_layers=mix"
        )
    mix = {key.removeprefix("mix."): tensor for key, tensor in found.items() if key.startswith("mix.")}
    return str(read_json(run / TASK).get("kind", "task")), mix


def write_config(run: Path, kind: str, config: Mapping[str, Any]) -> None:
    """Write `config.json`: the kind of model of a run, and its settings."""
    write_json(run / "config.json", {"kind": kind, "version": __version__, "model": dict(config)})


def read_description(run: Path) -> tuple[str, Config]:
    """The kind of model of a run, and its settings, from `config.json`."""
    where = run / "config.json"
    description = read_json(where)
    kind, settings = (description.get(name) for name in ("kind", "model")) if isinstance(description, dict) else (0, 0)
    if not isinstance(kind, str) or not isinstance(settings, dict):
        raise DamagedError(f"{where} is damaged: it does not name the kind of model and its settings")
    return kind, build(load_class(kind).Config, settings, where=f"{where}: model")


def load_model(run: str | Path) -> tuple[Any, Tokenizer | None]:
    """The model of a run directory, checked against the manifest, and its tokenizer if it reads text.

    A damaged `model.safetensors` is named in a warning and the weights of the last checkpoint are taken, if whole.
    """
    run = Path(run)
    if not (run / "config.json").is_file():
        raise ValueError(
            f"{run} is not a run directory: it has no config.json (make one with: lmlab train MODEL TEXT -o {run})"
        )
    kind, config = read_description(run)
    cls = load_class(kind)
    tensors = _best_weights(run)
    model: Any
    if find(kind).trained_by == "gradient":
        tensors = with_new_names(tensors, cls)
        expected = expected_tensors(kind, config)  # before memory is taken: settings may be of any size
        check_fit(expected, tensors, source=run / MODEL, into="the model in config.json")
        network = cls(config)
        network.load_state_dict(tensors, strict=False)  # tied weights are stored once
        check_finite_weights(network, source=run / MODEL)
        model = network.eval()
    else:
        model = cls.from_tensors(config, tensors)
    reads_text = "vocabulary" in cls.Config.model_fields and not (run / PROCESSOR).is_file()
    tokenizer = load_tokenizer(run, needed=reads_text)
    set_spellings(model, tokenizer)
    return model, tokenizer


def set_spellings(model: object, tokenizer: Tokenizer | None) -> None:
    """Give a model that reads letters the spellings of the tokens of a tokenizer."""
    from lmlab.tokenizers.spellings import Spellings

    if isinstance(model, ReadsLetters) and tokenizer is not None:
        model.spell_by(Spellings(tokenizer, letters=model.config.letters))


def load_tokenizer(run: str | Path, *, name: str = "tokenizer.json", needed: bool = False) -> Tokenizer | None:
    """The tokenizer of a run; None if it has none and it is not `needed`."""
    from lmlab.tokenizers.files import load_imported

    path = Path(run) / name
    return load_imported(path) if needed or path.is_file() else None


def load_source_tokenizer(run: str | Path) -> Tokenizer | None:
    """The tokenizer of the source of a translator, if it has its own."""
    return load_tokenizer(run, name="source_tokenizer.json")


def load_frame(run: str | Path, model: object, tokenizer: Tokenizer) -> Frame:
    """The frame of a run: its `frame.json`, or what follows from the other files of an older run."""
    from lmlab.models import frame_of
    from lmlab.tokenizers.frames import FILE, Frame

    run = Path(run)
    if (run / FILE).is_file():
        return Frame.load(run)
    recipe = read_json(run / "recipe.json") if (run / "recipe.json").is_file() else {}
    objective = recipe.get("objective") if isinstance(recipe, dict) else None
    backwards = isinstance(objective, dict) and bool(objective.get("reverse_source"))
    return frame_of(model, tokenizer, load_source_tokenizer(run), backwards=backwards)


def _best_weights(run: Path, name: str = MODEL) -> dict[str, Tensor]:
    """The best weights of a run on validation data; if their file is damaged, those of the last checkpoint."""
    try:
        if (run / MANIFEST).is_file():
            verify(run)
        return read_tensors(run / name)
    except DamagedError as error:
        if not any(str(run / each) in str(error) for each in (MODEL, HEADS)):
            raise
        last = read_folder(run / "last", lambda folder: read_tensors(folder / name))
        if last is None:
            raise DamagedError(f"{error}, and there is no checkpoint in {run / 'last'} to take its place") from None
        warnings.warn(f"{error}. Taking the last checkpoint instead", stacklevel=3)
        return last
